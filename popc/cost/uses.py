"""The code that ops of a program need, as they are met in the order of execution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from popc.cost.codesize import CodeUse
from popc.cost.machine import Machine
from popc.cost.mapping import Layout, layout_of, linear_mapping
from popc.cost.phases import Phase
from popc.cost.planner import Plan
from popc.ir import Op, StepPart, Tensor
from popc_runtime.ground.frozen import frozen

__all__ = ["CodeUses", "Occurrences", "StageCall"]

# Exchanges that bring weights to vertices, where an op reads any.
_MOVING_WEIGHTS: Final = frozenset({"convolve", "gather", "scale and bias", "slice", "transpose"})


@frozen
class StageCall:
    """A stage of a pipeline, called in one of its cycles.

    Attributes:
        cycle: Whether it is in the loop in which all stages run, and the number of its step.
        stage: The number of the stage; ``None`` for what belongs to none.
    """

    cycle: tuple[bool, int]
    stage: int | None


class Occurrences:
    """The numbers of times that things occur in each of the places that share one text."""

    def __init__(self) -> None:
        self._in_place: Counter[object] = Counter()
        self._most: Counter[object] = Counter()

    def is_first(self, what: object, place: object) -> bool:
        """Count ``what`` in ``place``; whether no other place has had as many."""
        self._in_place[what, place] += 1
        if self._in_place[what, place] <= self._most[what]:
            return False
        self._most[what] += 1
        return True


class CodeUses:
    """Steps of the ops of each chip."""

    def __init__(self, kinds: dict[Op, object], *, outlines: bool = False) -> None:
        """With the kinds of ops that are known; others are added."""
        self._kinds = kinds
        self._outlines = outlines
        self._seen: set[tuple[int, object, tuple[Phase, ...]]] = set()
        self._uses: dict[int, list[CodeUse]] = {}
        # Of ops that are alike in a function: how many a call of it has, and any has at most.
        self._calls = Occurrences()

    def of(self, chip: int) -> Sequence[CodeUse]:
        """The steps of every op that ``chip`` runs."""
        return self._uses.get(chip, ())

    def note(
        self,
        op: Op,
        chip: int,
        phases: tuple[Phase, ...],
        plans: Sequence[Plan],
        machine: Machine,
        layouts: Mapping[Tensor, Layout],
        call: StageCall | None,
    ) -> None:
        """Add the steps of an op that has not been noted.

        What a stage of a pipeline computes is a function, graphs that it calls included.  Each
        cycle has a ``call`` of it: those that fill and flush the pipeline, and those of the loop.
        If outlining is asked for, so are the updates of weights that are alike.
        """
        if self._is_written_again(op, chip, call):
            return
        key = chip, self._kind(op), phases  # equal for ops that do the same with other data
        numbers = enumerate(phases)
        weights = frozenset(number for number, phase in numbers if _moves_weights(op, phase))
        tiles = max((plan.splits.tiles for plan in plans), default=0)
        tiles = tiles or _tiles_of(op, machine, layouts)
        self._uses.setdefault(chip, []).append(CodeUse(phases, tiles, key in self._seen, weights))
        self._seen.add(key)

    def _is_written_again(self, op: Op, chip: int, call: StageCall | None) -> bool:
        """True if another call of the function that ``op`` is in has had as many such ops."""
        if call is not None:
            alike = call.stage, op.settings.origin, self._kind(op)
            return op.op_type != "IpuCopy" and not self._calls.is_first(alike, call.cycle)
        if not self._outlines or op.settings.part is not StepPart.UPDATE:
            return False
        return not self._calls.is_first((chip, self._kind(op)), op.settings.origin)

    def _kind(self, op: Op) -> object:
        if op not in self._kinds:
            types = tuple(tensor.type for tensor in (*op.present_inputs, *op.outputs))
            attributes = str(sorted(op.attributes.items(), key=lambda item: item[0]))
            self._kinds[op] = op.op_type, types, attributes
        return self._kinds[op]


def _tiles_of(op: Op, machine: Machine, layouts: Mapping[Tensor, Layout]) -> int:
    """The tiles that have some of an operand or a result of ``op``."""
    most = 1
    for tensor in (*op.present_inputs, *op.outputs):
        type_, tiles = tensor.type, layout_of(layouts, tensor).tiles
        count = machine.target.compute_tiles
        most = max(most, tiles or linear_mapping(type_.size, type_.dtype, count).used)
    return most


def _moves_weights(op: Op, phase: Phase) -> bool:
    """True if the exchange of ``phase`` reads what lies where no other op has its own."""
    word, _, index = phase.name.partition(" ")
    if word == "operand" and index.isdigit():
        tensor = op.optional(int(index))
        return tensor is not None and _lasts(tensor)
    return phase.name in _MOVING_WEIGHTS and any(map(_lasts, op.present_inputs))


def _lasts(tensor: Tensor) -> bool:
    return tensor.kind.outlasts_runs and tensor.type.rank > 0
