"""The facts known about an op beside its arithmetic."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum, IntEnum
from typing import NamedTuple

from popc_runtime.ground.frozen import frozen, mutable, replace

__all__ = ["CallSite", "OpSettings", "ProductCut", "Recompute", "StepPart"]


class StepPart(IntEnum):
    """The part of a training step that an op belongs to, in order of time.

    Its operands come from the same part or from earlier ones.
    """

    FORWARD = 0  # leads to the loss; so does every op of a program that does not train
    ASIDE = 1  # computed by the model too, but not for the loss: metrics, running statistics
    BACKWARD = 2  # gradients
    UPDATE = 3  # new weights


class Recompute(Enum):
    """The decision if the backward pass computes the results of a forward op once more."""

    UNDEFINED = "undefined"
    CHECKPOINT = "checkpoint"  # no: they are kept
    RECOMPUTE = "recompute"  # yes
    RECOMPUTED = "recomputed"  # the op is such a repetition


@frozen
class ProductCut:
    """The way to make a product of matrices [..., m, k] and [..., k, n] of smaller ones.

    Attributes:
        mode: What is cut: "input_channels" (m), "reducing_dim" (k) or "output_channels" (n); of a
            lookup, "rows" of the table.
        factor: Into how many parts; it divides what is cut.
        keep_precision: Parts of a float16 sum, of the product or of a gradient, are added in
            float32, and rounded at the end.
    """

    mode: str
    factor: int
    keep_precision: bool = False


class CallSite(NamedTuple):
    """A call of the model.

    Attributes:
        callee: The name of the graph or function that is called.
        name: The name of the node that calls it.
        number: A number that no other call of the same graph has.
    """

    callee: str
    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.callee}.{self.number}"


@mutable
class OpSettings:
    """The facts known about an op beside its arithmetic.  Passes that replace an op carry it over.

    Ops may share one instance: to change the settings of an op, give it new ones.

    Attributes:
        origin: The ONNX node (or pass) that the op comes from; for a chain of elementwise ops
            those of its steps, with ", " between.
        schedule_priority: Among ops that could run next, the highest goes first, whatever that
            means for memory.  Only the order of priorities matters, not their size.
        exclude_patterns: Names of passes that leave the op as it is.
        virtual_graph, pipeline_stage, execution_phase: Where the op runs: on which chip, in which
            stage of a pipeline, between which transfers of weights; ``None``: wherever.
        batch_phase: Which part of a batch that is cut into parts the op works on.
        tile_set: "compute", or "io" for the tiles that talk with host and streaming memory.
        outline: Ops are only put into one subgraph with others that have the same words here.
        bins: Numbers by the name of a partition.  Of each partition, all ops with a number run
            before those with a higher one; an op without a number in it does not take part.
        cut: For a product of matrices or a lookup, how it is made of smaller ones.
        inplace: Priorities of operands, by their numbers, to be overwritten by the result.  What is
            not listed comes last; with 0 or less, an operand is never overwritten.
        location: What the user says about where results are kept, in the words of the options.
        call: The calls of the model that the op is part of, the outermost first; of an op that is
            such a call also that itself.  Ops of a call stay apart from others, and become a graph
            that is called in the end.
        available_memory: How much of a tile's memory temporary data may take; ``None``: what the
            options say.
        stochastic_rounding: Whether results are rounded at random; ``None``: as the options say.
    """

    origin: str = ""
    schedule_priority: float = 0.0
    exclude_patterns: tuple[str, ...] = ()
    virtual_graph: int | None = None
    pipeline_stage: int | None = None
    execution_phase: int | None = None
    batch_phase: int | None = None
    tile_set: str = "compute"
    outline: tuple[str, ...] = ()
    bins: tuple[tuple[str, int], ...] = ()
    part: StepPart = StepPart.FORWARD
    recompute: Recompute = Recompute.UNDEFINED
    cut: ProductCut | None = None
    inplace: tuple[tuple[int, float], ...] = ()
    location: str = ""
    call: tuple[CallSite, ...] = ()
    available_memory: float | None = None
    stochastic_rounding: bool | None = None

    @property
    def place(self) -> tuple[Hashable, ...]:
        """The place of the op, and how it rounds.  Ops that differ are never merged or fused."""
        return (
            self.virtual_graph,
            self.pipeline_stage,
            self.execution_phase,
            self.batch_phase,
            self.tile_set,
            self.call,
            self.stochastic_rounding,
        )

    def inherited(self) -> OpSettings:
        """The settings of ops of the backward pass for an op of the forward pass with these."""
        unknown = Recompute.UNDEFINED
        return replace(self, bins=(), recompute=unknown, cut=None, inplace=(), location="")

    def merged(self, other: OpSettings) -> OpSettings:
        """The settings of one op that takes the place of two equal ones."""
        own = self.recompute is not Recompute.UNDEFINED
        return replace(
            self,
            part=min(self.part, other.part),
            recompute=self.recompute if own else other.recompute,
        )

    def fused(self, *others: OpSettings, origin: str | None = None) -> OpSettings:
        """The settings of an op that also does what comes next; it gives results of the last.

        ``origin`` is what it comes from, if that is more than this op does.
        """
        last = others[-1]
        return replace(
            self,
            origin=self.origin if origin is None else origin,
            part=max(self.part, *(other.part for other in others)),
            recompute=last.recompute,
            inplace=(),
            location=last.location,
        )
