"""The decisions of the planner."""

from __future__ import annotations

from dataclasses import fields

from popc.cost.planner.methods import Method, VertexKind
from popc.cost.planner.problem import ConvProblem
from popc_runtime.ground.frozen import frozen

__all__ = ["Plan", "PlanStep", "Splits", "vertex_of"]


@frozen
class Splits:
    """Into how many parts each dimension is cut, over tiles and, for channels, over time."""

    groups: int
    batch: int
    rows: int
    columns: int
    in_channels: int
    out_channels: int
    kernel: int = 1
    serial_in: int = 1
    serial_out: int = 1

    @property
    def tiles(self) -> int:
        """The number of tiles that work."""
        field = self.batch * self.rows * self.columns
        return self.groups * field * self.in_channels * self.out_channels * self.kernel

    @property
    def serial(self) -> int:
        """The number of times that they do."""
        return self.serial_in * self.serial_out

    def __str__(self) -> str:
        shown = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return " ".join(f"{name}={count}" for name, count in shown if count > 1) or "one tile"


@frozen
class PlanStep:
    """One step of a plan, all its repetitions: cycles of an exchange and of what follows it.

    Attributes:
        name: "slice", "transpose", "transform", "convolve", "reduce", "cast" or "update".
        exchange: Cycles for data, without sync and set-up.
        compute: Cycles of the vertices, without their launch.
        exchanges, launches: How many exchanges and vertices follow each other.
        sources: Tiles that the busiest tile hears from.
    """

    name: str
    exchange: int
    compute: int
    exchanges: int
    launches: int
    sources: int = 0


@frozen
class Plan:
    """The plan for a problem, and its costs.

    Attributes:
        parts: The steps, in order.
        temporary_bytes: Of the busiest tile, while the plan runs.
        fits: Whether that is within the proportion of memory that was asked for.
        outputs_per_tile: Elements of the result on the busiest tile.
        channels_per_tile: Different output channels among them.
        method, splits, swapped, expanded, combined: What was decided.
    """

    method: Method
    splits: Splits
    parts: tuple[PlanStep, ...]
    temporary_bytes: int
    fits: bool
    outputs_per_tile: int
    channels_per_tile: int
    swapped: bool
    expanded: int
    combined: int = 1

    @property
    def block(self) -> int:
        """The output channels that lie side by side in the result; after a swap, its rows."""
        return self.method.out_group * self.method.conv_group

    def row_parts(self, columns: int) -> int:
        """The tiles that share a row of the result, of ``columns`` in all."""
        return -(-columns // max(self.channels_per_tile, 1))

    def __str__(self) -> str:
        extra = (" swapped" if self.swapped else "") + (
            f" expanded {self.expanded}" if self.expanded else ""
        )
        extra += f" combined {self.combined}" if self.combined > 1 else ""
        return f"{self.method}: {self.splits}{extra}"


def vertex_of(part: PlanStep, problem: ConvProblem, plan: Plan) -> str:
    """The name of the vertex of a step; AMP has one for a single kernel position."""
    kind = plan.method.kind
    flat = plan.expanded > 0 or problem.strides == (1, 1)
    single = flat and problem.positions in {1, plan.expanded}
    own = f"Conv {kind}" if single or kind is not VertexKind.AMP else f"Conv {kind} nx1"
    return _VERTICES.get(part.name, own)


_VERTICES = {
    "slice": "DynamicSlice",
    "transpose": "Transpose",
    "transform": "Copy",
    "reduce": "ReduceAdd",
    "cast": "Cast",
    "update": "DynamicSlice",
}
