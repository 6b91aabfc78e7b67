"""One step of what a recurrent layer gives, from no more steps than it takes."""

from __future__ import annotations

from typing import Final

from popc.ir import AttributeMap, Graph, Op, Tensor, TensorType
from popc.ir.attributes import text
from popc.ops.build import build
from popc.transforms.match import is_read_once

__all__ = ["LAYERS", "one_step", "step_is_cheap"]

LAYERS: Final = ("GRU", "LSTM", "RNN")
_LENGTHS, _ATTENTION = 4, 6  # operands; the latter of GRU
_DIRECTIONS: Final = {
    "forward": ("forward",),
    "reverse": ("reverse",),
    "bidirectional": ("forward", "reverse"),
}
_OF_FUNCTIONS: Final = ("activations", "alphas", "betas")  # attributes


def step_is_cheap(graph: Graph, layer: Op, step: int) -> bool:
    """True if step number ``step`` is all that is read of a layer, the first or the last one."""
    steps = layer.outputs[0].type.shape[0]
    finals = layer.outputs[1:]
    read = any(tensor.uses or graph.is_output(tensor) for tensor in finals)
    whole = _directions(layer) == (_whole_direction(step, steps),)
    plain = not any(
        len(layer.inputs) > index and layer.inputs[index] is not None
        for index in (_LENGTHS, *((_ATTENTION,) if layer.op_type == "GRU" else ()))
    )
    ends = step in (0, steps - 1)
    return plain and ends and (whole or not read) and is_read_once(graph, layer.outputs[0])


def one_step(graph: Graph, layer: Op, step: int, type_: TensorType) -> Tensor:
    """Step number ``step`` of the first result of ``layer``, of which `step_is_cheap`."""
    directions = _directions(layer)
    if directions == (_whole_direction(step, layer.outputs[0].type.shape[0]),):
        state = layer.outputs[1]
    else:
        parts = _operands(graph, layer, len(directions))
        states = [
            _state(graph, layer, direction, [_steps(graph, layer, direction, step), *operands])
            for direction, operands in zip(directions, parts, strict=True)
        ]
        state = states[0]
        if len(states) > 1:
            state = build(graph, "Concat", states, {"axis": 0}, settings=layer.settings).output
    shape: AttributeMap = {"shape": type_.shape}
    return build(graph, "Reshape", [state], shape, settings=layer.settings).output


def _directions(layer: Op) -> tuple[str, ...]:
    return _DIRECTIONS[text(layer.attributes, "direction", "forward")]


def _whole_direction(step: int, steps: int) -> str | None:
    """The direction in which a step is the last one."""
    return "forward" if step == steps - 1 else "reverse" if step == 0 else None


def _operands(graph: Graph, layer: Op, count: int) -> list[list[Tensor | None]]:
    """All operands but the first, of each direction."""
    found: list[list[Tensor | None]] = [[] for _ in range(count)]
    for tensor in layer.inputs[1:]:
        parts: list[Tensor | None] = [tensor] * count
        if tensor is not None and count > 1:
            split: AttributeMap = {"axis": 0, "split": (1,) * count}
            parts = [*build(graph, "Split", [tensor], split, settings=layer.settings).outputs]
        for operands, part in zip(found, parts, strict=True):
            operands.append(part)
    return found


def _steps(graph: Graph, layer: Op, direction: str, step: int) -> Tensor:
    """The steps of the input that a direction goes until it comes to ``step``."""
    x = layer.operand(0)
    first, count = (0, step + 1) if direction == "forward" else (step, x.type.shape[0] - step)
    if count == x.type.shape[0]:
        return x
    attributes: AttributeMap = {
        "starts": (first, 0, 0),
        "sizes": (count, *x.type.shape[1:]),
        "steps": (1, 1, 1),
    }
    return build(graph, "Slice", [x], attributes, settings=layer.settings).output


def _state(graph: Graph, layer: Op, direction: str, operands: list[Tensor | None]) -> Tensor:
    """The last state of a direction."""
    directions = _directions(layer)
    attributes: AttributeMap = {**layer.attributes, "direction": direction}
    for name in _OF_FUNCTIONS:
        values = layer.attributes[name]
        assert isinstance(values, tuple), "there is one for each function"
        count, place = len(values) // len(directions), directions.index(direction)
        attributes[name] = values[place * count : (place + 1) * count]
    return build(graph, layer.op_type, operands, attributes, settings=layer.settings).outputs[1]
