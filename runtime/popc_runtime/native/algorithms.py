"""Which of several algorithms computes an instruction: decided by its shape alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

__all__ = ["winograd_wins"]

_RESULT: Final = 4  # of a tile
_LEAST_CHANNELS: Final = 32
# Up to so many weights in each of the 36 matrices they stay in the caches.
_FEW_WEIGHTS: Final = 40_000
# Fewer tiles do not pay for fetching, or for transforming, the weights.
_LEAST_TILES: Final = {"cached": 4, "fetched": 32, "transformed": 48}


def winograd_wins(channels: int, result: Sequence[int], *, constant: bool) -> bool:
    """Whether a 3 x 3 convolution takes less time by Winograd's algorithm.

    Args:
        channels: Of the input.
        result: [N, M, H, W].
        constant: Whether the weights are transformed before the first run.
    """
    tiles = result[0] * prod(-(-size // _RESULT) for size in result[2:])
    weights = "transformed"
    if constant:
        weights = "cached" if channels * result[1] <= _FEW_WEIGHTS else "fetched"
    return min(channels, result[1]) >= _LEAST_CHANNELS and tiles >= _LEAST_TILES[weights]
