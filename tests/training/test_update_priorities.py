"""Options about when weights are updated and gradients added up."""

from __future__ import annotations

from itertools import dropwhile
from typing import Any

from popc.compiler import Planned
from popc.ir import Op, StepPart
from popc.ops.control import loop_body
from tests.training.deep import compiled, deep_mlp


def _main_order(done: Planned) -> list[Op]:
    return list(done.schedule.orders[done.graph])


def test_updates_are_delayed() -> None:
    def parts(done: Planned) -> list[bool]:
        return [op.settings.part is StepPart.UPDATE for op in _main_order(done)]

    early, late = parts(compiled(deep_mlp(3))), parts(compiled(deep_mlp(3), delayVarUpdates=True))
    assert all(dropwhile(lambda is_update: not is_update, late))
    assert not all(dropwhile(lambda is_update: not is_update, early))
    assert sum(early) == sum(late)


def test_gradients_are_added_up_early() -> None:
    """No op of the backward pass runs between a gradient and its sum."""

    def distance(**options: Any) -> int:
        done = compiled(deep_mlp(3), accumulation_factor=2, **options)
        (body,) = filter(None, map(loop_body, done.graph.ops))
        numbers = {op: number for number, op in enumerate(done.schedule.orders[body])}
        sums = [op for op in numbers if op.settings.part is StepPart.UPDATE]
        assert sums
        return sum(
            numbers[op] - max(numbers[t.producer] for t in op.inputs if t and t.producer in numbers)
            for op in sums
        )

    assert distance(scheduleNonWeightUpdateGradientConsumersEarly=True) < distance()
