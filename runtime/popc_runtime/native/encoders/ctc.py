"""Connectionist temporal classification."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import packed, tensors
from popc_runtime.native.faults import fault_of
from popc_runtime.native.record import Encoder, Record

__all__ = ["ENCODERS"]

_REDUCTIONS: Final = ("none", "sum", "mean")
_INDICES: Final = (DType.INT32, DType.INT64)


def _ctc(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Logarithms [T, N, C], labels [N, S], lengths [N], lengths of labels [N]; the gradient."""
    del numbers
    types = (binding.input_dtypes[0], *binding.output_dtypes)
    known = all(dtype in (None, DType.FLOAT32) for dtype in types)
    indices = [binding.input(index) for index in (1, 2, 3)]
    plain = all(view.size and view.is_contiguous and view.dtype in _INDICES for view in indices)
    if not known or not plain or binding.input(0).size == 0:
        return None
    logs, before = packed(binding, 0)
    grads = binding.optional_output(1) if binding.integer("gradient", 0) else None
    words = (
        *tensors(logs, *indices, binding.output(), grads),
        binding.integer("blank"),
        _REDUCTIONS.index(binding.text("reduction")),
        binding.integer("zero_infinity", 0),
    )
    explain = partial(fault_of, "ctc", "Ctc", binding)
    return Record("Ctc_f32", words, (logs, *indices), before=before, explain=explain)


ENCODERS: Final[dict[str, Encoder]] = {"Ctc": _ctc}
