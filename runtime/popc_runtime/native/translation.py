"""Ready calls of numpy's engine as records, where they are what a native kernel does.

Many kernels are a few calls of numpy functions with fixed operands: copies, arithmetic, products.
Such calls are translated one by one, so that an instruction without a native form of its own does
not have to leave the native program.
"""

from __future__ import annotations

from collections.abc import Container
from functools import partial
from typing import Any, Final

import numpy as np

from popc_runtime.kernels.binding import Call
from popc_runtime.native.forms import map_record, product_record
from popc_runtime.native.packing import fill_record, move_record, tensors
from popc_runtime.native.record import MAX_RANK, Record
from popc_runtime.native.reductions import REDUCTIONS
from popc_runtime.native.views import as_view

__all__ = ["translate"]

_UFUNCS: Final[dict[Any, str]] = {
    np.absolute: "Abs",
    np.add: "Add",
    np.ceil: "Ceil",
    np.divide: "Div",
    np.equal: "Equal",
    np.exp: "Exp",
    np.floor: "Floor",
    np.greater: "Greater",
    np.greater_equal: "GreaterOrEqual",
    np.less: "Less",
    np.less_equal: "LessOrEqual",
    np.log: "Log",
    np.logical_and: "And",
    np.logical_not: "Not",
    np.logical_or: "Or",
    np.logical_xor: "Xor",
    np.maximum: "Max",
    np.minimum: "Min",
    np.multiply: "Mul",
    np.negative: "Neg",
    np.reciprocal: "Reciprocal",
    np.rint: "Round",
    np.sqrt: "Sqrt",
    np.square: "Square",
    np.subtract: "Sub",
    np.tanh: "Tanh",
}
_SUFFIXES: Final = {"f4": "f32", "i4": "i32", "i8": "i64", "b1": "b8"}


def translate(call: Call, known: Container[str]) -> Record | None:
    """The record of a call; ``None`` if no kernel of ``known`` does exactly that."""
    if not isinstance(call, partial):
        return None
    record = None
    if call.func is np.copyto:
        record = _copy(call)
    elif call.func is np.matmul:
        record = _product(call)
    elif call.func in _UFUNCS:
        record = _map(call)
    else:
        name, owner = (getattr(call.func, one, None) for one in ("__name__", "__self__"))
        if name == "fill" and not call.keywords:
            record = _filled(owner, call.args[0])
        elif name == "reduce" and owner is np.add:
            record = _sum(call)
    return record if record is not None and record.kernel in known else None


def _copy(call: partial[Any]) -> Record | None:
    if len(call.args) != 2 or not call.keywords.keys() <= {"casting", "where"}:
        return None
    to, source = call.args
    same = isinstance(source, np.generic) and source.dtype == to.dtype
    if same or isinstance(source, int | float):
        source = np.asarray(source, to.dtype)
    plain = isinstance(source, np.ndarray) and to.dtype == source.dtype
    if not plain or to.ndim > MAX_RANK - 1 or to.size == 0:
        return None
    source, mask = np.broadcast_to(source, to.shape), call.keywords.get("where")
    if mask is not None:
        return _chosen(to, source, mask)
    if to.dtype.kind == "V":  # elements that are runs of bytes: one more dimension, of bytes
        to, source = (one[..., None].view(np.uint8) for one in (to, source))
    return move_record(as_view(to), as_view(source))


def _chosen(to: Any, source: Any, mask: Any) -> Record | None:
    """A copy of the elements where ``mask``."""
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or to.dtype.kind == "V":
        return None
    operands = [as_view(one) for one in (mask, source, to)]
    return map_record(f"Where_{8 * to.itemsize}", as_view(to), operands)


def _sum(call: partial[Any]) -> Record | None:
    """Along one axis, which is gone afterwards."""
    out, axis = call.keywords.get("out"), call.keywords.get("axis")
    if call.keywords.keys() != {"axis", "out"} or not isinstance(axis, int):
        return None
    if not isinstance(out, np.ndarray):
        return None
    (source,) = call.args
    plain = source.dtype == out.dtype == np.float32
    if not plain or source.size == 0 or source.ndim >= MAX_RANK or not out.flags.c_contiguous:
        return None
    operands = [as_view(one) for one in (source, np.expand_dims(out, axis))]
    words = (*tensors(*operands), REDUCTIONS.index("ReduceSum"))
    return Record("Reduce", words, tuple(operands))


def _map(call: partial[Any]) -> Record | None:
    out = call.keywords.get("out")
    if not isinstance(out, np.ndarray) or len(call.keywords) != 1 or out.ndim > MAX_RANK:
        return None
    operands = [np.asarray(argument) for argument in call.args]
    wanted = getattr(call.func, "nin", 0)
    kinds = {one.dtype.str[1:] for one in operands}
    if len(kinds) != 1 or len(operands) != wanted or out.size == 0:
        return None
    kind = kinds.pop()
    compares = out.dtype == np.bool_
    if kind not in _SUFFIXES or (not compares and out.dtype != operands[0].dtype):
        return None
    if any(np.broadcast_shapes(one.shape, out.shape) != out.shape for one in operands):
        return None
    kernel = f"{_UFUNCS[call.func]}_{_SUFFIXES[kind]}"
    return map_record(kernel, as_view(out), [as_view(one) for one in operands])


def _product(call: partial[Any]) -> Record | None:
    out = call.keywords.get("out")
    if not isinstance(out, np.ndarray) or len(call.keywords) != 1 or len(call.args) != 2:
        return None
    left, right = call.args
    floats = all(one.dtype == np.float32 and one.ndim >= 2 for one in (left, right, out))
    if not floats or 0 in (left.size, right.size) or out.ndim > MAX_RANK:
        return None
    if out.shape[-1] > 1 and out.strides[-1] != out.itemsize:
        return None
    return product_record(as_view(left), as_view(right), as_view(out))


def _filled(to: Any, value: Any) -> Record | None:
    if not isinstance(to, np.ndarray) or not to.flags.c_contiguous or to.size == 0:
        return None
    if to.dtype.kind not in "fiub" or to.itemsize > 8:
        return None
    return fill_record(as_view(to.reshape(-1)), np.asarray(value, to.dtype).tobytes())
