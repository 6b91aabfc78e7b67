"""Matrix products, determinants and inverses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from popc_runtime.format.dtypes import DType
from popc_runtime.format.program import Packing
from popc_runtime.ground.frozen import replace
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import has_elements, packed, tensors
from popc_runtime.native.epilogues import epilogue_activation
from popc_runtime.native.forms import product_record, stays_half
from popc_runtime.native.record import MAX_RANK, Encoder, Record, is_float32
from popc_runtime.native.views import View, filled, merged_view

__all__ = ["ENCODERS"]


def _matmul(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """A, B, [bias], [residual]; shapes as numpy's ``@``."""
    if min(binding.input(0).ndim, binding.input(1).ndim) < 2:
        return None
    return _product(binding, numbers)


def _gemm(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """alpha A' B' + beta C, [residual]; ' is an optional transpose."""
    scaled = binding.optional(2) is not None and binding.number("beta", 1.0) != 1
    if scaled or binding.number("alpha", 1.0) != 1:
        return None
    turned = tuple(bool(binding.integer(name, 0)) for name in ("transA", "transB"))
    return _product(binding, numbers, turned)


def _product(
    binding: NativeBinding,
    numbers: Mapping[str, int],
    turned: tuple[bool, ...] = (False, False),
) -> Record | None:
    """The product of the first two operands, transposed if they are ``turned``."""
    left, right, out = binding.input(0), binding.input(1), binding.output()
    if not _are_floats(binding):
        return None
    activation = epilogue_activation(binding, numbers)
    addends = _addends(binding, out)
    if activation is None or addends is None:
        return None
    if 0 in (left.size, right.size) or binding.text("partials", "float") != "float":
        return None
    bias, residual = addends
    before: tuple[Record, ...] = ()
    if residual is not None and residual.strides[-1] != residual.itemsize:
        residual, before = packed(binding, 3)  # numbers of a row have to lie side by side
    panels = binding.panels(1, Packing.ROWS if turned[1] else Packing.COLUMNS)
    right = right if panels is None else panels
    left, right = (
        factor.T if turn else factor for factor, turn in zip((left, right), turned, strict=True)
    )
    left, right, out, residual = _flattened(left, right, out, residual)
    if out.ndim > MAX_RANK:
        return None
    constant = binding.is_constant(1)
    record = product_record(
        left,
        right,
        out,
        bias=bias,
        residual=residual,
        constant=constant,
        packed=panels is not None,
        right_dtype=binding.input_dtypes[1],
        activation=activation,
    )
    return replace(record, before=before) if before else record


def _are_floats(binding: NativeBinding) -> bool:
    """True if all operands are float32, but for a constant factor, which may be a half."""
    left, right, *others = (*binding.input_dtypes, *binding.output_dtypes)
    half = right is not DType.FLOAT32
    return all(dtype in (None, DType.FLOAT32) for dtype in (left, *others)) and (
        not half or stays_half(binding, 1)
    )


def _addends(binding: NativeBinding, out: View) -> tuple[View | None, View | None] | None:
    """A bias of columns and a residual of the result's shape; ``None`` if they are others."""
    bias, residual = binding.optional(2), binding.optional(3)
    if bias is None:
        return None, residual
    if bias.size == 1 and binding.is_constant(2):
        return filled(out.shape[-1:], DType.FLOAT32, bias.item()), residual
    if bias.ndim == 0:
        return None
    if bias.size == bias.shape[-1] == out.shape[-1] and bias.strides[-1] == bias.itemsize:
        return bias.reshape(-1), residual
    if bias.shape == out.shape and residual is None and bias.strides[-1] == bias.itemsize:
        return None, bias
    return None


def _flattened(
    left: View, right: View, out: View, residual: View | None
) -> tuple[View, View, View, View | None]:
    """A batch of left matrices and one right one as a single product, if that is free."""
    if right.ndim != 2 or left.ndim == 2:
        return left, right, out, residual
    flat = [
        None if array is None else merged_view(array, (-1, array.shape[-1]))
        for array in (left, out, residual)
    ]
    if flat[0] is None or flat[1] is None or (residual is not None and flat[2] is None):
        return left, right, out, residual
    return flat[0], right, flat[1], flat[2]


def _of_matrices(kernel: str, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """X [..., n, n]."""
    del numbers
    out = binding.output()
    if not is_float32(binding) or not has_elements(binding) or not out.is_contiguous:
        return None
    x, before = packed(binding, 0)
    return Record(kernel, tensors(x, out), (x, out), before=before)


ENCODERS: Final[dict[str, Encoder]] = {
    "Det": partial(_of_matrices, "Determinant_f32"),
    "Gemm": _gemm,
    "Inverse": partial(_of_matrices, "Inverse_f32"),
    "MatMul": _matmul,
}
