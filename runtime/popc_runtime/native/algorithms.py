"""Which of several algorithms computes an instruction: decided by its shape alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

__all__ = ["winograd_wins"]

_RESULT: Final = 4  # of a tile
_LEAST_CHANNELS: Final = 16
# Fewer tiles do not pay for fetching, or for transforming, the weights.
_LEAST_TILES: Final = 48


def winograd_wins(channels: int, result: Sequence[int]) -> bool:
    """Whether a 3 x 3 convolution takes less time by Winograd's algorithm.

    Whether the weights are known before the first run does not matter, nor how many images there
    are: results must not depend on where weights are kept, or on how a batch is divided.

    Args:
        channels: Of the input.
        result: [N, M, H, W].
    """
    tiles = prod(-(-size // _RESULT) for size in result[2:])
    return min(channels, result[1]) >= _LEAST_CHANNELS and tiles >= _LEAST_TILES
