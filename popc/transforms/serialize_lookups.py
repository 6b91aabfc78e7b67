"""Cut lookups in a table into lookups in parts of it, where the user wants that."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from popc.ir import AttributeMap, Graph, Op, Tensor, TensorType
from popc.ops.build import build
from popc.transforms.serialization import SerializationPass, parts_of, too_few_parts
from popc_runtime.ground.frozen import inheritable

__all__ = ["SerializeLookups"]

_MODE = "rows"


@inheritable
class SerializeLookups(SerializationPass):
    """A lookup whose settings say so becomes several, each in as many rows of the table.

    Every part looks all indices up, those of other parts as its row 0, and keeps what is its own.
    The gradient of the table is then made of parts as well, and a product with the same table may
    be cut alike.

    Before::

        %y: float32[3,2] = Gather(@table, %i) axis=0       rows, factor 2; 8 rows

    After::

        %low, %high = Split(@table) axis=0 split=[4, 4]
        %mine = Less(%i, @4)
        %a = Gather(%low, %i or 0) axis=0
        %b = Gather(%high, %i - 4 or 0) axis=0
        %y = Where(%mine, %a, %b)

    Raises:
        OptionError: lists all lookups that cannot be cut as their annotations say.
    """

    rewrites: ClassVar[frozenset[str]] = frozenset({"Gather"})
    name: ClassVar[str] = "serialize_lookups"
    refusal: ClassVar[str] = "lookups cannot be cut as serialize_lookup_factor says"

    def problem(self, op: Op) -> str:
        """See `SerializationPass`."""
        return _problem(op) if _is_cut(op) else ""

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Cut one lookup."""
        if not _is_cut(op):
            return False
        graph.replace_op(op, [_Cutter(graph, op).result()])
        return True


def _is_cut(op: Op) -> bool:
    cut = op.settings.cut
    return op.op_type == "Gather" and cut is not None and cut.mode == _MODE


def _problem(op: Op) -> str:
    """The reason why ``op`` cannot be cut so; "" if it can."""
    cut, table = op.settings.cut, op.operand(0).type
    assert cut is not None, "checked before"
    name, axis = op.settings.origin or repr(op), op.attributes["axis"]
    if axis not in (0, -table.rank):
        return f"{name}: only lookups of rows are cut, not those along axis {axis}"
    rows = table.shape[0]
    if parts_of(rows, cut.factor) is not None:
        return ""
    return f"{name}: of the table's rows, {too_few_parts(rows, cut.factor)}"


class _Cutter:
    """Builds the parts of one lookup, and what puts them together."""

    def __init__(self, graph: Graph, op: Op) -> None:
        assert op.settings.cut is not None, "checked before"
        self._graph = graph
        self._table, self._indices = op.operand(0), op.operand(1)
        self._factor = op.settings.cut.factor
        self._rows = self._table.type.shape[0]
        self._settings = replace(op.settings, cut=None)

    def result(self) -> Tensor:
        """The rows that are looked up."""
        sizes = parts_of(self._rows, self._factor)
        assert sizes is not None, "checked before"
        size, start = sizes[0], self._rows - sizes[-1]
        attributes: AttributeMap = {"axis": 0, "split": sizes}
        parts = build(
            self._graph, "Split", [self._table], attributes, settings=self._settings
        ).outputs
        places = self._counted_from_zero()
        zero = self._number(0)
        # From the last part to the first.  What is no row of the table is left to the last part:
        # a lookup there has the same to say about it as one in the whole table.
        local = self._emit("Sub", places, self._number(start))
        before = self._emit("Less", places, self._number(start))
        found = self._lookup(parts[-1], self._emit("Where", before, zero, local))
        for number in reversed(range(self._factor - 1)):
            local = self._emit("Sub", places, self._number(number * size))
            own = self._emit("Less", places, self._number((number + 1) * size))
            within = own
            if number:
                reached = self._emit("GreaterOrEqual", places, self._number(number * size))
                within = self._emit("And", own, reached)
            rows = self._lookup(parts[number], self._emit("Where", within, local, zero))
            found = self._emit("Where", self._per_row(own), rows, found)
        return found

    def _counted_from_zero(self) -> Tensor:
        """The indices; those that count from the end otherwise, and wrong ones beyond the end."""
        indices = self._indices
        if not indices.type.dtype.is_signed:
            return indices
        zero, rows = self._number(0), self._number(self._rows)
        turned = self._emit("Add", indices, rows)
        places = self._emit("Where", self._emit("Less", indices, zero), turned, indices)
        return self._emit("Where", self._emit("Less", places, zero), rows, places)

    def _lookup(self, table: Tensor, indices: Tensor) -> Tensor:
        return build(
            self._graph, "Gather", [table, indices], {"axis": 0}, settings=self._settings
        ).output

    def _per_row(self, mask: Tensor) -> Tensor:
        shape = (*mask.type.shape, *(1 for _ in self._table.type.shape[1:]))
        return build(
            self._graph, "Reshape", [mask], {"shape": shape}, settings=self._settings
        ).output

    def _number(self, value: int) -> Tensor:
        dtype = self._indices.type.dtype
        return self._graph.add_constant(
            "row", TensorType(dtype, ()), np.asarray(value, dtype.storage)
        )

    def _emit(self, op_type: str, *inputs: Tensor) -> Tensor:
        return build(self._graph, op_type, inputs, settings=self._settings).output
