"""Ready calls of numpy's engine as records, where they are what a native kernel does.

Many kernels are a few calls of numpy functions with fixed operands: copies, arithmetic, products.
Such calls are translated one by one, so that an instruction without a native form of its own does
not have to leave the native program.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from popc_runtime.ground.frozen import replace
from popc_runtime.kernels.core.binding import Call
from popc_runtime.kernels.parts.common_left import MOST_RIGHT, CommonLeft, common_left
from popc_runtime.kernels.parts.lstm_steps import LstmSteps, lstm_steps
from popc_runtime.native.contiguous import fill_record, move_record, tensors
from popc_runtime.native.forms import map_record, plain_product_record, product_record
from popc_runtime.native.maps import copy_of, map_for
from popc_runtime.native.record import MAX_RANK, Record
from popc_runtime.native.reductions import REDUCTIONS
from popc_runtime.native.views import as_view

__all__ = ["translate"]

_UFUNCS: Final[dict[Any, str]] = {
    np.absolute: "Abs",
    np.add: "Add",
    np.bitwise_and: "BitwiseAnd",
    np.bitwise_or: "BitwiseOr",
    np.bitwise_xor: "BitwiseXor",
    np.ceil: "Ceil",
    np.cos: "Cos",
    np.divide: "Div",
    np.equal: "Equal",
    np.exp: "Exp",
    np.expm1: "Expm1",
    np.floor: "Floor",
    np.greater: "Greater",
    np.greater_equal: "GreaterOrEqual",
    np.less: "Less",
    np.less_equal: "LessOrEqual",
    np.log: "Log",
    np.log1p: "Log1p",
    np.logical_and: "And",
    np.logical_not: "Not",
    np.logical_or: "Or",
    np.logical_xor: "Xor",
    np.maximum: "Max",
    np.minimum: "Min",
    np.multiply: "Mul",
    np.negative: "Neg",  # noqa: TID251 - a key
    np.power: "Pow",
    np.reciprocal: "Reciprocal",
    np.rint: "Round",
    np.sin: "Sin",
    np.sqrt: "Sqrt",
    np.square: "Square",
    np.subtract: "Sub",
    np.tanh: "Tanh",
}
_PRODUCTS: Final = (np.matmul, np.dot, np.vecdot)
_PLAIN_PRODUCTS: Final = ("f8", "i4", "i8", "u4", "u8")
_REDUCED: Final[dict[Any, str]] = {
    np.add: "ReduceSum",
    np.maximum: "ReduceMax",
    np.minimum: "ReduceMin",
}
# What numpy's functions do with integers, and with truth values, as the maps of these names do.
_OF_INTEGERS: Final = frozenset(
    {
        *("Abs", "Add", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Greater", "Less"),
        *("GreaterOrEqual", "LessOrEqual", "Max", "Min", "Mul", "Neg", "Sub"),
    }
)
_OF_BOOLEANS: Final = frozenset({"And", "Equal", "Not", "Or", "Xor"})
_OF_TRUTH: Final = ("b1", "i1", "u1", "f4", "f8")  # types of their results that maps know
_TO_FLOATS: Final = ("b1", "i1", "u1", "i4")
_COMPARISONS: Final = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})


def translate(call: Call, known: Container[str]) -> Record | None:
    """The record of a call; ``None`` if no kernel of ``known`` does exactly that."""
    if not isinstance(call, partial):
        return None
    record = None
    if call.func is np.copyto:
        record = _copy(call)
    elif call.func in _PRODUCTS:
        record = _product(call)
    elif call.func in _UFUNCS:
        record = _map(call, known)
    elif call.func is lstm_steps:
        record = _lstm(call.args[1])
    elif call.func is common_left:
        record = _common_left(call.args[1])
    elif call.func is np.sum:
        record = _reduced(call, "ReduceSum")
    else:
        record = _method(call, known)
    return record if record is not None and record.kernel in known else None


def _method(call: partial[Any], known: Container[str]) -> Record | None:
    """A method of an array, or of a function."""
    name, owner = (getattr(call.func, attribute, None) for attribute in ("__name__", "__self__"))
    if name == "fill" and not call.keywords:
        return _filled(owner, call.args[0])
    if name == "clip" and isinstance(owner, np.ndarray) and call.keywords.keys() <= {"out"}:
        return _clipped(owner, (*call.args, *call.keywords.values()), known)
    if name == "reduce" and owner in _REDUCED:
        return _reduced(call, _REDUCED[owner])
    return None


def _copy(call: partial[Any]) -> Record | None:
    if len(call.args) != 2 or not call.keywords.keys() <= {"casting", "where"}:
        return None
    to, source = call.args
    same = isinstance(source, np.generic) and source.dtype == to.dtype
    if same or isinstance(source, int | float):
        source = np.asarray(source, to.dtype)
    if not isinstance(source, np.ndarray) or to.ndim > MAX_RANK - 1 or to.size == 0:
        return None
    if to.dtype != source.dtype:
        return _cast(to, source) if call.keywords.keys() <= {"casting"} else None
    source, mask = np.broadcast_to(source, to.shape), call.keywords.get("where")
    if mask is not None:
        return _chosen(to, source, mask)
    if to.dtype.kind == "V":  # elements that are runs of bytes: one more dimension, of bytes
        to, source = (array[..., None].view(np.uint8) for array in (to, source))
    return move_record(as_view(to), as_view(source))


def _cast(to: Any, source: Any) -> Record | None:
    """Copies of other types: what `Cast` does."""
    if any(array.dtype.kind not in "fiub" or array.itemsize > 8 for array in (to, source)):
        return None
    if np.broadcast_shapes(to.shape, source.shape) != to.shape:
        return None
    operand = as_view(source)
    return map_record(copy_of(operand.dtype), as_view(to), [operand])


def _chosen(to: Any, source: Any, mask: Any) -> Record | None:
    """A copy of the elements where ``mask``."""
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or to.dtype.kind == "V":
        return None
    operands = [as_view(array) for array in (mask, source, to)]
    return map_record(f"Where_{8 * to.itemsize}", as_view(to), operands)


def _reduced(call: partial[Any], name: str) -> Record | None:
    """Along axes, which are gone afterwards unless they are kept."""
    source, axis, dtype, out, keep = (
        call.args[index] if index < len(call.args) else call.keywords.get(keyword)
        for index, keyword in enumerate(("array", "axis", "dtype", "out", "keepdims"))
    )
    if not call.keywords.keys() <= {"axis", "dtype", "out", "keepdims"} or dtype is not None:
        return None
    if not isinstance(out, np.ndarray) or not isinstance(source, np.ndarray) or axis is None:
        return None
    plain = source.dtype == out.dtype and out.dtype in (np.float32, np.float64)
    if not plain or source.size == 0 or source.ndim >= MAX_RANK or not out.flags.c_contiguous:
        return None
    axes = tuple(number % source.ndim for number in ((axis,) if isinstance(axis, int) else axis))
    shape = [1 if number in axes else size for number, size in enumerate(source.shape)]
    if out.size != np.prod(shape) or (keep and out.shape != tuple(shape)):
        return None
    operands = [as_view(source), as_view(out).reshape(tuple(shape))]
    words = (*tensors(*operands), REDUCTIONS.index(name))
    return Record("Reduce", words, tuple(operands))


def _clipped(source: Any, arguments: tuple[Any, ...], known: Container[str]) -> Record | None:
    """The larger of elements and a limit, then the lesser of these and another."""
    if len(arguments) != 3 or not isinstance(arguments[2], np.ndarray):
        return None
    low, high, out = arguments
    first = _map(partial(np.maximum, source, low, out=out), known)
    second = _map(partial(np.minimum, out, high, out=out), known)
    if first is None or second is None or first.kernel not in known:
        return None
    return replace(second, before=(first,))


def _map(call: partial[Any], known: Container[str]) -> Record | None:
    out, name = call.keywords.get("out"), _UFUNCS[call.func]
    if not isinstance(out, np.ndarray) or not call.keywords.keys() <= {"out", "casting", "dtype"}:
        return None
    operands = _operands(call.args)
    if not _is_elementwise(operands, out) or len(operands) != getattr(call.func, "nin", 0):
        return None
    wanted = call.keywords.get("dtype")
    kinds = {operand.dtype for operand in operands} if wanted is None else {np.dtype(wanted)}
    kind = kinds.pop()
    kernel = None if kinds else _map_of(name, kind, known)
    if kernel is not None and any(operand.dtype != kind for operand in operands):
        kernel = _widest(kernel, name, kind, known)
    truth = name in _COMPARISONS | _OF_BOOLEANS and out.dtype.str[1:] in _OF_TRUTH
    if kernel is None or (out.dtype != kind and not truth):
        return None
    if not all(_converts(operand.dtype, kind, kernel) for operand in operands):
        return None
    return map_record(kernel, as_view(out), [as_view(operand) for operand in operands])


def _widest(kernel: str, name: str, kind: Any, known: Container[str]) -> str:
    """The map for operands of other types: that of the type which all integers are converted to."""
    wide = f"{name}_wide_i64"
    return wide if kind.kind == "i" and kind.itemsize < 8 and wide in known else kernel


def _is_elementwise(operands: Sequence[Any], out: Any) -> bool:
    """True if all are numbers, and operands broadcast to a result that has elements."""
    return (
        out.size > 0
        and out.ndim <= MAX_RANK
        and all(array.dtype.kind in "fiub" for array in (out, *operands))
        and all(np.broadcast_shapes(operand.shape, out.shape) == out.shape for operand in operands)
    )


def _converts(source: Any, kind: Any, kernel: str) -> bool:
    """True if a map takes operands of a type where numpy's function computes in another one."""
    if source == kind:
        return True
    if kind.kind == "f":
        return kind.itemsize >= 4 and source.str[1:] in _TO_FLOATS
    return kernel.endswith("_wide_i64") and source.kind in "iu" and source.itemsize < 8


