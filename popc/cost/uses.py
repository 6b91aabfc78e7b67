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
from popc.ir import Op, Tensor
from popc_runtime.ground.frozen import frozen

__all__ = ["CodeUses", "StageCall"]

# Exchanges that bring weights to vertices, where an op reads any.
_MOVING_WEIGHTS: Final = frozenset({"convolve", "gather", "scale and bias", "slice"})


@frozen
class StageCall:
    """A stage of a pipeline, called in one of its cycles.

    Attributes:
        cycle: Whether it is in the loop in which all stages run, and the number of its step.
        stage: The number of the stage; ``None`` for what belongs to none.
    """

    cycle: tuple[bool, int]
    stage: int | None


class CodeUses:
    """Steps of the ops of each chip."""

    def __init__(self, kinds: dict[Op, object]) -> None:
        """With the kinds of ops that are known; others are added."""
        self._kinds = kinds
        self._seen: set[tuple[int, object, tuple[Phase, ...]]] = set()
        self._uses: dict[int, list[CodeUse]] = {}
        # Of ops that are alike in a stage of a pipeline: how many a cycle has, and any has at most.
        self._in_cycle: Counter[object] = Counter()
        self._of_stage: Counter[object] = Counter()

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
        """
        if call is not None and op.op_type != "IpuCopy" and self._is_written_again(op, call):
            return
        key = chip, self._kind(op), phases  # equal for ops that do the same with other data
        numbers = enumerate(phases)
        weights = frozenset(number for number, phase in numbers if _moves_weights(op, phase))
        tiles = max((plan.splits.tiles for plan in plans), default=0)
        tiles = tiles or _tiles_of(op, machine, layouts)
        self._uses.setdefault(chip, []).append(CodeUse(phases, tiles, key in self._seen, weights))
        self._seen.add(key)

    def _is_written_again(self, op: Op, call: StageCall) -> bool:
        """True if another cycle has had as many such ops of its stage already."""
        alike = call.stage, op.settings.origin, self._kind(op)
        self._in_cycle[alike, call.cycle] += 1
        if self._in_cycle[alike, call.cycle] <= self._of_stage[alike]:
            return True
        self._of_stage[alike] += 1
        return False

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
