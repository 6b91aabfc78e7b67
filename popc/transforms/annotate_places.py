"""Annotations of ops by the place that they have: a chip, a stage of a pipeline, a pass."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Final, Self

from popc.ir import Graph, Op, StepPart
from popc.ops.partials import PARTIALS, SUMS_OF_PRODUCTS
from popc.options import Rule
from popc.options.annotations import fits
from popc.placement import last_stage
from popc.transforms.base import Pass
from popc.transforms.context import PassContext
from popc_runtime.errors import OptionError
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["AnnotatePlaces"]

_PARTS: Final = {
    "forward": (StepPart.FORWARD, StepPart.ASIDE),
    "backward": (StepPart.BACKWARD,),
    "update": (StepPart.UPDATE,),
}


@frozen
class AnnotatePlaces(Pass):
    """Ops get what rules say of the chip, the stage or the pass that they are in.

    Before, with ``%a`` and ``%b`` in different stages::

        %a: float16[2,3] = MatMul(%x, @v)
        %b: float16[2,3] = MatMul(%a, @w)

    After, with a rule on the second stage that says ``partials_type = "half"``::

        %a: float16[2,3] = MatMul(%x, @v)
        %b: float16[2,3] = MatMul(%a, @w) partials='half'

    Stages are those of the forward pass; to each belong the ops of its backward pass, and the
    updates of the weights on its chip.
    """

    name: ClassVar[str] = "annotate_places"
    optional: ClassVar[bool] = False
    rules: tuple[tuple[int, Rule], ...] = ()

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        numbered = enumerate(context.options.annotate)
        return cls(tuple((number, rule) for number, rule in numbered if rule.is_by_place))

    def run(self, graph: Graph) -> int:
        """Annotate ops; how often.

        Raises:
            OptionError: lists rules that select no op.
        """
        if not self.rules:
            return 0
        ops = [op for nested in graph.walk() for op in nested.ops]
        last = last_stage(ops)
        chips = _chips_of_stages(ops)
        changes, problems = 0, list[str]()
        for number, rule in self.rules:
            found = [op for op in ops if _selects(rule, op, last, chips)]
            if not found:
                problems.append(f"annotate[{number}] selects no op: {rule}")
            for op in found:
                changes += _annotate(op, rule)
        if problems:
            raise OptionError(
                "annotate names places in which no op is",
                subject="annotate",
                details=tuple(problems),
                hint="popc compile --stop-after transform prints the ops with their places",
            )
        return changes


def _chips_of_stages(ops: Collection[Op]) -> Mapping[int, set[int]]:
    """The chips of each stage of the forward pass."""
    found: dict[int, set[int]] = {}
    for op in ops:
        stage, chip = op.settings.pipeline_stage, op.settings.virtual_graph
        if stage is not None and chip is not None and op.settings.part < StepPart.BACKWARD:
            found.setdefault(stage, set()).add(chip)
    return found


def _selects(rule: Rule, op: Op, last: int, chips: Mapping[int, set[int]]) -> bool:
    own = op.settings
    if rule.in_pass and own.part not in _PARTS[rule.in_pass]:
        return False
    if rule.on_virtual_graph is not None and own.virtual_graph != rule.on_virtual_graph:
        return False
    if rule.on_pipeline_stage is not None and not _is_of_stage(
        op, rule.on_pipeline_stage, last, chips
    ):
        return False
    names = {rule.nodes: [own.origin], rule.op_type: [op.op_type]}
    names[rule.output] = [tensor.name for tensor in op.outputs]
    return all(
        not pattern or any(fits(pattern, name) for name in given)
        for pattern, given in names.items()
    )


def _is_of_stage(op: Op, stage: int, last: int, chips: Mapping[int, set[int]]) -> bool:
    own = op.settings
    if own.part is StepPart.UPDATE:
        return own.virtual_graph in chips.get(stage, ())
    return own.pipeline_stage == (2 * last - stage if own.part is StepPart.BACKWARD else stage)


def _annotate(op: Op, rule: Rule) -> bool:
    before = op.settings, dict(op.attributes)
    for name, value in rule.settings:
        if name == "available_memory":
            (proportion,) = _numbers(value)
            op.settings = replace(op.settings, available_memory=proportion)
        elif name == "stochastic_rounding":
            op.settings = replace(op.settings, stochastic_rounding=bool(value))
        elif name == "schedule_priority":
            (priority,) = _numbers(value)
            op.settings = replace(op.settings, schedule_priority=priority)
        elif op.op_type in SUMS_OF_PRODUCTS and op.output.type.dtype is DType.FLOAT16:
            assert name == "partials_type", name
            op.attributes[PARTIALS] = str(value)
    return before != (op.settings, op.attributes)


def _numbers(value: object) -> Iterator[float]:
    values = value if isinstance(value, tuple) else (value,)
    return (float(number) for number in values)