def _operands(arguments: Sequence[Any]) -> list[Any]:
    """The arguments as arrays; numbers of Python have the type of the others."""
    arrays = [array for array in arguments if isinstance(array, np.ndarray | np.generic)]
    kind = arrays[0].dtype if arrays and arrays[0].dtype.kind == "f" else None
    return [
        np.asarray(
            array,
            kind if isinstance(array, int | float) and not isinstance(array, np.generic) else None,
        )
        for array in arguments
    ]


def _map_of(name: str, kind: Any, known: Container[str]) -> str | None:
    """The map that computes in a type of numpy's as the function of that name does."""
    if kind.kind in "iu" and name not in _OF_INTEGERS:
        return None
    if kind.kind == "b" and name not in _OF_BOOLEANS:
        return None
    if kind.kind not in "fiub" or kind.itemsize > 8:
        return None
    return map_for(name, as_view(np.empty((), kind)).dtype, known)


def _product(call: partial[Any]) -> Record | None:
    """The product of matrices, of rows of two operands, or of a matrix and a row."""
    out = call.keywords.get("out")
    if not isinstance(out, np.ndarray) or len(call.keywords) != 1 or len(call.args) != 2:
        return None
    left, right = call.args
    if any(array.dtype != out.dtype or 0 in array.shape for array in (left, right)):
        return None
    left, right, out = _matrices(call.func, left, right, out)
    batched = call.func is np.dot and max(left.ndim, right.ndim) > 2
    if min(left.ndim, right.ndim) < 2 or out.ndim > MAX_RANK or batched:
        return None
    rows = out.shape[-1] == 1 or out.strides[-1] == out.itemsize
    operands = (as_view(left), as_view(right), as_view(out))
    if out.dtype.str[1:] in _PLAIN_PRODUCTS:
        return plain_product_record(*operands)
    return product_record(*operands) if out.dtype == np.float32 and rows else None


