"""For the checker: bounds, alignment, contents of constants, and what views show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np

from popc.ir import Graph, Op, Tensor, TensorKind, TensorType
from popc.ir.attributes import integer, integers
from popc.memory.check_calls import parameter_sizes
from popc.memory.plan import ALIGNMENT, MemoryPlace, MemoryPlan
from popc.ops import OPS
from popc.ops.build import build, evaluate
from popc.ops.control import called_graphs, own_graphs
from popc_runtime.format import Array, DType, Region

__all__ = ["addresses", "byte_range", "check_constants", "check_places", "check_views"]

# Regions with variables.
_LASTING: Final = (Region.STATE, Region.REMOTE)


def byte_range(tensor: Tensor, placement: MemoryPlace) -> tuple[int, int]:
    """The first byte that ``tensor`` touches, and the one behind the last."""
    if tensor.type.size == 0:
        return placement.offset, placement.offset
    if placement.strides is None:
        return placement.offset, placement.offset + tensor.type.nbytes
    found = addresses(tensor, placement)
    return int(found.min()), int(found.max()) + tensor.type.dtype.itemsize


def addresses(tensor: Tensor, placement: MemoryPlace) -> Array:
    """The byte address of every element."""
    shape, itemsize = tensor.type.shape, tensor.type.dtype.itemsize
    if placement.strides is None:
        return placement.offset + itemsize * np.arange(tensor.type.size).reshape(shape)
    found = np.full(shape, placement.offset)
    for axis, stride in enumerate(placement.strides):
        steps = stride * np.arange(shape[axis])
        found += steps.reshape((-1,) + (1,) * (len(shape) - axis - 1))
    return found


def check_places(graph: Graph, plan: MemoryPlan) -> Iterator[str]:
    """Everything lies within its region, aligned, and contiguous where it must."""
    sizes = {
        Region.ARENA: plan.arena_bytes,
        Region.STATE: plan.state_bytes,
        Region.CONSTANT: plan.constant_bytes,
        Region.REMOTE: plan.remote_bytes,
    }
    parameters = {
        tensor: parameter_sizes(callee, plan)
        for callee in called_graphs(graph)
        for part in own_graphs(callee)
        for tensor in part.tensors.values()
    }
    parts = _joined_ranges(plan)
    for tensor, placement in plan.placements.items():
        low, high = byte_range(tensor, placement)
        size = sizes.get(placement.region, 0)
        if tensor in parameters:
            size = parameters[tensor].get(placement.memory, 0)
        if low < 0 or high > size:
            yield f"{tensor!r} lies at {low}..{high}, outside of its region"
        is_view = tensor.producer in plan.views or tensor.kind is TensorKind.INPUT
        if placement.offset % tensor.type.dtype.itemsize:
            yield f"{tensor!r} is not aligned to its elements"
        is_part = _is_part(tensor, (low, high), parts) or tensor.producer in plan.inplace
        is_part = is_part or (placement.region in _LASTING and _is_kept(tensor, graph, plan))
        if placement.offset % ALIGNMENT and not is_view and not is_part:
            yield f"{tensor!r} is not aligned to {ALIGNMENT} bytes"
    for part in graph.walk():
        yield from _check_contiguous(part, plan, is_top=part is graph)


def _is_part(tensor: Tensor, place: tuple[int, int], parts: Iterable[tuple[int, int]]) -> bool:
    """True if a tensor lies in a row; of a variable at its end, only a part may be read."""
    low, high = place
    if tensor.kind is TensorKind.VARIABLE:
        return any(start < high and low < end for start, end in parts)
    return any(start <= low and high <= end for start, end in parts)


def _is_kept(tensor: Tensor, graph: Graph, plan: MemoryPlan) -> bool:
    """True if ``tensor`` is computed in a part of a variable."""
    low, high = byte_range(tensor, plan.placements[tensor])
    ranges = (byte_range(variable, plan.placements[variable]) for variable in graph.variables)
    return tensor.kind is not TensorKind.VARIABLE and any(
        start <= low and high <= end for start, end in ranges
    )


def _joined_ranges(plan: MemoryPlan) -> list[tuple[int, int]]:
    """The ranges of operands of Concats without gaps: computed there, or variables in a row."""
    rows = [op for op in plan.views if op.op_type == "Concat"]
    return [byte_range(op.output, plan.placements[op.output]) for op in (*plan.joined, *rows)]


def _check_contiguous(graph: Graph, plan: MemoryPlan, *, is_top: bool) -> Iterator[str]:
    strided = [
        tensor for tensor in graph.tensors.values() if plan.placements[tensor].strides is not None
    ]
    for tensor in strided:
        is_capture = tensor.kind is TensorKind.INPUT and not is_top
        if tensor.producer not in plan.views and not is_capture:
            yield from _check_format(tensor, plan)
        if graph.is_output(tensor):
            yield f"{tensor!r} is strided but an output of its graph"
        for op in tensor.uses:
            if not op.subgraphs and not _reads_strided(op):
                yield f"{op!r} cannot read {tensor!r} strided"
    for op in graph.ops:
        if any(tensor in strided for tensor in _plain_operands(op)):
            yield f"{op!r} has a strided operand that is no capture"
        yield from _check_captures(op, plan)


def _reads_strided(op: Op) -> bool:
    """True if the kernel of ``op`` takes operands that are not contiguous.

    Sums and the like over all pixels of an image or a volume do, other reductions do not.
    """
    if op.op_type not in OPS:
        return False
    if OPS[op.op_type].strided_input:
        return True
    if not op.op_type.startswith("Reduce") or "axes" not in op.attributes:
        return False
    rank = op.operand(0).type.rank
    axes = {axis % rank for axis in integers(op.attributes, "axes")}
    return rank in (3, 4, 5) and axes == set(range(2, rank))


def _check_format(tensor: Tensor, plan: MemoryPlan) -> Iterator[str]:
    """The elements of a result are all that lies between its first byte and its last.

    Between those of a part of a Concat are those of the other parts.
    """
    spec = None if tensor.producer is None else OPS.get(tensor.producer.op_type)
    if spec is None or not spec.strided_output:
        yield f"{tensor!r} is strided but no view"
    place = plan.placements[tensor]
    gaps = np.diff(np.sort(addresses(tensor, place), axis=None))
    low, high = byte_range(tensor, place)
    is_part = any(
        place.strides == plan.placements[op.output].strides
        and _is_part(tensor, (low, high), [byte_range(op.output, plan.placements[op.output])])
        for op in plan.joined
    )
    itemsize = tensor.type.dtype.itemsize
    if (gaps < itemsize).any() or ((gaps > itemsize).any() and not is_part):
        yield f"{tensor!r} has gaps, or elements that lie over each other"


def _plain_operands(op: Op) -> list[Tensor | None]:
    if not op.subgraphs:
        return []
    if op.op_type == "Call":
        return op.inputs
    return op.inputs[: 1 if op.op_type == "If" else 2 + integer(op.attributes, "states")]


def _check_captures(op: Op, plan: MemoryPlan) -> Iterator[str]:
    if op.op_type == "Call":
        return
    first = len(_plain_operands(op))
    for graph in op.subgraphs.values():
        inner = graph.inputs[len(graph.inputs) - len(op.inputs) + first :]
        for outside, inside in zip(op.inputs[first:], inner, strict=True):
            assert outside is not None, f"{op!r} has an absent capture"
            if plan.placements[outside] != plan.placements[inside]:
                yield f"{op!r}: {outside!r} and the captured {inside!r} lie apart"
    if op.op_type == "Loop":
        states = op.subgraphs["body"].inputs[2:first]
        for inside, outside in zip(states, op.outputs, strict=False):
            if plan.placements[outside] != plan.placements[inside]:
                yield f"{op!r}: the state {inside!r} and its final value {outside!r} lie apart"


def check_constants(graph: Graph, plan: MemoryPlan) -> Iterator[str]:
    """Every constant lies where its bytes are."""
    content = np.zeros(plan.constant_bytes, np.uint8)
    for block in plan.constants:
        data = np.frombuffer(block.data.tobytes(), np.uint8)
        content[block.offset : block.offset + data.size] = data
    for tensor in (tensor for part in graph.walk() for tensor in part.constants):
        assert tensor.data is not None, f"constant {tensor!r} has no data"
        placement = plan.placements[tensor]
        low, high = byte_range(tensor, placement)
        if placement.region is not Region.CONSTANT or placement.strides is not None:
            yield f"{tensor!r} is not in the constant region"
        elif content[low:high].tobytes() != tensor.data.tobytes():
            yield f"the bytes of {tensor!r} are not where it lies"


def check_views(graph: Graph, plan: MemoryPlan) -> Iterator[str]:
    """A view shows, element by element, what its op's kernel would have copied."""
    nested_outputs = {
        tensor for part in graph.walk() for tensor in part.outputs if part is not graph
    }
    for op in plan.views:
        spec = OPS.get(op.op_type)
        if op.op_type == "Concat":
            yield from _check_row(op, plan)
            continue
        if spec is None or spec.view is None:
            yield f"{op!r} can be no view"
            continue
        found = addresses(op.operand(0), plan.placements[op.operand(0)]).reshape(-1)
        for output, source in zip(op.outputs, _source_elements(op), strict=True):
            same_region = plan.placements[output].memory == plan.placements[op.operand(0)].memory
            shown = addresses(output, plan.placements[output])
            if not same_region or not np.array_equal(shown, found[source]):
                yield f"{output!r} does not show what {op!r} computes"
            if output in nested_outputs:
                yield f"{output!r} is an output of a nested graph but a view"


def _check_row(op: Op, plan: MemoryPlan) -> Iterator[str]:
    """Operands lie where the result of a Concat has their elements."""
    places = [(tensor, plan.placements[tensor]) for tensor in (*op.present_inputs, op.output)]
    if len({place.memory for tensor, place in places if tensor.type.size}) > 1:
        yield f"{op!r} shows operands that lie in several regions"
    *operands, result = [addresses(tensor, place) for tensor, place in places]
    if not np.array_equal(np.concatenate(operands, integer(op.attributes, "axis")), result):
        yield f"{op.output!r} does not show what {op!r} computes"


def _source_elements(op: Op) -> tuple[Array, ...]:
    """For each output, the number of the element of operand 0 that each element comes from."""
    shape = op.operand(0).type.shape
    numbers = np.arange(op.operand(0).type.size).reshape(shape)
    if OPS[op.op_type].elementwise:  # BitCast, which would not give the numbers back
        return (numbers,)
    scratch = Graph("scratch")
    numbered = scratch.add_input("numbered", TensorType(DType.INT64, shape))
    twin = build(scratch, op.op_type, [numbered], op.attributes)
    return evaluate(twin, [numbers])
