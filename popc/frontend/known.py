"""The values of tensors that follow from constants alone, computed when somebody asks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from popc.frontend.budget import ImportBudget
from popc.ir import Op, Tensor, TensorKind
from popc.ops.build import can_evaluate, evaluate
from popc_runtime.format import Array

__all__ = ["KnownValues", "freeze"]

# Values that decide shapes are small; a (damaged) model that makes them huge is not followed.
_MOST_BYTES: Final = 1 << 26


class KnownValues:
    """Each value is computed at most once.

    Bodies of control flow see what is around them by captures, and a capture has the value of
    what it stands for: it makes no difference in which graph somebody asks.
    """

    def __init__(self, budget: ImportBudget) -> None:
        self._budget = budget
        self.in_vain: dict[Tensor, None] = {}  # tensors whose values somebody asked for
        self.written: Collection[str] = ()  # variables that the model itself gives new values
        self._values: dict[Tensor, Array | None] = {}
        self._captured: dict[Tensor, Tensor] = {}  # input of a body -> tensor of the graph around

    def note_capture(self, inner: Tensor, outer: Tensor) -> None:
        """Let ``inner``, an input of a body, stand for ``outer`` of the graph around it."""
        self._captured[inner] = outer

    def value(self, tensor: Tensor) -> Array | None:
        """The value of ``tensor``, ``None`` if run-time values decide it."""
        tensor = self.source(tensor)
        if tensor.data is not None:
            return tensor.data
        if 0 in tensor.type.shape:  # without elements there is only one value
            return np.empty(tensor.type.shape, tensor.type.dtype.storage)
        values = self._values
        if tensor not in values:
            values[tensor] = None
            for op in self._constant_producers(tensor):
                self._budget.compute(sum(t.type.nbytes for t in op.outputs))
                operands = [None if t is None else self._computed(t) for t in op.inputs]
                for output, value in zip(op.outputs, evaluate(op, operands), strict=True):
                    values[output] = value
        if values[tensor] is None:
            self.in_vain[tensor] = None
        return values[tensor]

    def operands(self, tensor: Tensor) -> list[Tensor]:
        """The tensors that the producer of ``tensor`` reads, of whatever graph."""
        return [] if tensor.producer is None else self._operands(tensor.producer)

    def required(self, tensor: Tensor) -> Array | None:
        """Like `value`, but the weights that decide it stop being variables.

        A weight whose value decides a shape or an algorithm cannot be trained, and must not be
        what the model itself changes.
        """
        value = self.value(tensor)
        if value is not None:
            return value
        variables = self._deciding_variables(tensor)
        if any(variable.name in self.written for variable in variables):
            return None
        for variable in variables:
            freeze(variable)
        if variables:
            self._values.clear()
        return self.value(tensor) if variables else None

    def source(self, tensor: Tensor) -> Tensor:
        """The tensor that ``tensor`` is or, through however many bodies, captures."""
        while tensor in self._captured:
            tensor = self._captured[tensor]
        return tensor

    def _operands(self, op: Op) -> list[Tensor]:
        return [self.source(tensor) for tensor in op.present_inputs]

    def _computed(self, tensor: Tensor) -> Array | None:
        tensor = self.source(tensor)
        return tensor.data if tensor.data is not None else self._values[tensor]

    def _constant_producers(self, tensor: Tensor) -> list[Op]:
        """Ops to evaluate for ``tensor``, producers first; none if run-time values decide it."""
        order: list[Op] = []
        seen: set[Op] = set()
        stack: list[tuple[Tensor, bool]] = [(tensor, False)]
        while stack:
            current, done = stack.pop()
            op = current.producer
            if current.data is not None or (op is not None and op in seen and not done):
                continue
            if self._values.get(current) is not None:
                continue
            if op is None or not can_evaluate(op) or current.type.nbytes > _MOST_BYTES:
                return []
            if done:
                order.append(op)
                continue
            seen.add(op)
            stack.append((current, True))
            stack.extend((t, False) for t in self._operands(op))
        return order

    def _deciding_variables(self, tensor: Tensor) -> list[Tensor]:
        """The variables that ``tensor`` follows from; none if anything else varies too."""
        found: dict[Tensor, None] = {}
        queue = [self.source(tensor)]
        pending = dict.fromkeys(queue)
        for current in queue:  # grows while it is walked
            if current.kind is TensorKind.VARIABLE:
                found[current] = None
            elif current.producer is not None and can_evaluate(current.producer):
                new = [each for each in self._operands(current.producer) if each not in pending]
                pending.update(dict.fromkeys(new))
                queue.extend(new)
            elif current.data is None:
                return []
        return list(found)


def freeze(variable: Tensor) -> None:
    """Make a constant of a variable that nothing writes to: its initial value."""
    assert variable.kind is TensorKind.VARIABLE, variable
    type_, data = variable.type, variable.initial
    variable.data = np.zeros(type_.shape, type_.dtype.storage) if data is None else data
    variable.kind, variable.initial, variable.role = TensorKind.CONSTANT, None, None
