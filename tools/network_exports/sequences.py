"""Networks of signals, sequences, sets and tables, by name."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import torch
from torch import nn

from tools.network_exports.attention_parts import (
    ChosenExperts,
    Experts,
    Graph,
    Heads,
    Mixer,
    Rotary,
    Translator,
    Vision,
)
from tools.network_exports.case import Case, Lambda
from tools.network_exports.sequence_parts import (
    Bag,
    Clicks,
    Codes,
    Crnn,
    Flow,
    Last,
    Messages,
    Neighbours,
    Points,
    Radiance,
    Sine,
    Spectrum,
    State,
    Wave,
)

__all__ = ["SEQUENCES"]


def _floats(*shapes: tuple[int, ...]) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: tuple(torch.randn(*shape) for shape in shapes)


def _words(count: int, *shape: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randint(count, shape),)


def _dense(*sizes: int, act: type[nn.Module] = nn.ReLU, norm: bool = False) -> nn.Module:
    layers: list[nn.Module] = []
    for into, out in pairwise(sizes[:-1]):
        layers += [nn.Linear(into, out), *([nn.BatchNorm1d(out)] if norm else []), act()]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


SEQUENCES: Final[dict[str, Case]] = {
    "mlp": Case(lambda: _dense(16, 32, 4), _floats((1, 16))),
    "mlp_wide": Case(lambda: _dense(256, 1024, 1024, 10), _floats((8, 256))),
    "mlp_norm": Case(lambda: _dense(64, 128, 128, 5, act=nn.ELU, norm=True), _floats((16, 64))),
    "autoencoder": Case(lambda: _dense(784, 256, 32, 256, 784, act=nn.SELU), _floats((4, 784))),
    "siren": Case(lambda: _dense(2, 64, 64, 3, act=Sine), _floats((1024, 2))),
    "clicks": Case(Clicks, lambda: (torch.randint(200, (32, 6)), torch.randn(32, 13))),
    "bag_mean": Case(lambda: Bag("mean"), _words(500, 4, 20)),
    "bag_sum": Case(lambda: Bag("sum"), _words(500, 4, 20)),
    "codes": Case(Codes, _floats((32, 64))),
    "flow": Case(Flow, _floats((32, 16))),
    "radiance": Case(Radiance, _floats((64, 16, 3))),
    "wave": Case(Wave, _floats((1, 1, 512))),
    "keywords": Case(
        lambda: nn.Sequential(
            nn.Conv1d(40, 64, 9, padding=4, groups=8),
            nn.Conv1d(64, 64, 1),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(64, 12),
        ),
        _floats((1, 40, 101)),
    ),
    "raw_audio": Case(
        lambda: nn.Sequential(
            nn.Conv1d(1, 32, 80, 16),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.MaxPool1d(4),
            nn.Conv1d(32, 64, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(64, 10),
        ),
        _floats((1, 1, 8000)),
    ),
    "spectrum": Case(Spectrum, _floats((1, 4096))),
    "separator": Case(
        lambda: nn.Sequential(
            nn.Conv1d(1, 64, 16, 8),
            nn.PReLU(),
            nn.GroupNorm(1, 64),
            nn.Conv1d(64, 64, 3, padding=2, dilation=2, groups=64),
            nn.PReLU(),
            nn.ConvTranspose1d(64, 1, 16, 8),
        ),
        _floats((1, 1, 4000)),
    ),
    "lstm": Case(lambda: Last(nn.LSTM, 32, 64), _floats((1, 30, 32))),
    "lstm_rows": Case(lambda: Last(nn.LSTM, 32, 128), _floats((8, 30, 32))),
    "lstm_both": Case(
        lambda: Last(nn.LSTM, 64, 128, every=True, num_layers=2, bidirectional=True),
        _floats((2, 40, 64)),
    ),
    "gru": Case(lambda: Last(nn.GRU, 32, 64), _floats((1, 30, 32))),
    "gru_both": Case(
        lambda: Last(nn.GRU, 64, 96, every=True, bidirectional=True), _floats((4, 30, 64))
    ),
    "elman": Case(lambda: Last(nn.RNN, 16, 32, nonlinearity="relu"), _floats((4, 20, 16))),
    "crnn": Case(Crnn, _floats((1, 1, 32, 100))),
    "translator": Case(Translator, _words(100, 2, 12)),
    "language_gru": Case(
        lambda: nn.Sequential(nn.Embedding(300, 64), Last(nn.GRU, 64, 128, every=True)),
        _words(300, 1, 32),
    ),
    "encoder": Case(
        lambda: nn.TransformerEncoderLayer(128, 8, 256, batch_first=True), _floats((2, 48, 128))
    ),
    "decoder": Case(
        lambda: nn.TransformerDecoderLayer(96, 4, 192, batch_first=True, norm_first=True),
        _floats((1, 20, 96), (1, 30, 96)),
    ),
    "encoder_decoder": Case(
        lambda: nn.Transformer(64, 4, 1, 1, 128, batch_first=True),
        _floats((1, 24, 64), (1, 16, 64)),
    ),
    "heads_masked": Case(
        Heads,
        lambda: (
            torch.randn(2, 10, 64),
            torch.randn(2, 20, 64),
            (torch.arange(20) > 14).float().expand(2, 20).contiguous(),
        ),
    ),
    "rotary": Case(Rotary, _floats((1, 48, 128))),
    "vision": Case(Vision, _floats((1, 3, 64, 64))),
    "mixer": Case(lambda: nn.Sequential(Mixer(), Mixer()), _floats((1, 64, 96))),
    "experts": Case(Experts, _floats((64, 64))),
    "chosen_experts": Case(ChosenExperts, _floats((16, 64))),
    "graph_attention": Case(
        Graph, lambda: (torch.randn(60, 16), (torch.rand(60, 60) > 0.8).float() + torch.eye(60))
    ),
    "messages": Case(Messages, lambda: (torch.randn(40, 16), torch.randint(40, (2, 160)))),
    "points": Case(Points, _floats((2, 3, 256))),
    "neighbours": Case(Neighbours, _floats((1, 128, 3))),
    "state_space": Case(State, _floats((1, 24, 32))),
    "fourier": Case(
        lambda: Lambda(lambda x: torch.view_as_real(torch.fft.rfft(x)).pow(2).sum(-1).sqrt()),
        _floats((2, 256)),
    ),
    "softsort": Case(
        lambda: Lambda(
            lambda x: torch.softmax(
                -(torch.sort(x, -1).values.unsqueeze(-1) - x.unsqueeze(-2)).abs(), -1
            )
        ),
        _floats((4, 24)),
    ),
    "windows": Case(
        lambda: Lambda(lambda x: x.unfold(1, 16, 8).mean(-1).cumsum(-1)), _floats((4, 256))
    ),
    "einsums": Case(
        lambda: Lambda(lambda a, b: torch.einsum("bij,bjk,bk->bi", a, b, b[:, 0])),
        _floats((2, 24, 32), (2, 32, 48)),
    ),
    "norms": Case(
        lambda: nn.Sequential(
            nn.LayerNorm(64),
            nn.Linear(64, 64),
            nn.RMSNorm(64),
            nn.Softplus(),
            nn.Linear(64, 8),
            nn.Softmin(-1),
        ),
        _floats((8, 64)),
    ),
}
"""Each with what it takes."""
