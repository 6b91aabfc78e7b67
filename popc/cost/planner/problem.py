"""The convolution that is to be planned; a matrix product is one with a single kernel position."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from popc.cost.formulas.numbers import BYTES, Count, ceil_div
from popc_runtime.ground.frozen import frozen

__all__ = [
    "PLACED",
    "ROWS",
    "TRANSPOSED",
    "TURNED",
    "ConvProblem",
    "OperandLayout",
    "matmul_problem",
]


@frozen
class OperandLayout:
    """The order of the elements of an operand before a plan's vertices get it.

    Vertices want blocks of as many input channels as they take at once, in the innermost place.

    Attributes:
        block: It lies in blocks of so many input channels already; 0 if it does not.
        groups: Conv groups that lie side by side, too, each with such a block.
        turned: Other elements lie between those of neighbouring channels.
        across: Such elements lie side by side in blocks of so many, which vertices may transpose.
        placed: It lies as the plan wants it, whatever that is: weights are laid out at load.
        straight: Turned, and what transposes it writes it as the plan wants it, if operands change
            places: poplin's fullyConnectedWeightTranspose.
    """

    block: int = 0
    groups: int = 1
    turned: bool = False
    across: int = 0
    placed: bool = False
    straight: bool = False

    @property
    def run(self) -> int:
        """Input channels that lie side by side; 0 for all of them, in rows."""
        return 1 if self.turned else self.block


PLACED: Final = OperandLayout(placed=True)
ROWS: Final = OperandLayout()
TURNED: Final = OperandLayout(turned=True)
TRANSPOSED: Final = OperandLayout(turned=True, straight=True)


@frozen
class ConvProblem:
    """A grouped convolution over a field of rows and columns.

    Axes before the last are taken together as rows.  ``kernel``, ``strides``, ``dilations`` and
    ``inputs`` (the input's field) are (rows, columns) like ``field``, the field of the result.

    Attributes:
        inputs_type, partials_type, output_type: "quarter", "half" or "float".
        in_channels, out_channels: Of one group.
        spread: Zeros are put between neighbouring inputs, so that they are so many places apart:
            a kernel position meets one in so many results.
        inputs_lie, weights_lie: The order of the operands' elements; what does not lie the way
            that a plan wants it has to be copied first.
        product: Of matrices, not a convolution with a single kernel position.
        backward: A gradient, for which operands that lie turned are transposed.
        swapped: The operands have changed places; for descriptions.
        expanded: The kernel positions that have become input channels, which multiplies the input;
            1 if only elements between strides have been left out, 0 if nothing has been done.
        combined: The conv groups that have become one, with zeros for weights between them.
    """

    inputs_type: str
    partials_type: str
    output_type: str
    groups: int
    batch: int
    field: tuple[int, int]
    in_channels: int
    out_channels: int
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    inputs: tuple[int, int] = (0, 0)
    spread: tuple[int, int] = (1, 1)
    inputs_lie: OperandLayout = PLACED
    weights_lie: OperandLayout = PLACED
    product: bool = False
    backward: bool = False
    swapped: bool = False
    expanded: int = 0
    combined: int = 1

    @property
    def positions(self) -> int:
        """Kernel positions."""
        return self.kernel[0] * self.kernel[1]

    @property
    def macs(self) -> int:
        """Multiplications; what falls on padding counts too."""
        field = self.field[0] * self.field[1] // (self.spread[0] * self.spread[1])
        outputs = self.batch * field * self.out_channels
        return self.groups * outputs * self.in_channels * self.positions

    @property
    def inputs_elements(self) -> int:
        """Elements of the input."""
        field = max(self.inputs[0], 1) * max(self.inputs[1], 1)
        return self.groups * self.batch * self.in_channels * field

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the operands."""
        return BYTES[self.inputs_type]

    def reach(self, axis: int, outputs: Count, taps: Count) -> Count:
        """Input rows, or columns, that ``outputs`` results read through ``taps`` of the kernel."""
        span = (outputs - 1) * self.strides[axis] + (taps - 1) * self.dilations[axis] + 1
        return np.minimum(ceil_div(span, self.spread[axis]), max(self.inputs[axis], 1))

    def nowhere_empty(self) -> ConvProblem:
        """With sizes of at least one, so that there is something to plan."""
        return replace(
            self,
            groups=max(self.groups, 1),
            batch=max(self.batch, 1),
            field=(max(self.field[0], 1), max(self.field[1], 1)),
            in_channels=max(self.in_channels, 1),
            out_channels=max(self.out_channels, 1),
        )

    def flattened(self) -> ConvProblem:
        """Without batch and rows if there is one kernel position: the field is a single row.

        Poplin's dimCanBeFlattened: not where windows are further apart than one place.
        """
        if self.positions != 1 or self.strides != (1, 1):
            return self
        width = self.batch * self.field[0] * self.field[1]
        return replace(
            self,
            batch=1,
            field=(1, width),
            inputs=(1, width),
            strides=(1, 1),
            dilations=(1, 1),
            spread=(1, 1),
        )

    def with_operands_swapped(self) -> ConvProblem:
        """The transposed product; for one kernel position and a flat field only."""
        return replace(
            self,
            field=(1, self.out_channels),
            inputs=(1, self.out_channels),
            out_channels=self.field[1],
            inputs_lie=self.weights_lie,
            weights_lie=self.inputs_lie,
            swapped=not self.swapped,
        )

    def with_kernel_in_channels(self, *, rows: bool) -> ConvProblem:
        """Kernel columns, and perhaps rows, as input channels: copies of the input, shifted."""
        taps = self.kernel[1] * (self.kernel[0] if rows else 1)
        return replace(
            self,
            in_channels=self.in_channels * taps,
            kernel=(1 if rows else self.kernel[0], 1),
            strides=(1 if rows else self.strides[0], 1),
            dilations=(1 if rows else self.dilations[0], 1),
            spread=(1 if rows else self.spread[0], 1),
            inputs=(self.field[0] if rows else self.inputs[0], self.field[1]),
            inputs_lie=OperandLayout(across=self.inputs_lie.across),
            expanded=max(self.expanded, 1) * taps,
        ).flattened()

    def with_groups_combined(self, count: int) -> ConvProblem:
        """``count`` conv groups as one: poplin's combineConvGroupsFactor."""
        lie = self.inputs_lie
        if not lie.placed and lie.groups % count == 0:
            lie = OperandLayout(lie.block * count, lie.groups // count)
        return replace(
            self,
            groups=ceil_div(self.groups, count),
            in_channels=self.in_channels * count,
            out_channels=self.out_channels * count,
            inputs_lie=lie,
            weights_lie=ROWS,
            combined=count,
        )


def matmul_problem(
    types: tuple[str, str, str],
    groups: int,
    rows: int,
    depth: int,
    columns: int,
    *,
    inputs_lie: OperandLayout = PLACED,
    weights_lie: OperandLayout = PLACED,
    backward: bool = False,
) -> ConvProblem:
    """``groups`` products [rows, depth] by [depth, columns]; types of inputs, partials, output."""
    return ConvProblem(
        *types,
        groups,
        1,
        (1, rows),
        depth,
        columns,
        inputs=(1, rows),
        inputs_lie=inputs_lie,
        weights_lie=weights_lie,
        product=True,
        backward=backward,
    )
