"""Parts of networks that attend and route."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

__all__ = [
    "ChosenExperts",
    "Experts",
    "Graph",
    "Heads",
    "Mixer",
    "Rotary",
    "Translator",
    "Vision",
]


class Translator(nn.Module):
    """An encoder, and some steps of a decoder that attends."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 48)
        self.encode, self.cell = nn.GRU(48, 64, batch_first=True), nn.GRUCell(48 + 64, 64)
        self.head = nn.Linear(64, 100)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        seen, state = self.encode(self.words(words))
        hidden, word = state[0], words[:, 0]
        scores = []
        for _ in range(4):
            weights = torch.softmax((seen @ hidden.unsqueeze(-1)).squeeze(-1), -1)
            found = (weights.unsqueeze(1) @ seen).squeeze(1)
            hidden = self.cell(torch.cat([self.words(word), found], -1), hidden)
            scores.append(self.head(hidden))
            word = scores[-1].argmax(-1)
        return torch.stack(scores, 1)


class Rotary(nn.Module):
    """A block of a language model: RMS norm, rotary positions, grouped heads, SwiGLU."""

    def __init__(self, width: int = 128, heads: int = 8, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.q, self.kv = (
            nn.Linear(width, width, bias=False),
            nn.Linear(width, 2 * groups * self.size, bias=False),
        )
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = (
            nn.Linear(width, 256),
            nn.Linear(width, 256),
            nn.Linear(256, width),
        )
        angles = torch.outer(
            torch.arange(64.0), 10000 ** (-torch.arange(0, self.size, 2) / self.size)
        )
        self.register_buffer("cos", angles.cos().repeat(1, 2))
        self.register_buffer("sin", angles.sin().repeat(1, 2))

    def _turn(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, -1)
        steps = x.shape[-2]
        return x * self.cos[:steps] + torch.cat([-second, first], -1) * self.sin[:steps]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, steps, width = x.shape
        y = self.norms[0](x)
        q = self.q(y).view(batch, steps, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(y).view(batch, steps, 2 * self.groups, self.size).transpose(1, 2).chunk(2, 1)
        k, v = (part.repeat_interleave(self.heads // self.groups, 1) for part in (k, v))
        y = functional.scaled_dot_product_attention(self._turn(q), self._turn(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, steps, width))
        y = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Vision(nn.Module):
    """A vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 96, 8, 8)
        self.token, self.places = (
            nn.Parameter(torch.zeros(1, 1, 96)),
            nn.Parameter(torch.randn(1, 65, 96)),
        )
        layer = nn.TransformerEncoderLayer(
            96, 4, 192, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(96, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(x.shape[0], -1, -1), y], 1) + self.places
        return self.head(self.body(y)[:, 0])


class Mixer(nn.Module):
    def __init__(self, tokens: int = 64, width: int = 96) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.across = nn.Sequential(nn.Linear(tokens, 128), nn.GELU(), nn.Linear(128, tokens))
        self.along = nn.Sequential(
            nn.Linear(width, 192), nn.GELU(approximate="tanh"), nn.Linear(192, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.across(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.norms[1](x))


class Experts(nn.Module):
    """The two best of eight experts for each token, all of them computed."""

    def __init__(self, width: int = 64, experts: int = 8) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up, self.down = (
            nn.Parameter(torch.randn(experts, width, 128) / 8),
            nn.Parameter(torch.randn(experts, 128, width) / 11),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.gate(x)
        best, chosen = scores.topk(2, -1)
        weights = torch.zeros_like(scores).scatter(-1, chosen, best.softmax(-1))
        y = torch.einsum("td,edf->tef", x, self.up).relu()
        return torch.einsum("tef,efd,te->td", y, self.down, weights)


class ChosenExperts(nn.Module):
    """The best expert of each token, its weights gathered."""

    def __init__(self, width: int = 64, experts: int = 8) -> None:
        super().__init__()
        self.gate, self.weights = (
            nn.Linear(width, experts),
            nn.Parameter(torch.randn(experts, width, width) / 8),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, best = self.gate(x).softmax(-1).max(-1)
        return weight.unsqueeze(-1) * torch.bmm(x.unsqueeze(1), self.weights[best]).squeeze(1)


class Graph(nn.Module):
    """Two layers of attention over the edges of a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 32), nn.Linear(32, 7)])
        self.scores = nn.ParameterList([nn.Parameter(torch.randn(2, size, 1)) for size in (32, 7)])

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        for layer, score in zip(self.layers, self.scores, strict=True):
            x = layer(x)
            weights = functional.leaky_relu(x @ score[0] + (x @ score[1]).T, 0.2)
            x = functional.elu(
                torch.softmax(weights.masked_fill(edges == 0, float("-inf")), -1) @ x
            )
        return x


class Heads(nn.Module):
    """Attention between two sequences, the second one with a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.attention(x, y, y, key_padding_mask=mask > 0, need_weights=False)[0]
