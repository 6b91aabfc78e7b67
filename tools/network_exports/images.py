"""Networks of pictures, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import nn

from tools.network_exports.case import Case, Lambda
from tools.network_exports.image_parts import (
    ConvNext,
    Dense,
    Gate,
    Join,
    NonLocal,
    Pools,
    Pyramid,
    Shuffle,
    Sum,
    Turned,
    UNet,
    Yolo,
    basic,
    bottleneck,
    conv,
    head,
    inverted,
    separable,
)

__all__ = ["IMAGES"]


def _picture(*shape: int) -> Callable[[], tuple[torch.Tensor, ...]]:
    return lambda: (torch.randn(*shape),)


_SQUARE: Final = _picture(1, 3, 64, 64)
_LARGE: Final = _picture(1, 3, 128, 128)


def _generator() -> nn.Module:
    def up(into: int, out: int, stride: int = 2) -> list[nn.Module]:
        return [
            nn.ConvTranspose2d(into, out, 4, stride, 1 if stride > 1 else 0, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
        ]

    return nn.Sequential(
        *up(64, 128, 1), *up(128, 64), *up(64, 32), nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh()
    )


def _style() -> nn.Module:
    block = nn.Sequential(
        nn.ReflectionPad2d(1), nn.Conv2d(32, 32, 3), nn.InstanceNorm2d(32, affine=True), nn.ReLU()
    )
    return nn.Sequential(
        nn.ReflectionPad2d(4),
        nn.Conv2d(3, 32, 9, 2),
        nn.InstanceNorm2d(32, affine=True),
        nn.ReLU(),
        Sum(block),
        nn.Upsample(scale_factor=2),
        nn.ReflectionPad2d(1),
        nn.Conv2d(32, 3, 3),
    )


IMAGES: Final[dict[str, Case]] = {
    "lenet": Case(
        lambda: nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 84),
            nn.Tanh(),
            nn.Linear(84, 10),
        ),
        _picture(1, 1, 28, 28),
    ),
    "vgg": Case(
        lambda: nn.Sequential(
            conv(3, 32),
            conv(32, 32),
            nn.MaxPool2d(2),
            conv(32, 64),
            conv(64, 64),
            nn.MaxPool2d(2),
            *head(64),
        ),
        _SQUARE,
    ),
    "resnet": Case(
        lambda: nn.Sequential(
            conv(3, 32, 7, stride=2),
            nn.MaxPool2d(3, 2, 1),
            basic(32, 32),
            basic(32, 64, 2),
            basic(64, 128, 2),
            *head(128),
        ),
        _LARGE,
    ),
    "bottleneck": Case(
        lambda: nn.Sequential(
            conv(3, 32, stride=2),
            bottleneck(32, 16, 64),
            bottleneck(64, 32, 128, 2),
            *head(128),
        ),
        _LARGE,
    ),
    "resnext": Case(
        lambda: nn.Sequential(
            conv(3, 32, stride=2),
            bottleneck(32, 32, 64, 1, 8),
            bottleneck(64, 64, 128, 2, 16),
            *head(128),
        ),
        _LARGE,
    ),
    "densenet": Case(
        lambda: nn.Sequential(
            conv(3, 16, stride=2),
            Dense(16, 12, 4),
            nn.AvgPool2d(2),
            Dense(64, 12, 4),
            *head(112),
        ),
        _SQUARE,
    ),
    "inception": Case(
        lambda: nn.Sequential(
            conv(3, 32, stride=2),
            Join(
                conv(32, 16, 1),
                nn.Sequential(conv(32, 16, 1), conv(16, 24)),
                nn.Sequential(conv(32, 8, 1), conv(8, 16, 5)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(32, 8, 1)),
            ),
            *head(64),
        ),
        _LARGE,
    ),
    "squeezenet": Case(
        lambda: nn.Sequential(
            nn.Conv2d(3, 32, 3, 2),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            nn.Conv2d(32, 16, 1),
            nn.ReLU(),
            Join(nn.Conv2d(16, 64, 1), nn.Conv2d(16, 64, 3, padding=1)),
            nn.ReLU(),
            *head(128),
        ),
        _LARGE,
    ),
    "mobilenet_v1": Case(
        lambda: nn.Sequential(
            conv(3, 16, stride=2),
            separable(16, 32),
            separable(32, 64, 2),
            separable(64, 128, 2),
            *head(128),
        ),
        _LARGE,
    ),
    "mobilenet_v2": Case(
        lambda: nn.Sequential(
            conv(3, 16, 3, nn.ReLU6, stride=2),
            inverted(16, 24, nn.ReLU6, stride=2),
            inverted(24, 24, nn.ReLU6),
            *head(24),
        ),
        _LARGE,
    ),
    "mobilenet_v3": Case(
        lambda: nn.Sequential(
            conv(3, 16, 3, nn.Hardswish, stride=2),
            inverted(16, 24, nn.Hardswish, stride=2, gated=True),
            inverted(24, 24, nn.Hardswish, size=5, gated=True),
            *head(24),
        ),
        _LARGE,
    ),
    "efficientnet": Case(
        lambda: nn.Sequential(
            conv(3, 16, 3, nn.SiLU, stride=2),
            inverted(16, 24, nn.SiLU, stride=2, size=5),
            Gate(24, nn.SiLU),
            inverted(24, 24, nn.SiLU),
            *head(24),
        ),
        _LARGE,
    ),
    "shufflenet": Case(
        lambda: nn.Sequential(conv(3, 48, stride=2), Shuffle(48), Shuffle(48), *head(48)), _LARGE
    ),
    "convnext": Case(
        lambda: nn.Sequential(nn.Conv2d(3, 48, 4, 4), ConvNext(48), ConvNext(48), *head(48)), _LARGE
    ),
    "group_norm": Case(
        lambda: nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1),
            nn.GroupNorm(8, 32),
            nn.SiLU(),
            nn.Conv2d(32, 64, 3, 2, 1),
            nn.GroupNorm(8, 64),
            nn.SiLU(),
            *head(64),
        ),
        _LARGE,
    ),
    "unet_transposed": Case(lambda: UNet("transposed"), _SQUARE),
    "unet_bilinear": Case(lambda: UNet("bilinear"), _SQUARE),
    "unet_nearest": Case(lambda: UNet("nearest"), _SQUARE),
    "pyramid": Case(Pyramid, _LARGE),
    "aspp": Case(
        lambda: nn.Sequential(
            conv(3, 32, stride=4),
            Join(*(conv(32, 16, dilation=d, padding=d) for d in (1, 2, 4))),
            nn.Conv2d(48, 2, 1),
            nn.Upsample(scale_factor=4, mode="bilinear"),
        ),
        _LARGE,
    ),
    "pixel_shuffle": Case(
        lambda: nn.Sequential(
            nn.Conv2d(1, 64, 5, padding=2),
            nn.Tanh(),
            nn.Conv2d(64, 32, 3, padding=1),
            nn.Tanh(),
            nn.Conv2d(32, 9, 3, padding=1),
            nn.PixelShuffle(3),
        ),
        _picture(1, 1, 64, 64),
    ),
    "generator": Case(_generator, _picture(1, 64, 1, 1)),
    "discriminator": Case(
        lambda: nn.Sequential(
            nn.Conv2d(3, 32, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(32, 64, 4, 2, 1),
            nn.InstanceNorm2d(64),
            nn.LeakyReLU(0.2),
            nn.Conv2d(64, 1, 4),
        ),
        _SQUARE,
    ),
    "style_transfer": Case(_style, _LARGE),
    "spatial_transformer": Case(Turned, _picture(2, 1, 28, 28)),
    "non_local": Case(lambda: NonLocal(32), _SQUARE),
    "spatial_pyramid": Case(Pools, _LARGE),
    "yolo_head": Case(Yolo, _LARGE),
    "local_response": Case(
        lambda: nn.Sequential(
            nn.Conv2d(3, 32, 11, 4, 2),
            nn.ReLU(),
            nn.LocalResponseNorm(5),
            nn.MaxPool2d(3, 2),
            *head(32),
        ),
        _LARGE,
    ),
    "prelu": Case(
        lambda: nn.Sequential(
            nn.Conv2d(3, 16, 3),
            nn.PReLU(16),
            nn.Conv2d(16, 32, 3, 2),
            nn.PReLU(),
            nn.Conv2d(32, 32, 3, 2),
            nn.Mish(),
            *head(32),
        ),
        _LARGE,
    ),
    "unfold": Case(
        lambda: nn.Sequential(
            nn.Unfold(4, stride=4),
            Lambda(lambda x: x.transpose(1, 2)),
            nn.Linear(48, 64),
            nn.GELU(),
            nn.Linear(64, 10),
        ),
        _SQUARE,
    ),
    "video": Case(
        lambda: nn.Sequential(
            nn.Conv3d(3, 16, 3, padding=1),
            nn.BatchNorm3d(16),
            nn.ReLU(),
            nn.MaxPool3d(2),
            nn.Conv3d(16, 32, (3, 1, 1), padding=(1, 0, 0)),
            nn.ReLU(),
            nn.AdaptiveAvgPool3d(1),
            nn.Flatten(),
            nn.Linear(32, 5),
        ),
        _picture(1, 3, 8, 32, 32),
    ),
}
"""Each with the pictures that it takes."""
