"""The state of random numbers as the words that PopART shows of it."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from popc_runtime.errors import UsageError

__all__ = ["rng_state_of", "state_of_rng"]

_HEADER: Final = 1  # word: the bytes that follow


def rng_state_of(state: Any, words: int) -> list[int]:
    """``state``, plain data, as ``words`` numbers of 32 bits (more if it needs more)."""
    data = zlib.compress(json.dumps(state, sort_keys=True).encode(), 9)
    padded = data + bytes(-len(data) % 4)
    found = [len(data), *np.frombuffer(padded, "<u4").tolist()]
    return found + [0] * (words - len(found))


def state_of_rng(words: Sequence[int]) -> Any:
    """Invert `rng_state_of`.

    Raises:
        UsageError: the numbers are none that it gave.
    """
    try:
        data = np.array(words[_HEADER:], "<u4").tobytes()[: words[0]]
        return json.loads(zlib.decompress(data))
    except (ValueError, OverflowError, zlib.error) as error:
        raise UsageError("the RNG state is none that getRNGState gave") from error
