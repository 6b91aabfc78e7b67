"""Places of the rows that taps across rows read, in the expanded input of a convolution."""

from __future__ import annotations

from dataclasses import dataclass, replace

from popc_runtime.kernels.parts.conv_plane import Plane
from popc_runtime.kernels.parts.windows import WindowAxis

__all__ = ["RowLayout", "row_layout"]


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The places of the input's rows in S.

    Attributes:
        strips: Each holds every ``stride``-th row from another one on: the taps across rows that
            differ by a multiple of the stride read the same strip.
        reach: Rows that a strip holds beyond those of the block.
        taps: For each product, its strip and its first row in there.
    """

    strips: tuple[WindowAxis, ...]
    reach: tuple[int, ...]
    taps: tuple[tuple[int, int], ...]

    def rows(self, block: int) -> int:
        """Rows of S for ``block`` rows of output."""
        return sum(block + reach for reach in self.reach)

    def offsets(self, block: int) -> list[int]:
        """Row of S at which each product begins, if strips are ``block`` rows long."""
        starts = [sum(block + reach for reach in self.reach[:i]) for i in range(len(self.strips))]
        return [starts[strip] + row for strip, row in self.taps]


def row_layout(plane: Plane) -> RowLayout:
    """The fewest strips that serve all taps across rows."""
    rows = plane.rows
    taps = [tap * rows.dilation for tap in range(rows.kernel)]
    if plane.folded:  # one product: strips are the taps, each with its own rows of operand
        strips = tuple(_strip(rows, tap, 0) for tap in taps)
        return RowLayout(strips, (0,) * len(strips), ((0, 0),))
    phases = sorted({tap % rows.stride for tap in taps})
    reach = tuple(max(t // rows.stride for t in taps if t % rows.stride == p) for p in phases)
    strips = tuple(_strip(rows, p, more) for p, more in zip(phases, reach, strict=True))
    places = tuple((phases.index(tap % rows.stride), tap // rows.stride) for tap in taps)
    return RowLayout(strips, reach, places)


def _strip(rows: WindowAxis, tap: int, reach: int) -> WindowAxis:
    """The rows that ``tap`` reads, as windows of one row, and ``reach`` more."""
    return replace(rows, kernel=1, begin=rows.begin - tap, out=rows.out + reach)
