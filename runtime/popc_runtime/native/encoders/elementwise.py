"""Functions of single elements."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import partial

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.frozen import replace
from popc_runtime.ground.hints import Final
from popc_runtime.kernels.core.rounding_mode import Rounding
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.forms import map_record
from popc_runtime.native.maps import FLOATS_OF_32, binary, copy_of, function, map_for, map_of, unary
from popc_runtime.native.record import MAX_RANK, Encoder, Record
from popc_runtime.native.views import View, filled

__all__ = ["ENCODERS"]

_UNARY: Final = (
    "Abs",
    "Ceil",
    "Exp",
    "Floor",
    "Log",
    "Neg",
    "Reciprocal",
    "Round",
    "Sqrt",
    "Square",
)
_FUNCTIONS: Final = (
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitwiseNot",
    "Cos",
    "Cosh",
    "Expm1",
    "IsNaN",
    "Log1p",
    "Sign",
    "Sin",
    "Sinh",
    "Tan",
)
_BINARY: Final = (
    "Add",
    "Atan2",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Max",
    "Min",
    "Mul",
    "Sub",
)
# What numpy's kernel does for constant exponents.
_FIXED_POWERS: Final[Mapping[float, str]] = {-1: "Reciprocal", 1: "Copy", 2: "Square", 3: "Cube"}
_COMPARISONS: Final = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_LOGICAL: Final = ("And", "Or", "Xor")


def _sum(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Operand by operand; the result may be the memory of the first.  Halves are rounded once."""
    out, dtype, count = binding.output(), binding.output_dtypes[0], len(binding.inputs)
    if count < 2 or (count > 2 and dtype in (DType.FLOAT16, DType.BFLOAT16)):
        return None
    first = replace(binding, inputs=binding.inputs[:2], input_dtypes=binding.input_dtypes[:2])
    record = binary("Add", first, numbers)
    if record is None:
        return None
    records = [record]
    for index in range(2, count):
        operands = [out, binding.input(index)]
        records.append(map_record(record.kernel, out, operands, (), (dtype, dtype, dtype)))
    *before, last = records
    return replace(last, before=tuple(before))


def _comparison(name: str, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    return map_of(name, binding, numbers, 2)


def _divide(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """A division; the result of integers divided by zero depends on their size."""
    dtype = binding.input_dtypes[0]
    narrow = dtype is not None and dtype.is_signed and dtype.itemsize < 8
    return binary("DivNarrow" if narrow else "Div", binding, numbers)


def _modulo(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    return binary("FMod" if binding.integer("fmod", 0) else "Mod", binding, numbers)


def _power(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """The result has the type of the base, whatever that of the exponent."""
    base, exponent, out = binding.input(0), binding.input(1), binding.output()
    dtype, other = binding.output_dtypes[0], binding.input_dtypes[1]
    if out.ndim > MAX_RANK or out.size == 0 or Rounding.of(binding.attributes):
        return None
    if dtype is None or other is None or binding.input_dtypes[0] is not dtype:
        return None
    types = (dtype, dtype, other)
    fixed = exponent.size == 1 and binding.is_constant(1) and dtype.is_float
    name = _FIXED_POWERS.get(_number(exponent, other)) if fixed else None
    if name is not None:
        kernel = copy_of(dtype) if name == "Copy" else map_for(name, dtype, numbers)
        return None if kernel is None else map_record(kernel, out, [base], (), types[:2])
    if not dtype.is_float and not other.is_float:
        # Of uint64 there are exponents and bases that int64 does not hold.
        if DType.UINT64 in types:
            return None
        kernel = "Pow_i32" if set(types) == {DType.INT32} else "Pow_wide_i64"
        return map_record(kernel, out, [base, exponent], (), types)
    work = DType.FLOAT32 if dtype in FLOATS_OF_32 else DType.FLOAT64
    pairs = zip((base, exponent), types[1:], strict=True)
    operands = [_as_float(binding, operand, of, work) for operand, of in pairs]
    views, kinds = [view for view, _, _ in operands], [of for _, of, _ in operands]
    before = tuple(step for _, _, steps in operands for step in steps)
    kernel = "Pow_f32" if work is DType.FLOAT32 else "Pow_f64"
    return replace(map_record(kernel, out, views, (), (dtype, *kinds)), before=before)


def _as_float(
    binding: NativeBinding, view: View, dtype: DType, work: DType
) -> tuple[View, DType, tuple[Record, ...]]:
    """An operand as maps of ``work`` take it, its type, and what runs before."""
    if dtype is work or (dtype in FLOATS_OF_32 and work is DType.FLOAT32):
        return view, dtype, ()
    wide = binding.scratch.take(view.shape, work)
    return wide, work, (map_record(copy_of(dtype), wide, [view], (), (work, dtype)),)


def _number(view: View, dtype: DType) -> float:
    """The value of the only element."""
    if dtype is DType.BFLOAT16:
        return float(struct.unpack("<f", struct.pack("<HH", 0, view.item()))[0])
    return float(view.item())


def _bit_shift(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    left = binding.text("direction") == "LEFT"
    return binary("ShiftLeft" if left else "ShiftRight", binding, numbers)


def _is_inf(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    both = binding.integer("detect_negative", 1) and binding.integer("detect_positive", 1)
    return map_of("IsInf", binding, numbers, 1) if both else None


def _where(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    out = binding.output()
    if out.ndim > MAX_RANK or out.size == 0:
        return None
    return map_record(f"Where_{8 * out.itemsize}", out, [binding.input(i) for i in range(3)])


def _scaled_add(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X, Y, scales? {scale0, scale1}: of halves rounded once."""
    out, dtype = binding.output(), binding.output_dtypes[0]
    multiply, add = (map_for(name, dtype, numbers) for name in ("Mul", "Add"))
    if multiply is None or add is None or dtype is None or not _is_simple(binding, 2):
        return None
    if not dtype.is_float:
        return None
    wide = DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32
    terms = [binding.scratch.take(out.shape, wide) for _ in range(2)]
    records: list[Record] = []
    for index, term in enumerate(terms):
        scale, scale_type = binding.optional(index + 2), wide
        if scale is None:
            scale = filled((), wide, binding.number(f"scale{index}", 1.0))
        else:
            scale_type = binding.input_dtypes[index + 2] or wide
            scale = scale.reshape(())
        operands = [binding.input(index), scale]
        records.append(map_record(multiply, term, operands, (), (wide, dtype, scale_type)))
    return replace(map_record(add, out, terms, (), (dtype, wide, wide)), before=tuple(records))


def _is_simple(binding: NativeBinding, operands: int) -> bool:
    """True if operands and the result have one type, and the result elements."""
    out = binding.output()
    types = {*binding.input_dtypes[:operands], *binding.output_dtypes}
    plain = out.ndim <= MAX_RANK and out.size > 0
    return plain and len(types) == 1 and not Rounding.of(binding.attributes)


ENCODERS: Final[dict[str, Encoder]] = {
    "BitShift": _bit_shift,
    "Div": _divide,
    "IsInf": _is_inf,
    "Mod": _modulo,
    "Not": partial(function, "Not"),
    "Pow": _power,
    "ScaledAdd": _scaled_add,
    "Sum": _sum,
    "Where": _where,
    **{name: partial(binary, name) for name in _BINARY},
    **{name: partial(binary, name) for name in _LOGICAL},
    **{name: partial(_comparison, name) for name in _COMPARISONS},
    **{name: partial(function, name) for name in _FUNCTIONS},
    **{name: partial(unary, name) for name in _UNARY},
}
