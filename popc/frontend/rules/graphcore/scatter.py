"""ai.graphcore, elements gathered and combined by index, also group by group."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import converted, standard_op
from popc.frontend.rules.graphcore.operators import graphcore_domain, takes
from popc.frontend.rules.moves import emit_reshape, emit_slice, emit_transpose
from popc.ir import AttributeMap, ProductCut, Shape, Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["RULES"]


# -- gather ----------------------------------------------------------------------------------------


def _grouped_gather(node: Node) -> Tensor:
    """Gather within each of ``group_size`` parts of dimension 0; ``axis`` counts that dimension."""
    x, indices = node.input(0), node.input(1)
    groups = node.integer("group_size", 1)
    axis = normal_axis(node.integer("axis", 0), x.type.rank)
    if groups == 1:
        return standard_op(node, "Gather", [x, indices], {"axis": axis})
    if axis == 0 or (x.type.shape[0], indices.type.shape[:1]) != (groups, (groups,)):
        raise ModelError(f"{x.type} and {indices.type} are not {groups} groups along dimension 0")
    rank = x.type.rank
    rows = emit_transpose(node, x, (0, axis, *(d for d in range(1, rank) if d != axis)))
    tuples = emit_reshape(node, indices, (*indices.type.shape, 1))
    taken = standard_op(node, "GatherND", [rows, _as_int64(node, tuples)], {"batch_dims": 1})
    depth = indices.type.rank - 1  # the axis becomes so many dimensions
    before = range(1 + depth, axis + depth)
    return emit_transpose(
        node, taken, (0, *before, *range(1, 1 + depth), *range(axis + depth, taken.type.rank))
    )


def _as_int64(node: Node, indices: Tensor) -> Tensor:
    """Indices of the one element type that GatherND takes."""
    signed = _signed(node, indices)
    is_wide = signed.type.dtype is DType.INT64
    return signed if is_wide else converted(node, signed, DType.INT64)


def _embedding_lookup(node: Node) -> Tensor:
    """Rows of a table, which is looked through in ``serialization_factor`` parts."""
    table, factor = node.input(0), node.integer("serialization_factor", 1)
    if factor < 1 or table.type.rank < 1 or table.type.shape[0] % factor:
        raise ModelError(f"{table.type} cannot be cut into {factor} parts along dimension 0")
    wanted = ProductCut("rows", factor) if factor > 1 else None
    return node.emit("Gather", [table, _signed(node, node.input(1))], {"axis": 0}, cut=wanted)


def _signed(node: Node, indices: Tensor) -> Tensor:
    """Indices of an element type that ONNX has indices of."""
    if not indices.type.dtype.is_integer:
        raise ModelError(f"indices must be integers, not {indices.type.dtype}")
    if indices.type.dtype in (DType.INT32, DType.INT64):
        return indices
    return converted(node, indices, DType.INT64)


# -- scatter ---------------------------------------------------------------------------------------


def _scatter_reduce(node: Node) -> Tensor:
    """Inputs data, indices and optionally initial values.

    Indices may have fewer dimensions than the data: those behind the axis, and for a vector those
    before it, are then repeated; with ``enable_index_broadcast=0``, the data is cut instead.
    The result has the shape of the initial values, which may be larger than the data.
    """
    data, indices = node.input(0), _signed(node, node.input(1))
    axis = normal_axis(node.integer("axis", -1), data.type.rank)
    grouped = node.integer("group_size", 1) > 1
    if grouped and axis == 0:
        raise ModelError("the groups are along axis 0, which cannot be reduced")
    shape = _expanded(indices.type.shape, data.type.shape, axis, grouped=grouped)
    indices = emit_reshape(node, indices, shape)
    if node.integer("enable_index_broadcast", 1):
        indices = _broadcast(node, indices, data.type.shape, axis)
    else:
        data = emit_slice(node, data, [range(dim) for dim in shape])
    reduction = node.text("reduction", "sum").lower()
    attributes: AttributeMap = {
        "axis": axis,
        "axis_size": node.integer("axis_size"),
        "reduction": "none" if reduction == "noreduction" else reduction,
    }
    initial = node.optional(2)
    if initial is None:
        return node.emit("ScatterReduce", [data, indices, None], attributes)
    size = max(node.integer("axis_size"), *initial.type.shape[axis : axis + 1], 0)
    return _onto(node, initial, data, indices, {**attributes, "axis_size": size})


def _onto(
    node: Node, initial: Tensor, data: Tensor, indices: Tensor, attributes: AttributeMap
) -> Tensor:
    """Combine with the first elements of ``initial`` along each axis but that of the indices."""
    axis = attributes["axis"]
    met = [
        size if place == axis else dim
        for place, (dim, size) in enumerate(zip(data.type.shape, initial.type.shape, strict=False))
    ]
    larger = [place for place, dim in enumerate(met) if dim < initial.type.shape[place]]
    if initial.type.rank != data.type.rank or not larger:
        return node.emit("ScatterReduce", [data, indices, initial], attributes)
    part = emit_slice(node, initial, [range(dim) for dim in met])
    combined = node.emit("ScatterReduce", [data, indices, part], attributes)
    window: AttributeMap = {"axes": tuple(larger), "sizes": tuple(met[place] for place in larger)}
    first = node.constant([0] * len(larger), DType.INT32)
    return node.emit("DynamicUpdate", [initial, first, combined], window)


def _expanded(indices: Shape, data: Shape, axis: int, *, grouped: bool) -> Shape:
    """The shape of the indices with a dimension of 1 where they have none."""
    lead = int(grouped)
    if len(indices) - lead == 1:
        indices = (*indices[:lead], *(1,) * (axis - lead), *indices[lead:])
    indices = (*indices, *(1,) * (len(data) - len(indices)))
    fits = len(indices) == len(data) and len(indices) > axis
    if not fits or any(own > dim for own, dim in zip(indices, data, strict=True)):
        raise ModelError(f"indices {list(indices)} do not fit data {list(data)} along axis {axis}")
    return indices


def _broadcast(node: Node, indices: Tensor, data: Shape, axis: int) -> Tensor:
    """Indices repeated as the data asks; not behind the axis, if nowhere there they differ."""
    shape = indices.type.shape
    if shape[axis] != data[axis]:
        raise ModelError(f"{shape[axis]} indices are given for {data[axis]} elements")
    if any(own not in (1, dim) for own, dim in zip(shape, data, strict=True)):
        raise ModelError(f"indices {list(shape)} cannot be repeated to {list(data)}")
    if all(own == 1 for own in shape[axis + 1 :]):
        data = data[: axis + 1]
        indices = emit_reshape(node, indices, shape[: axis + 1])
    return (
        indices if indices.type.shape == data else node.emit("Expand", [indices], {"shape": data})
    )


RULES: Final = graphcore_domain(
    {
        "EmbeddingLookup": takes(2, 2, _embedding_lookup),
        "GroupedGather": takes(2, 2, _grouped_gather),
        "GroupedScatterReduce": takes(2, 3, _scatter_reduce),
        "ScatterReduce": takes(2, 3, _scatter_reduce),
    }
)
