"""Ensembles of decision trees."""

from __future__ import annotations

from collections.abc import Mapping

from popc_runtime.ground.hints import Final
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import packed, tensors
from popc_runtime.native.record import Encoder, Record, tensor_words

__all__ = ["ENCODERS"]

_TABLES: Final = range(1, 8)  # operands
_AGGREGATES: Final = ("SUM", "MIN", "MAX")  # as in csrc/kernels/trees/trees.h


def _ensemble(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Rows and seven tables of trees: see `popc_runtime.kernels.trees`."""
    del numbers
    x, out = binding.input(0), binding.output()
    tables = [binding.input(index) for index in _TABLES]
    known = all(map(binding.is_constant, _TABLES))
    if not known or 0 in (x.size, out.size) or not all(table.is_contiguous for table in tables):
        return None
    rows, before = packed(binding, 0)
    words = [word for table in tables for word in tensor_words(table, constant=True)]
    number = _AGGREGATES.index(binding.text("aggregate"))
    kept = (rows, *tables, out)
    return Record("Trees", (*tensors(rows), *words, *tensors(out), number), kept, before=before)


ENCODERS: Final[dict[str, Encoder]] = {"TreeEnsemble": _ensemble}
