"""Parts of networks of pictures."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

__all__ = [
    "ConvNext",
    "Dense",
    "Gate",
    "Join",
    "NonLocal",
    "Pools",
    "Pyramid",
    "Shuffle",
    "Sum",
    "Turned",
    "UNet",
    "Yolo",
    "basic",
    "bottleneck",
    "conv",
    "head",
    "inverted",
    "separable",
]


def conv(
    into: int, out: int, size: int = 3, act: type[nn.Module] | None = nn.ReLU, **more: Any
) -> nn.Sequential:
    """A convolution of the same size, batch normalisation, and an activation."""
    more.setdefault("padding", size // 2)
    layers: list[nn.Module] = [nn.Conv2d(into, out, size, bias=False, **more), nn.BatchNorm2d(out)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Sum(nn.Module):
    """x + body(x), or shortcut(x) + body(x), and what follows."""

    def __init__(
        self, body: nn.Module, shortcut: nn.Module | None = None, after: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.body, self.shortcut, self.after = (
            body,
            shortcut or nn.Identity(),
            after or nn.Identity(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.shortcut(x) + self.body(x))


class Join(nn.Module):
    """The results of branches, side by side."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class Gate(nn.Module):
    """Squeeze and excite."""

    def __init__(
        self, channels: int, act: type[nn.Module] = nn.ReLU, gate: type[nn.Module] = nn.Sigmoid
    ) -> None:
        super().__init__()
        inner = max(channels // 4, 4)
        self.weights = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, inner, 1),
            act(),
            nn.Conv2d(inner, channels, 1),
            gate(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weights(x)


def head(channels: int, classes: int = 10) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]


def basic(into: int, out: int, stride: int = 1) -> nn.Module:
    body = nn.Sequential(conv(into, out, stride=stride), conv(out, out, act=None))
    short = None if stride == 1 and into == out else conv(into, out, 1, None, stride=stride)
    return Sum(body, short, nn.ReLU())


def bottleneck(into: int, inner: int, out: int, stride: int = 1, groups: int = 1) -> nn.Module:
    body = nn.Sequential(
        conv(into, inner, 1),
        conv(inner, inner, stride=stride, groups=groups),
        conv(inner, out, 1, None),
    )
    short = None if stride == 1 and into == out else conv(into, out, 1, None, stride=stride)
    return Sum(body, short, nn.ReLU())


def inverted(
    into: int,
    out: int,
    act: type[nn.Module],
    *,
    stride: int = 1,
    size: int = 3,
    gated: bool = False,
) -> nn.Module:
    inner = 4 * into
    body = nn.Sequential(
        conv(into, inner, 1, act),
        conv(inner, inner, size, act, stride=stride, groups=inner),
        *([Gate(inner, nn.ReLU, nn.Hardsigmoid)] if gated else []),
        conv(inner, out, 1, None),
    )
    return Sum(body) if stride == 1 and into == out else body


def separable(into: int, out: int, stride: int = 1) -> nn.Module:
    return nn.Sequential(conv(into, into, groups=into, stride=stride), conv(into, out, 1))


class Dense(nn.Module):
    def __init__(self, channels: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(channels + i * growth),
                nn.ReLU(),
                nn.Conv2d(channels + i * growth, growth, 3, padding=1),
            )
            for i in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


class Shuffle(nn.Module):
    """Half of the channels pass, half are convolved, and both are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.body = nn.Sequential(
            conv(half, half, 1), conv(half, half, act=None, groups=half), conv(half, half, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, 1)
        joined = torch.cat([left, self.body(right)], 1)
        batch, channels, height, width = joined.shape
        return (
            joined.view(batch, 2, channels // 2, height, width)
            .transpose(1, 2)
            .reshape(batch, channels, height, width)
        )


class ConvNext(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depth = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.up, self.down = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(functional.gelu(self.up(y)))).permute(0, 3, 1, 2)


class UNet(nn.Module):
    def __init__(self, up: str) -> None:
        super().__init__()
        self.first, self.second, self.third = conv(3, 16), conv(16, 32), conv(32, 64)
        self.up = (
            nn.ConvTranspose2d(64, 32, 2, 2)
            if up == "transposed"
            else nn.Sequential(
                nn.Upsample(
                    scale_factor=2, mode=up, **({} if up == "nearest" else {"align_corners": False})
                ),
                nn.Conv2d(64, 32, 1),
            )
        )
        self.join, self.last = conv(64, 32), nn.Conv2d(48, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.first(x)
        b = self.second(functional.max_pool2d(a, 2))
        c = self.third(functional.max_pool2d(b, 2))
        d = self.join(torch.cat([self.up(c), b], 1))
        d = functional.interpolate(d, size=a.shape[2:], mode="bilinear", align_corners=True)
        return self.last(torch.cat([d, a], 1))


class Pyramid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            [conv(3, 16, stride=2), conv(16, 32, stride=2), conv(32, 64, stride=2)]
        )
        self.sides = nn.ModuleList([nn.Conv2d(size, 32, 1) for size in (16, 32, 64)])
        self.smooth = nn.Conv2d(32, 32, 3, padding=1)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        levels = []
        for stage, side in zip(self.stages, self.sides, strict=True):
            x = stage(x)
            levels.append(side(x))
        for i in (1, 0):
            levels[i] = levels[i] + functional.interpolate(
                levels[i + 1], scale_factor=2.0, mode="nearest"
            )
        return [self.smooth(level) for level in levels]


class Turned(nn.Module):
    """A spatial transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Sequential(
            nn.Conv2d(1, 8, 7), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 11 * 11, 6)
        )
        self.rest = nn.Sequential(
            nn.Conv2d(1, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * 12 * 12, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = functional.affine_grid(
            self.place(x).view(-1, 2, 3), list(x.shape), align_corners=False
        )
        return self.rest(functional.grid_sample(x, grid, align_corners=False))


class NonLocal(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = conv(3, channels, stride=2)
        self.three = nn.Conv2d(channels, 3 * channels // 2, 1)
        self.out = nn.Conv2d(channels // 2, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        q, k, v = self.three(x).flatten(2).chunk(3, 1)
        y = torch.softmax(q.transpose(1, 2) @ k, -1) @ v.transpose(1, 2)
        return x + self.out(y.transpose(1, 2).reshape(x.shape[0], -1, *x.shape[2:]))


class Pools(nn.Module):
    """A pyramid of adaptive pools."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.last = conv(3, 32, stride=4), nn.Linear(32 * (16 + 4 + 1), 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.last(
            torch.cat([functional.adaptive_max_pool2d(x, n).flatten(1) for n in (4, 2, 1)], 1)
        )


class Yolo(nn.Module):
    """Boxes of one scale, decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(3, 16, 3, nn.SiLU, stride=4),
            conv(16, 64, 3, nn.SiLU, stride=4),
            nn.Conv2d(64, 3 * 9, 1),
        )
        cells = torch.stack(torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="xy"), -1)
        self.register_buffer("cells", cells.view(1, 1, 8, 8, 2))
        self.register_buffer(
            "anchors", torch.tensor([[10.0, 13], [33, 23], [62, 45]]).view(1, 3, 1, 1, 2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x).view(x.shape[0], 3, 9, 8, 8).permute(0, 1, 3, 4, 2).sigmoid()
        place = (y[..., :2] * 2 - 0.5 + self.cells) * 16
        size = (y[..., 2:4] * 2) ** 2 * self.anchors
        return torch.cat([place, size, y[..., 4:]], -1).view(x.shape[0], -1, 9)
