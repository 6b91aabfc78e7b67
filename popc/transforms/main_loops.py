"""Wrap the program in the step loop and the accumulation loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from popc.ir import Graph, Op, OpSettings, Tensor, TensorType
from popc.ir.attributes import integer, text
from popc.ops.build import build
from popc.ops.main_loops import STEP_LOOP
from popc.options import ReturnType
from popc.options.anchors import asking_for_all
from popc.transforms.base import Pass
from popc.transforms.context import PassContext
from popc_runtime.errors import OptionError
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    from popc.transforms.loop_states import MainLoopState

__all__ = ["MainLoops"]


@frozen
class MainLoops(Pass):
    """With ``batches_per_step`` > 1, everything becomes the body of one Loop.

    Before::

        %x = HostLoad() stream='x'
        %y = Relu(%x)
        HostStore(%y) return_type='final' stream='y'

    After::

        %y = Loop(-, -, %zeros) states=1 trip_count=4
          body = graph stepLoop(%iteration, %condition, %y_state) {
            %x = HostLoad() stream='x'
            %y = Relu(%x)
            return True, %y
          }
        HostStore(%y) return_type='final' stream='y'

    Stores of all values stay in the body; a store of every n-th value moves into an If; of final
    values and sums, the loop carries the value and the store moves behind it.  What depends on
    constants only is hoisted out again by `HoistInvariants`.  Variables stay outside and are
    captured.

    With ``accumulation_factor`` > 1, what makes up a micro-batch becomes the body of a loop of its
    own before that: see `split_accumulation`.
    """

    name: ClassVar[str] = "main_loops"
    optional: ClassVar[bool] = False
    batches_per_step: int
    accumulation_factor: int = 1
    accumulate_rows: bool = False

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        options = context.options
        return cls(
            options.batches_per_step, options.accumulation_factor, options.accumulate_lookup_rows
        )

    def run(self, graph: Graph) -> int:
        """Wrap ``graph``'s ops in loops; how many."""
        loops = 0
        if self.batches_per_step * self.accumulation_factor > 1:
            _refuse_sums_of_bool(graph)
        if self.accumulation_factor > 1:
            from popc.transforms.accumulation import split_accumulation

            split_accumulation(graph, self.accumulation_factor, by_row=self.accumulate_rows)
            loops += 1
        if self.batches_per_step > 1:
            _add_step_loop(graph, self.batches_per_step)
            loops += 1
        return loops


def _add_step_loop(graph: Graph, count: int) -> None:

    body = graph.split_off(STEP_LOOP)
    iteration = body.add_input("iteration", TensorType(DType.INT64, ()))
    body.add_input("condition", TensorType(DType.BOOL, ()))
    states: list[MainLoopState] = []
    from popc.transforms.loop_states import capture_variables, carry_store, make_loop

    for op in [op for op in body.ops if op.op_type == "HostStore"]:
        kind = ReturnType(text(op.attributes, "return_type"))
        if kind is ReturnType.EVERY_N:
            _store_periodically(body, op, iteration)
        elif kind is not ReturnType.ALL:
            states.append(carry_store(graph, body, op, kind))
    variables = capture_variables(graph, body)
    loop = make_loop(graph, body, states, variables, count)
    for state, result in zip(states, loop.outputs, strict=True):
        state.finish(result)


def _refuse_sums_of_bool(graph: Graph) -> None:
    stores = (op for op in graph.ops if op.op_type == "HostStore")
    wrong = [
        text(op.attributes, "stream")
        for op in stores
        if op.attributes["return_type"] == ReturnType.SUM.value
        and op.operand(0).type.dtype is DType.BOOL
    ]
    if wrong:
        raise OptionError(
            f"the return type of {', '.join(wrong)} is sum, but values of type bool have no sum",
            subject=wrong[0],
            hint=asking_for_all(wrong),
        )


def _store_periodically(body: Graph, store: Op, iteration: Tensor) -> None:
    """Make ``store`` conditional on the iteration being the last of its period."""
    value = store.operand(0)
    period = integer(store.attributes, "period")
    origin = OpSettings(origin="anchorEveryN")
    from popc.transforms.loop_states import scalar_constant

    divisor, last = (scalar_constant(body, number, DType.INT64) for number in (period, period - 1))
    phase = build(body, "Mod", [iteration, divisor], {"fmod": 0}, settings=origin).output
    due = build(body, "Equal", [phase, last], settings=origin).output
    then_branch, else_branch = Graph("store"), Graph("skip")
    for branch in (then_branch, else_branch):
        branch.add_input(value.name, value.type)
    build(
        then_branch,
        "HostStore",
        [then_branch.inputs[0]],
        dict(store.attributes),
        settings=store.settings,
    )
    body.add_op(
        "If",
        [due, value],
        [],
        {"taken": (1, period)},
        settings=origin,
        subgraphs={"then_branch": then_branch, "else_branch": else_branch},
    )
    body.remove_op(store)
