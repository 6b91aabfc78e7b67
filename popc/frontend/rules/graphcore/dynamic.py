"""ai.graphcore, slices at run-time offsets, and sequences packed one after another."""

from __future__ import annotations

from math import prod
from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import graph_attribute, standard_op
from popc.frontend.rules.graphcore.operators import emit_zeros, graphcore_domain, takes
from popc.frontend.rules.moves import emit_reshape, emit_slice
from popc.frontend.rules.onnx.loop import LoopForm, import_loop
from popc.frontend.rules.subgraphs import as_tensors
from popc.ir import AttributeMap, Tensor
from popc.ops.dynamic import NO_OVERLAP
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]


# -- one slice -------------------------------------------------------------------------------------


def _window(node: Node) -> AttributeMap:
    """Attributes that the ops of this family share."""
    axes, sizes = node.integers("axes"), node.integers("sizes")
    if len(axes) != len(sizes):
        raise ModelError(f"{len(axes)} axes, but {len(sizes)} sizes are given")
    return {"axes": axes, "sizes": sizes}


def _dynamic_slice(node: Node) -> Tensor:
    """Input 2, if any, only shows PopART where the slice may lie.  A known place makes a view.

    Slices that do not overlap, as the model says, have gradients that are written side by side.
    """
    x, known = node.input(0), node.known(1)
    window = _window(node)
    if known is None:
        said = {**window, **_said_apart(node)}
        return _shaped_as_given(node, node.emit("DynamicSlice", [x, node.input(1)], said))
    windows = [range(dim) for dim in x.type.shape]
    offsets = known.reshape(-1).tolist()
    slices = zip(offsets, node.integers("axes"), node.integers("sizes"), strict=True)
    for offset, axis, size in slices:
        place = normal_axis(axis, x.type.rank)
        if not 0 <= offset <= x.type.shape[place] - size:
            raise ModelError(f"a slice of {size} from {offset} on leaves axis {axis} of {x.type}")
        windows[place] = range(offset, offset + size)
    return _shaped_as_given(node, emit_slice(node, x, windows))


def _said_apart(node: Node) -> AttributeMap:
    return {NO_OVERLAP: 1} if node.integer("noOverlap", 0) else {}


def _shaped_as_given(node: Node, part: Tensor) -> Tensor:
    """``part`` in the shape of the tensor that it is written to, which may lack sizes of 1."""
    given = node.optional(2)
    if given is None or given.type.size != part.type.size:
        return part
    return emit_reshape(node, part, given.type.shape)


def _dynamic_write(node: Node) -> Tensor:
    """The slice may lack dimensions of size 1.

    Updates that do not overlap, as the model says, leave the gradient of what they are written to
    as it is.
    """
    x, update = node.input(0), node.input(2)
    window = {**_window(node), **_said_apart(node)}
    shape = list(x.type.shape)
    for axis, size in zip(node.integers("axes"), node.integers("sizes"), strict=True):
        shape[normal_axis(axis, x.type.rank)] = size
    if update.type.size == prod(shape):
        update = emit_reshape(node, update, tuple(shape))
    return node.emit(node.op_type, [x, node.input(1), update], window)


def _dynamic_zero(node: Node) -> Tensor:
    return node.emit("DynamicZero", [node.input(0), node.input(1)], _window(node))


# -- sequences -------------------------------------------------------------------------------------


def _sequence_slice(node: Node) -> Tensor:
    """Inputs source, destination, N, source offsets, destination offsets."""
    source, destination = node.input(0), node.input(1)
    runs = [node.input(index) for index in range(2, 5)]
    return _copied(node, source, destination, runs, zero=node.integer("zeroUnused", 0))


def _sequence_pack(node: Node) -> Tensor:
    """Inputs source, destination, N, destination offsets: the source's rows are in order."""
    counts = node.input(2)
    runs = [counts, _starts(node, counts), node.input(3)]
    source, destination = node.input(0), node.input(1)
    return _copied(node, source, destination, runs, zero=node.integer("zeroUnused", 0))


def _sequence_unpack(node: Node) -> Tensor:
    """Inputs source, N, source offsets; the result has ``totalElements`` rows, in order."""
    source, counts = node.input(0), node.input(1)
    total = node.integer("totalElements")
    destination = emit_zeros(node, (total, *source.type.shape[1:]), source.type.dtype)
    runs = [counts, node.input(2), _starts(node, counts)]
    return _copied(node, source, destination, runs, zero=1)


