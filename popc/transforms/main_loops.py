"""Wrap the program in the step loop when a step covers several batches."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from popc.ir import Graph, Op, OpSettings, Tensor, TensorType
from popc.ops.build import build
from popc.options import ReturnType
from popc.transforms.base import Pass
from popc_runtime.errors import OptionError
from popc_runtime.format import DType

__all__ = ["MainLoops"]


@dataclass(frozen=True)
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
    constants only is hoisted out again by `HoistInvariants`.
    """

    name: ClassVar[str] = "main_loops"
    optional: ClassVar[bool] = False
    batches_per_step: int

    def run(self, graph: Graph) -> int:
        """Wrap ``graph``'s ops in a loop; 1 if done."""
        if self.batches_per_step == 1:
            return 0
        _refuse_sums_of_bool(graph)
        body = graph.split_off("stepLoop")
        iteration = body.add_input("iteration", TensorType(DType.INT64, ()))
        body.add_input("condition", TensorType(DType.BOOL, ()))
        body.add_output("condition", _constant(body, np.True_))
        carried: list[tuple[Op, Tensor]] = []
        for op in [op for op in body.ops if op.op_type == "HostStore"]:
            kind = ReturnType(str(op.attributes["return_type"]))
            if kind is ReturnType.EVERY_N:
                _store_periodically(body, op, iteration)
            elif kind is not ReturnType.ALL:
                carried.append((op, _carry(body, op, kind)))
        initial = [_zeros(graph, value.type) for _, value in carried]
        loop = graph.add_op(
            "Loop",
            [None, None, *initial],
            [value.type for _, value in carried],
            {"trip_count": self.batches_per_step, "conditional": 0, "states": len(carried)},
            settings=OpSettings(origin="stepLoop"),
            subgraphs={"body": body},
        )
        for (store, _), result in zip(carried, loop.outputs, strict=True):
            build(graph, "HostStore", [result], dict(store.attributes), settings=store.settings)
            body.remove_op(store)
        return 1


def _refuse_sums_of_bool(graph: Graph) -> None:
    stores = (op for op in graph.ops if op.op_type == "HostStore")
    wrong = [
        str(op.attributes["stream"])
        for op in stores
        if op.attributes["return_type"] == ReturnType.SUM.value
        and op.operand(0).type.dtype is DType.BOOL
    ]
    if wrong:
        raise OptionError(
            f"the return type of {', '.join(wrong)} is sum, but values of type bool have no sum",
            subject=wrong[0],
            hint=" ".join(f"--set {shlex.quote(f'anchors.{name}=all')}" for name in wrong),
        )


def _carry(body: Graph, store: Op, kind: ReturnType) -> Tensor:
    """Add the loop state behind a final or summed output; the value that the body hands on."""
    value = store.operand(0)
    state = body.add_input(f"{value.name}_state", value.type)
    if kind is ReturnType.SUM:
        value = build(body, "Add", [state, value], settings=OpSettings(origin="anchorSum")).output
    body.add_output(value.name, value)
    return value


def _store_periodically(body: Graph, store: Op, iteration: Tensor) -> None:
    """Make ``store`` conditional on the iteration being the last of its period."""
    value = store.operand(0)
    period = int(str(store.attributes["period"]))
    origin = OpSettings(origin="anchorEveryN")
    phase = build(
        body, "Mod", [iteration, _constant(body, np.int64(period))], {"fmod": 0}, settings=origin
    ).output
    due = build(
        body, "Equal", [phase, _constant(body, np.int64(period - 1))], settings=origin
    ).output
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
        settings=origin,
        subgraphs={"then_branch": then_branch, "else_branch": else_branch},
    )
    body.remove_op(store)


def _constant(graph: Graph, value: npt.ArrayLike) -> Tensor:
    array = np.asarray(value)
    return graph.add_constant("constant", TensorType(DType.of(array.dtype), ()), array)


def _zeros(graph: Graph, type_: TensorType) -> Tensor:
    """A tensor of zeros that takes no space in the archive."""
    zero = np.zeros((), type_.dtype.storage)
    scalar = graph.add_constant("zero", type_.with_shape(()), zero)
    return build(graph, "Expand", [scalar], {"shape": type_.shape}).output
