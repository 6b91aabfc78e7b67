"""The ops of a graph that are cut along the batch, and the way to cut them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from typing import Final, TypeAlias

from popc.ir import Graph, Op, Tensor, TensorType
from popc.ops import OPS
from popc.ops.build import infer_types
from popc.options import BatchOptions
from popc.transforms.batch_serialization.cut import Case, Cut, with_dim
from popc.transforms.batch_serialization.rules import cut_op
from popc_runtime.errors import ModelError
from popc_runtime.ground.frozen import frozen, mutable

__all__ = ["Analysis", "Context", "Crossing", "analyse", "part_type", "sound_cut"]

# Where an op runs, as far as a change of it keeps parts from crossing.
Context: TypeAlias = tuple[int | None, ...]

_PASSING: Final = ("Boundary", "IpuCopy")  # what stands where the place changes


@frozen
class Crossing:
    """The changes of place that parts do not cross."""

    virtual_graph: bool = True
    execution_phase: bool = True
    pipeline_stage: bool = True

    @classmethod
    def of(cls, options: BatchOptions) -> Crossing:
        """The crossing that the options describe."""
        return cls(
            options.batch_serialization_concat_on_virtual_graph_change,
            options.batch_serialization_concat_on_execution_phase_change,
            options.batch_serialization_concat_on_pipeline_stage_change,
        )

    def context(self, op: Op) -> Context:
        """The context of ``op``: parts do not go from one to another."""
        settings = op.settings
        return (
            settings.virtual_graph if self.virtual_graph else None,
            settings.execution_phase if self.execution_phase else None,
            settings.pipeline_stage if self.pipeline_stage else None,
        )


@mutable
class Analysis:
    """The facts about the ops of one graph.

    Attributes:
        parts: How many parts there are.
        crossing: What parts do not cross.
        barriers: Tensors that are put together in any case.
        cuts: How ops are cut, in topological order.
        whole: Ops with a batch that stay whole, and why.
        axes: Along which axis a tensor is, or could be, cut.
    """

    parts: int
    crossing: Crossing
    barriers: Collection[Tensor] = ()
    cuts: dict[Op, Cut] = field(default_factory=dict[Op, Cut])
    whole: dict[Op, str] = field(default_factory=dict[Op, str])
    axes: dict[Tensor, int] = field(default_factory=dict[Tensor, int])

    def place(self, tensor: Tensor) -> int | None:
        """Along which axis the parts of a cut op's result lie; ``None`` if there are none."""
        op = tensor.producer
        cut = self.cuts.get(op) if op is not None else None
        if op is None or cut is None:
            return None
        place = cut.results[op.outputs.index(tensor)]
        return place if isinstance(place, int) else None

    def leads_elsewhere(self, op: Op) -> bool:
        """True if ``op`` brings its operand to where parts do not cross to."""
        here = self.crossing.context(op)
        users = (user for tensor in op.outputs for user in tensor.uses)
        return op.op_type in _PASSING and any(self.crossing.context(user) != here for user in users)

    def crosses(self, tensor: Tensor, reader: Op) -> bool:
        """True if ``reader``, which is cut, reads the parts that a cut op makes of ``tensor``."""
        op = tensor.producer
        place = self.place(tensor)
        if op is None or place is None or reader not in self.cuts or tensor in self.barriers:
            return False
        axes = {
            axis
            for axis, operand in zip(self.cuts[reader].operands, reader.inputs, strict=True)
            if operand is tensor
        }
        return axes == {place} and self.crossing.context(op) == self.crossing.context(reader)