def _starts(node: Node, counts: Tensor) -> Tensor:
    """The beginnings of several runs that lie one after another."""
    zero = node.constant(0, DType.INT64)
    return standard_op(node, "CumSum", [counts, zero], {"exclusive": 1})


def _copied(
    node: Node, source: Tensor, destination: Tensor, runs: list[Tensor], *, zero: int
) -> Tensor:
    """Rows of both tensors need as many elements, not the same shape."""
    if min(source.type.rank, destination.type.rank) < 2:
        raise ModelError(f"sequences have at least 2 dimensions, not {source.type}")
    inner = destination.type.shape[1:]
    if prod(source.type.shape[1:]) == prod(inner):
        source = emit_reshape(node, source, (source.type.shape[0], *inner))
    attributes = {"zero_unused": int(bool(zero))}
    return node.emit("SequenceSlice", [source, destination, *runs], attributes)


# -- PackedDataBlock -------------------------------------------------------------------------------


def _packed_data_block(node: Node) -> Tensor:
    """Unpack every input into sequences of its greatest length, call, pack the results.

    Inputs: (data, offsets, lengths) for each input of the callback, then the offsets and lengths
    of the results.  The callback takes and returns ``callbackBatchSize`` sequences at a time.
    """
    operands, results = _packed_operands(node)
    batch = node.integer("callbackBatchSize")
    count = results[0].type.size
    if batch < 1 or count % batch:
        raise ModelError(f"{count} sequences cannot be given to a callback {batch} at a time")
    longest = node.integers("maxSequenceLengths")
    if len(longest) != len(operands):
        raise ModelError(f"needs {len(operands)} maxSequenceLengths, not {len(longest)}")
    scanned = [
        _unpacked(node, operand, steps, batch)
        for operand, steps in zip(operands, longest, strict=True)
    ]
    form = LoopForm(
        body=graph_attribute(node, "callback"),
        trip_count=count // batch,
        trip_operand=None,
        condition=None,
        states=[],
        scanned=[(tensor, 0, False) for tensor in scanned],
        has_header=False,
    )
    stacked = as_tensors(import_loop(node, form), "PackedDataBlock")[0]
    return _packed(node, stacked, *results)


def _packed_operands(node: Node) -> tuple[list[list[Tensor]], list[Tensor]]:
    tensors = node.tensors()
    inputs, results = tensors[:-2], tensors[-2:]
    if len(inputs) % 3:
        raise ModelError(f"{len(tensors)} inputs are not triples and a pair")
    for tensor in results:
        if tensor.type.shape != (results[0].type.size,):
            raise ModelError(f"offsets and lengths of results must be vectors, not {tensor.type}")
    return [inputs[at : at + 3] for at in range(0, len(inputs), 3)], results


def _unpacked(node: Node, operand: list[Tensor], steps: int, batch: int) -> Tensor:
    """[calls, batch, steps, ...]: the sequences, filled up with zeros."""
    data, offsets, lengths = operand
    count, inner = offsets.type.size, data.type.shape[1:]
    places = node.constant(node.positions(count) * steps, offsets.type.dtype)
    room = emit_zeros(node, (count * steps, *inner), data.type.dtype)
    runs = [lengths, offsets, places]
    rows = node.emit("SequenceSlice", [data, room, *runs], {"zero_unused": 1})
    return emit_reshape(node, rows, (count // batch, batch, steps, *inner))


def _packed(node: Node, stacked: Tensor, offsets: Tensor, lengths: Tensor) -> Tensor:
    """The beginnings of the sequences in [calls, batch, steps, ...], where they belong."""
    calls, batch, steps, *inner = stacked.type.shape
    rows = emit_reshape(node, stacked, (calls * batch * steps, *inner))
    places = node.constant(node.positions(calls * batch) * steps, offsets.type.dtype)
    room = emit_zeros(node, (node.integer("resultSize"), *inner), stacked.type.dtype)
    runs = [lengths, places, offsets]
    return node.emit("SequenceSlice", [rows, room, *runs], {"zero_unused": 1})


RULES: Final = graphcore_domain(
    {
        "DynamicAdd": takes(3, 3, _dynamic_write),
        "DynamicSlice": takes(2, 3, _dynamic_slice),
        "DynamicUpdate": takes(3, 3, _dynamic_write),
        "DynamicZero": takes(2, 2, _dynamic_zero),
        "PackedDataBlock": takes(5, 1 << 16, _packed_data_block),
        "SequenceSlice": takes(5, 5, _sequence_slice),
        "SequenceSlicePack": takes(4, 4, _sequence_pack),
        "SequenceSliceUnpack": takes(3, 3, _sequence_unpack),
    }
)
