"""Questions in a batch of packed rows: what ByteMLPerf's questions a second are in rows.

    python -m benchmarks.packed_rows

Its client for the IPU draws lengths of questions as max(1, min(384, normal(172, 172))), and has
PopRT pack them (byte_mlperf/backends/IPU: engine_poprt.py, interact_infos/bert-torch-fp32.json).
Each goes into the first row with room for it; a batch runs when one fits nowhere, or when it has as
many questions as the configuration allows: 40 for 20 rows.  What it allows for 40 rows is not
known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np

__all__ = ["questions_in_batch"]

_WIDTH = 384
_BATCHES = 2_000


def questions_in_batch(rows: int, most: int | None = None) -> float:
    """The mean number of questions in a batch of ``rows``, at most ``most`` of them."""
    lengths = _lengths()
    waiting = next(lengths)
    total = 0
    for _ in range(_BATCHES):
        room = [_WIDTH] * rows
        for packed in count():
            place = _first_fit(room, waiting)
            if place is None or packed == most:
                break
            room[place] -= waiting
            waiting = next(lengths)
        total += packed
    return total / _BATCHES


def _lengths() -> Iterator[int]:
    rng = np.random.default_rng(0)
    while True:
        yield from rng.normal(172, 172, 10_000).astype(int).clip(1, _WIDTH).tolist()


def _first_fit(room: Sequence[int], length: int) -> int | None:
    return next((place for place, left in enumerate(room) if left >= length), None)


def main() -> None:
    """Print questions in a batch, and rows a second for the rates that were measured."""
    for rows, most, rate in ((20, 40, 2867), (40, None, 3134)):
        found = questions_in_batch(rows, most)
        print(f"{rows} rows: {found:.1f} questions, {rate * rows / found:,.0f} rows/s")


if __name__ == "__main__":
    main()