def analyse(
    graph: Graph,
    batch: Mapping[Tensor, int],
    parts: int,
    crossing: Crossing,
    *,
    barriers: Collection[Tensor] = (),
    excluded: Collection[Op] = (),
) -> Analysis:
    """Follow the batch from ``batch``, the inputs that have one, through the ops of ``graph``.

    Args:
        graph: The graph.
        batch: The batch axes of inputs.
        parts: How many parts there are.
        crossing: What parts do not cross.
        barriers: Tensors that are put together in any case.
        excluded: Ops that stay whole because the user says so.
    """
    found = Analysis(parts, crossing, barriers, axes=dict(batch))
    for op in graph.topological():
        axes = tuple(None if input_ is None else found.axes.get(input_) for input_ in op.inputs)
        if all(axis is None for axis in axes):
            continue
        cut: Cut | str = "it is excluded"
        if op not in excluded:
            cut = sound_cut(Case(op, axes, parts))
        if isinstance(cut, Cut) and not found.leads_elsewhere(op):
            found.cuts[op] = cut
            places = zip(op.outputs, cut.results, strict=True)
            found.axes.update((tensor, place) for tensor, place in places if isinstance(place, int))
            continue
        if isinstance(cut, str):
            found.whole[op] = cut
        found.axes.update(_likely_axes(op, axes))
    _drop_idle(found)
    return found


def part_type(type_: TensorType, axis: int | None, parts: int) -> TensorType:
    """The type of a part; that of the whole if there is no axis."""
    if axis is None:
        return type_
    return type_.with_shape(with_dim(type_.shape, axis, type_.shape[axis] // parts))


def sound_cut(case: Case) -> Cut | str:
    """The cut, if every part of it is an op of the right types."""
    cut = cut_op(case)
    if isinstance(cut, str):
        return cut
    op, parts = case.op, case.parts
    pairs = [*zip(op.inputs, cut.operands, strict=True), *zip(op.outputs, cut.results, strict=True)]
    for tensor, place in pairs:
        if tensor is not None and isinstance(place, int):
            dim = tensor.type.shape[place]
            if not dim or dim % parts:
                return f"dimension {place} of {list(tensor.type.shape)} has no {parts} parts"
    operands = [
        None if tensor is None else part_type(tensor.type, axis, parts)
        for tensor, axis in zip(op.inputs, cut.operands, strict=True)
    ]
    wanted = tuple(
        part_type(tensor.type, place if isinstance(place, int) else None, parts)
        for tensor, place in zip(op.outputs, cut.results, strict=True)
    )
    try:
        types = infer_types(op.op_type, operands, {**op.attributes, **cut.attributes})
    except ModelError as error:
        return f"a part of it would be wrong: {error.message}"
    return cut if types == wanted else "a part of it would be of another type"


def _likely_axes(op: Op, axes: tuple[int | None, ...]) -> Iterator[tuple[Tensor, int]]:
    """The likely batch axes of an op's results; whatever this says, results stay the same."""
    sizes = (
        (axis, tensor.type.shape[axis])
        for tensor, axis in zip(op.inputs, axes, strict=True)
        if tensor is not None and axis is not None
    )
    axis, size = next(sizes)
    for tensor in op.outputs:
        if axis < tensor.type.rank and tensor.type.shape[axis] == size:
            yield tensor, axis


def _drop_idle(found: Analysis) -> None:
    """Leave ops whole that hang together and do no work: cutting views saves nothing."""
    groups = _groups(found)
    for group in groups:
        if all(OPS[op.op_type].view is not None for op in group if op.op_type in OPS):
            for op in group:
                del found.cuts[op]


def _groups(found: Analysis) -> list[list[Op]]:
    """Cut ops, together with those whose parts they read."""
    group_of: dict[Op, list[Op]] = {}
    for op in found.cuts:
        own = [op]
        group_of[op] = own
        for tensor in op.present_inputs:
            producer = tensor.producer
            if producer is None or not found.crosses(tensor, op):
                continue
            other = group_of[producer]
            if other is own:
                continue
            small, large = sorted((own, other), key=len)
            large.extend(small)
            group_of.update(dict.fromkeys(small, large))
            own = large
    return list({id(group): group for group in group_of.values()}.values())
