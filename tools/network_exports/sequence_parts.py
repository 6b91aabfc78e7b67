"""Parts of networks of signals, sequences, sets and tables."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

__all__ = [
    "Bag",
    "Clicks",
    "Codes",
    "Crnn",
    "Flow",
    "Last",
    "Messages",
    "Neighbours",
    "Points",
    "Radiance",
    "Sine",
    "Spectrum",
    "State",
    "Wave",
]


class Wave(nn.Module):
    """Gated causal convolutions, ever wider apart."""

    def __init__(self, channels: int = 32, layers: int = 5) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, channels, 1)
        self.gates = nn.ModuleList(
            nn.Conv1d(channels, 2 * channels, 2, dilation=2**i) for i in range(layers)
        )
        self.outs = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(layers))
        self.last = nn.Conv1d(channels, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        skips = torch.zeros_like(x)
        for i, (gate, out) in enumerate(zip(self.gates, self.outs, strict=True)):
            signal, weight = gate(functional.pad(x, (2**i, 0))).chunk(2, 1)
            y = out(torch.tanh(signal) * torch.sigmoid(weight))
            x, skips = x + y, skips + y
        return self.last(functional.relu(skips))


class Last(nn.Module):
    """A recurrent network, and a layer on its last state or on all of them."""

    def __init__(
        self, kind: type[nn.Module], *sizes: int, every: bool = False, **more: Any
    ) -> None:
        super().__init__()
        self.body = kind(*sizes, batch_first=True, **more)
        self.head = nn.Linear(sizes[1] * (2 if more.get("bidirectional") else 1), 8)
        self.every = every

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)[0]
        return self.head(y if self.every else y[:, -1])


class Crnn(nn.Module):
    """A picture of a line of text, read from left to right."""

    def __init__(self) -> None:
        super().__init__()
        self.see = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d((2, 1)),
        )
        self.read = nn.LSTM(32 * 8, 64, bidirectional=True)
        self.head = nn.Linear(128, 37)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.see(x).flatten(1, 2).permute(2, 0, 1)
        return functional.log_softmax(self.head(self.read(y)[0]), -1)


class Messages(nn.Module):
    """Sums over the edges that lead to a node."""

    def __init__(self) -> None:
        super().__init__()
        self.edge, self.node = nn.Linear(32, 32), nn.Linear(48, 16)

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        messages = functional.relu(self.edge(torch.cat([x[ends[0]], x[ends[1]]], -1)))
        sums = torch.zeros(x.shape[0], 32).index_add(0, ends[1], messages)
        return self.node(torch.cat([x, sums], -1))


class Points(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Sequential(
            nn.Conv1d(3, 64, 1), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 128, 1), nn.ReLU()
        )
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.each(x).max(2).values)


class Neighbours(nn.Module):
    """Each point and what its eight nearest ones have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.edges = nn.Linear(6, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        near = torch.cdist(x, x).topk(8, largest=False).indices
        others = torch.gather(
            x.unsqueeze(1).expand(-1, x.shape[1], -1, -1),
            2,
            near.unsqueeze(-1).expand(-1, -1, -1, 3),
        )
        centre = x.unsqueeze(2).expand_as(others)
        return functional.relu(self.edges(torch.cat([centre, others - centre], -1))).amax(2)


class Clicks(nn.Module):
    """Wide and deep: embeddings, their products in pairs, and numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(200, 16) for _ in range(6))
        self.deep = nn.Sequential(nn.Linear(15 + 13, 64), nn.ReLU(), nn.Linear(64, 1))
        self.wide = nn.Linear(13, 1)
        self.register_buffer("pairs", torch.triu_indices(6, 6, 1))

    def forward(self, words: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        rows = torch.stack([table(words[:, i]) for i, table in enumerate(self.tables)], 1)
        products = rows @ rows.transpose(1, 2)
        pairs = products[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.wide(numbers) + self.deep(torch.cat([pairs, numbers], 1)))


class Bag(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(500, 32, mode=mode), nn.Linear(32, 4)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.bag(words))


class Codes(nn.Module):
    """The nearest vectors of a code book."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(64, 16), nn.Linear(16, 64)
        self.book = nn.Embedding(128, 16)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = self.encode(x)
        far = (
            z.pow(2).sum(-1, keepdim=True)
            - 2 * z @ self.book.weight.T
            + self.book.weight.pow(2).sum(-1)
        )
        codes = far.argmin(-1)
        return self.decode(self.book(codes)), codes


class Flow(nn.Module):
    """Couplings of halves, and the logarithm of their determinant."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 16)) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = x.chunk(2, -1)
        total = torch.zeros(x.shape[0])
        for net in self.nets:
            scale, shift = net(a).chunk(2, -1)
            scale = torch.tanh(scale)
            a, b = b * torch.exp(scale) + shift, a
            total = total + scale.sum(-1)
        return torch.cat([a, b], -1), total


class Radiance(nn.Module):
    """Colours along rays: positions as waves, and what lies in front."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(36, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
        )
        self.register_buffer("waves", 2.0 ** torch.arange(6))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        angles = (points.unsqueeze(-1) * self.waves).flatten(-2)
        raw = self.net(torch.cat([angles.sin(), angles.cos()], -1))
        solid = 1 - torch.exp(-functional.softplus(raw[..., 3]) * 0.1)
        through = torch.exp(torch.cumsum(torch.log(1 - solid + 1e-6), -1))
        return ((solid * through).unsqueeze(-1) * torch.sigmoid(raw[..., :3])).sum(-2)


class State(nn.Module):
    """A state space, step by step."""

    def __init__(self, width: int = 32, states: int = 8) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.randn(width, states))
        self.into, self.out, self.step = (
            nn.Linear(width, states),
            nn.Linear(width, states),
            nn.Linear(width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        step, into, out = functional.softplus(self.step(x)), self.into(x), self.out(x)
        state = torch.zeros(x.shape[0], x.shape[2], self.decay.shape[1])
        results = []
        for t in range(x.shape[1]):
            kept = torch.exp(-step[:, t].unsqueeze(-1) * self.decay.exp())
            state = state * kept + (step[:, t] * x[:, t]).unsqueeze(-1) * into[:, t].unsqueeze(1)
            results.append((state * out[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(results, 1)


class Spectrum(nn.Module):
    """A signal becomes a log-mel picture by convolutions with waves."""

    def __init__(self) -> None:
        super().__init__()
        n = torch.arange(128.0)
        waves = torch.outer(torch.arange(33.0), n) * (2 * math.pi / 128)
        window = torch.hann_window(128)
        self.register_buffer("real", (waves.cos() * window).unsqueeze(1))
        self.register_buffer("imaginary", (waves.sin() * window).unsqueeze(1))
        self.register_buffer("bands", torch.rand(20, 33))
        self.head = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 9 * 32, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.pad(x.unsqueeze(1), (64, 64), mode="reflect")
        power = (
            functional.conv1d(x, self.real, stride=64) ** 2
            + functional.conv1d(x, self.imaginary, stride=64) ** 2
        )
        return self.head(torch.log(self.bands @ power + 1e-6).unsqueeze(1))


class Sine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(30 * x)