def _lstm(steps: LstmSteps) -> Record | None:
    """All steps of an LSTM back through time."""
    arrays = (steps.r, steps.gates, steps.cells, steps.given, steps.rows, steps.dh, steps.dc)
    views = [None if array is None else as_view(array) for array in arrays]
    if any(view is not None and view.size == 0 for view in views):
        return None
    backward = (*(int(back) for back in steps.backward), 0)[:2]
    words = (*tensors(*views), steps.gates.shape[2], *backward, int(steps.first))
    return Record("LstmSlopes_f32", words, tuple(view for view in views if view is not None))


def _common_left(operands: CommonLeft) -> Record | None:
    """The products of one turned matrix with others."""
    arrays = [operands.left, *(array for pair in operands.products for array in pair)]
    if len(operands.products) > MOST_RIGHT or any(array.size == 0 for array in arrays):
        return None
    views = [as_view(array) for array in arrays]
    absent = [None] * (1 + 2 * MOST_RIGHT - len(views))
    return Record("CommonLeft_f32", tuple(tensors(*views, *absent)), tuple(views))


def _matrices(function: Any, left: Any, right: Any, out: Any) -> tuple[Any, Any, Any]:
    """Rows as matrices."""
    if function is np.vecdot:
        return left[..., None, :], right[..., None], out[..., None, None]
    if right.ndim == 1:
        left = left[None] if left.ndim == 1 else left
        return left, right[:, None], out[..., None] if out.ndim else out[None, None]
    return left, right, out


def _filled(to: Any, value: Any) -> Record | None:
    if not isinstance(to, np.ndarray) or not to.flags.c_contiguous or to.size == 0:
        return None
    if to.dtype.kind not in "fiub" or to.itemsize > 8:
        return None
    return fill_record(as_view(to).reshape(-1), np.asarray(value, to.dtype).tobytes())
