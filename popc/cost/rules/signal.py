"""Fourier transforms, as products with the matrix of the transform."""

from __future__ import annotations

from typing import Final

from popc.cost.planner import PLACED, ROWS
from popc.cost.rules.common import CostRule, per_scalar
from popc.cost.work import Work

__all__ = ["RULES"]


def _transform(work: Work) -> None:
    x, y = work.input(), work.result()
    length = max(work.integer("dft_length", work.integer("frame_length", 0)), 1)
    bins = max(length // 2 + 1, 1)
    rows = max(y.size // (2 * bins), 1)
    work.matmul(1, rows, length, 2 * bins, x.dtype, lie=(ROWS, PLACED))


RULES: Final[dict[str, CostRule]] = {
    "DFT": _transform,
    "MelWeightMatrix": per_scalar(20),
    "STFT": _transform,
}
