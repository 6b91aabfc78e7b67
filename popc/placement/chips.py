"""On which chip a value lies."""

from __future__ import annotations

from typing import Final

from popc.ir import Graph, Op, OpSettings, StepPart, Tensor, TensorKind, VariableRole
from popc.ir.attributes import integer
from popc.ops import OPS
from popc.ops.control import first_capture, inner_names, loop_body
from popc.ops.main_loops import ACCUMULATION_LOOP, PIPELINE, STEP_LOOP

__all__ = [
    "MAIN_LOOPS",
    "ChipsOfValues",
    "chip_of_results",
    "chip_of_variable",
    "is_main_loop",
    "main_graphs",
]

# Names of the bodies of the loops that popc itself puts around a program.  They run on all chips;
# every other control-flow op runs on one, with all that it holds.
MAIN_LOOPS: Final = frozenset({ACCUMULATION_LOOP, PIPELINE, STEP_LOOP})


def is_main_loop(op: Op) -> bool:
    """True if ``op`` is one of the loops around a program."""
    body = loop_body(op)
    return body is not None and body.name in MAIN_LOOPS


def main_graphs(graph: Graph) -> list[Graph]:
    """The top graph, and the bodies of the loops around what it does, outer first."""
    found = [graph]
    for part in found:  # grows while it is walked
        found.extend(op.subgraphs["body"] for op in part.holders if is_main_loop(op))
    return found


def chip_of_variable(variable: Tensor) -> int | None:
    """The chip of the first op that reads ``variable``; ``None`` if it may lie on any.

    First means in the earliest stage of the forward pass: that is where the gradient is complete.
    The host writes hyper-parameters to all chips.
    """
    if variable.role is VariableRole.HYPER_PARAMETER:
        return None
    settings = [(op.op_type, op.settings) for op in _users(variable)]
    placed = [(type_, setting) for type_, setting in settings if setting.virtual_graph is not None]
    if not placed:
        return None

    def turn(item: tuple[str, OpSettings]) -> tuple[bool, bool, int]:
        op_type, one = item
        late = one.part >= StepPart.BACKWARD
        return op_type == "CopyVarUpdate", late, one.pipeline_stage or 0

    return min(placed, key=turn)[1].virtual_graph


def chip_of_results(op: Op) -> int | None:
    """The chip of what ``op``, which is no main loop, gives; ``None`` if that is not settled."""
    if op.op_type == "IpuCopy":
        return integer(op.attributes, "destination")
    return op.settings.virtual_graph


class ChipsOfValues:
    """The chips of the tensors of a program, as its ops are placed now.

    What the compiler or the host can put on any chip has no home: constants, what is computed
    from them alone, and hyper-parameters.
    """

    def __init__(self, graph: Graph) -> None:
        # What a body's input stands for: the op that holds the body, and the number of its operand.
        self._formals: dict[Tensor, tuple[Op, int]] = {}
        self._known: dict[Tensor, int | None] = {}
        self._fixed: dict[Tensor, bool] = {}
        for nested in graph.walk():
            for op in nested.ops:
                self._note(op)
            for op in nested.topological():
                fixed = self._computes_constants(op)
                self._fixed.update(dict.fromkeys(op.outputs, fixed))

    def _note(self, op: Op) -> None:
        if not op.subgraphs:
            return
        shift = 1 if op.op_type == "If" else 0
        for nested in op.subgraphs.values():
            for index, formal in enumerate(nested.inputs):
                self._formals[formal] = (op, index + shift)

    def _computes_constants(self, op: Op) -> bool:
        spec = OPS.get(op.op_type)
        if spec is None or spec.random or spec.side_effect or op.subgraphs:
            return False
        return all(self.is_fixed(tensor) for tensor in op.present_inputs)

    def is_fixed(self, tensor: Tensor) -> bool:
        """True if ``tensor`` is a constant, or computed from constants and loop counters alone."""
        if tensor.is_constant:
            return True
        if tensor in self._formals:
            op, index = self._formals[tensor]
            if is_main_loop(op) and index < _FIRST_STATE:
                return True  # every chip counts iterations itself
            operand = op.optional(index)
            captured = index >= first_capture(op)
            return captured and operand is not None and self.is_fixed(operand)
        return self._fixed.get(tensor, False)

    def of(self, tensor: Tensor) -> int | None:
        """The chip that ``tensor`` lies on; ``None`` if on any, or if that is not settled yet."""
        if tensor not in self._known:
            self._known[tensor] = None  # a state that is handed on as it is
            self._known[tensor] = self._find(tensor)
        return self._known[tensor]

    def _find(self, tensor: Tensor) -> int | None:
        if tensor.off_chip or (tensor.producer and tensor.producer.op_type == "RemoteStore"):
            return None  # in streaming memory, from which every chip can fetch
        if tensor.kind is TensorKind.VARIABLE:
            return chip_of_variable(tensor)
        if self.is_fixed(tensor):
            return None
        if tensor in self._formals:
            return self._of_formal(*self._formals[tensor])
        op = tensor.producer
        return None if op is None else self._of_result(op, op.outputs.index(tensor))

    def _of_formal(self, op: Op, index: int) -> int | None:
        own = op.settings.virtual_graph
        if own is not None and not is_main_loop(op):
            return own
        operand = op.optional(index)
        if index >= first_capture(op):
            return None if operand is None else self.of(operand)
        body = loop_body(op)
        if body is None or operand is None:
            return None
        handed_on = self.of(body.outputs[index - 1])
        return self.of(operand) if handed_on is None else handed_on

    def _of_result(self, op: Op, index: int) -> int | None:
        body = loop_body(op)
        if body is not None and is_main_loop(op):
            return self.of(body.outputs[index + 1])
        return chip_of_results(op)


_FIRST_STATE: Final = 2  # operand of a Loop behind trip count and condition


def _users(tensor: Tensor) -> list[Op]:
    """The ops that read ``tensor``, in graphs that capture it too."""
    found: list[Op] = []
    for op in tensor.uses:
        if not is_main_loop(op):
            found.append(op)
            continue
        for inner in inner_names(op, tensor):
            found.extend(_users(inner))
    return found
