"""One update for the elements of several weights.

The rules of optimizers see one weight: a row [1, n] of elements, with a row of gradients.  Weights
and state stay variables of their own, which memory planning puts next to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from popc.ir import AttributeMap, Graph, OpSettings, Tensor, TensorType
from popc.ops.build import build
from popc.optimizers.update import COUNTER_TYPE, UPDATED, Initial, WeightUpdate
from popc_runtime.format import DType

__all__ = ["Member", "MergedUpdate"]

_WEIGHTS: Final = "concatWeights___"
_GRADIENTS: Final = "concatGrads___"
_MERGED: Final = "updated___"


class Member(NamedTuple):
    """Elements ``start`` to ``end`` of a weight."""

    update: WeightUpdate
    start: int
    end: int

    @property
    def is_whole(self) -> bool:
        """True if these are all elements."""
        return self.end - self.start == self.update.weight.type.size

    @property
    def label(self) -> str:
        """The part that distinguishes names, as in PopART."""
        return f"_{self.update.weight.name}_s{self.start}_e{self.end}"


class MergedUpdate(WeightUpdate):
    """The update of ``members``, whose arithmetic is the same.

    Attributes:
        members: The elements of weights that are updated, in order.
    """

    def __init__(self, graph: Graph, members: Sequence[Member]) -> None:
        first = members[0].update
        last = members[-1].label if len(members) > 1 else ""
        self._label = f"{members[0].label}{last}"
        self._graph, self.members = graph, members
        self._settings = OpSettings(origin=f"Optimizer{self._label}")
        weight = self._row(_WEIGHTS, lambda update: update.weight)
        gradient = self._row(_GRADIENTS, lambda update: update.gradient)
        super().__init__(
            graph, weight, gradient, first.scale, first.scalars, first.resolution, first.sharing
        )
        self.name = first.name
        self._settings = OpSettings(origin=f"Optimizer{self._label}")
        self._variables: dict[Tensor, list[Tensor]] = {
            weight: [member.update.weight for member in members]
        }

    # -- rows ------------------------------------------------------------------------------------

    def _row(self, prefix: str, part: Callable[[WeightUpdate], Tensor]) -> Tensor:
        """The elements of all members, of what ``part`` says."""
        rows = [self._piece(part(member.update), member) for member in self.members]
        return self._joined(rows, f"{prefix}{self._label}")

    def _piece(self, tensor: Tensor, member: Member) -> Tensor:
        size, name = tensor.type.size, f"{tensor.name}_s{member.start}_e{member.end}"
        flat = self._emit("Reshape", [tensor], f"flattened___{name}", shape=(1, size))
        if member.is_whole:
            return flat
        sizes = (1, member.end - member.start)
        cut = {"starts": (0, member.start), "sizes": sizes, "steps": (1, 1)}
        return self._emit("Slice", [flat], f"sliced___{name}", **cut)

    def _joined(self, rows: Sequence[Tensor], name: str) -> Tensor:
        return self._emit("Concat", rows, name, axis=1)

    def _parts(self, row: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """``row`` cut again."""
        if len(sizes) == 1:
            return [row]
        cut: AttributeMap = {"axis": 1, "split": tuple(sizes)}
        return build(self._graph, "Split", [row], cut, settings=self._settings).outputs

    def _emit(
        self,
        op_type: str,
        operands: Sequence[Tensor],
        name: str,
        **attributes: int | tuple[int, ...],
    ) -> Tensor:
        return build(
            self._graph,
            op_type,
            operands,
            {**attributes},
            output_names=[name],
            settings=self._settings,
        ).output

    # -- state -----------------------------------------------------------------------------------

    def state(self, prefix: str, type_: TensorType, initial: Initial | None = None) -> Tensor:
        """The elements of variables, one for each weight."""
        variables: list[Tensor] = []
        for update in (member.update for member in self.members):
            own = update.weight.type.with_dtype(type_.dtype)
            variables.append(update.variable(prefix, own, initial))
        pieces = [
            self._piece(variable, member)
            for variable, member in zip(variables, self.members, strict=True)
        ]
        row = self._joined(pieces, f"concat{prefix}{self._label}")
        self._variables[row] = variables
        self.states[row] = None
        return row

    def counter(self, prefix: str) -> Tensor:
        """The count of the first weight; each weight has its own, and counts once."""
        updates = dict.fromkeys(member.update for member in self.members)
        new = [update for update in updates if prefix not in update.variables]
        if new:
            self._count(prefix, new)
        return self.members[0].update.counts[prefix]

    def _count(self, prefix: str, updates: Sequence[WeightUpdate]) -> None:
        counters = [update.variable(prefix, COUNTER_TYPE) for update in updates]
        rows = [
            self._emit("Reshape", [counter], f"flattened___{counter.name}", shape=(1, 1))
            for counter in counters
        ]
        one = self.scalars.operand(1.0, DType.FLOAT32)
        row = self._joined(rows, f"concat{prefix}{self._label}")
        counted = build(self._graph, "Add", [row, one], settings=self._settings).output
        parts = self._parts(counted, [1] * len(counters))
        for update, counter, part in zip(updates, counters, parts, strict=True):
            value = self._emit("Reshape", [part], f"{UPDATED}{counter.name}", shape=())
            update.counts[prefix] = value
            self._copy(counter, value)

    # -- storing ---------------------------------------------------------------------------------

    def store(self, target: Tensor, value: Tensor) -> None:
        """Give the variables behind ``target`` their elements of ``value``."""
        self._graph.rename(value, f"{_MERGED}{target.name}")
        parts = self._parts(value, [member.end - member.start for member in self.members])
        for part, variable, member in zip(
            parts, self._variables[target], self.members, strict=True
        ):
            if member.is_whole:
                shape, name = variable.type.shape, f"{UPDATED}{variable.name}"
                self._copy(variable, self._emit("Reshape", [part], name, shape=shape))
                continue
            member.update.parts.setdefault(variable, []).append((member.start, part))
            copied = {"start": member.start}
            build(
                self._graph, "CopyVarUpdate", [variable, part], {**copied}, settings=self._settings
            )

    def _copy(self, variable: Tensor, value: Tensor) -> None:
        build(self._graph, "CopyVarUpdate", [variable, value], settings=self._settings)
