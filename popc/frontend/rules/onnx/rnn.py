"""Recurrent layers."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import ImportRule, Node
from popc.frontend.rules.common import default_domain
from popc.frontend.values import Value
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError

__all__ = [
    "LAYER_ACTIVATIONS",
    "LSTM_ACTIVATIONS",
    "RULES",
    "is_batch_first",
    "layer_attributes",
    "layer_lengths",
    "layer_results",
]

_DIRECTIONS: Final = {"forward": 1, "reverse": 1, "bidirectional": 2}

# Parameters of activation functions where the model gives none, as ONNX and onnxruntime have them.
_ALPHAS: Final = {
    "affine": 1.0,
    "elu": 1.0,
    "hardsigmoid": 0.2,
    "leakyrelu": 0.01,
    "scaledtanh": 1.0,
    "thresholdedrelu": 1.0,
}
_BETAS: Final = {"affine": 0.0, "hardsigmoid": 0.5, "scaledtanh": 1.0}
LSTM_ACTIVATIONS: Final = ("Sigmoid", "Tanh", "Tanh")
LAYER_ACTIVATIONS: Final = {
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": LSTM_ACTIVATIONS,
    "RNN": ("Tanh",),
}
_FUNCTIONS: Final = {*_ALPHAS, "relu", "sigmoid", "softplus", "softsign", "tanh"}


def _recurrent(activations: tuple[str, ...]) -> ImportRule:
    """The rule of a layer with these default activation functions."""

    def rule(node: Node) -> list[Value | None]:
        inputs = [node.optional(index) for index in range(8)]
        inputs[4] = layer_lengths(node, batch_first=is_batch_first(node))
        return [*layer_results(node, inputs, activations)]

    return rule


def is_batch_first(node: Node) -> bool:
    """True if samples come before steps (``layout``)."""
    return node.integer("layout", 0) == 1


def layer_results(
    node: Node, inputs: list[Tensor | None], activations: tuple[str, ...]
) -> list[Tensor]:
    """All outputs of all steps, and the last states, of a layer on eight operands."""
    attributes = layer_attributes(node, activations)
    batch_first = is_batch_first(node)
    if batch_first:
        inputs = [_swapped(node, x) if i in (0, 5, 6) else x for i, x in enumerate(inputs)]
    count = 8 if node.op_type == "LSTM" else 6
    y, *states = node.emit_all(node.op_type, inputs[:count], attributes)
    if batch_first:
        y = node.emit("Transpose", [y], {"perm": (2, 0, 1, 3)})
        states = [node.emit("Transpose", [state], {"perm": (1, 0, 2)}) for state in states]
    return [y, *states]


def layer_attributes(node: Node, activations: tuple[str, ...]) -> AttributeMap:
    """The attributes of a layer with these default activation functions."""
    direction = node.text("direction", "forward")
    if direction not in _DIRECTIONS:
        raise ModelError(f"unknown direction {direction!r}")
    return {
        "direction": direction,
        "clip": node.number("clip", 0.0),
        "linear_before_reset": node.integer("linear_before_reset", 0),
        "input_forget": node.integer("input_forget", 0),
        **_activations(node, activations * _DIRECTIONS[direction]),
    }


def layer_lengths(node: Node, *, batch_first: bool) -> Tensor | None:
    """The operand ``sequence_lens``, unless it is known to say that all steps count."""
    known = node.known(4)
    steps = node.input(0).type.shape[1 if batch_first else 0]
    return None if known is not None and (known >= steps).all() else node.optional(4)


def _swapped(node: Node, x: Tensor | None) -> Tensor | None:
    """[B, S or D, n] -> [S or D, B, n]."""
    return None if x is None else node.emit("Transpose", [x], {"perm": (1, 0, 2)})


def _activations(node: Node, default: tuple[str, ...]) -> AttributeMap:
    """Function names in lower case with their parameters.

    A list of parameters is consumed in order by those functions that have such a parameter.
    """
    names = tuple(name.lower() for name in node.texts("activations", default))
    if len(names) < len(default):
        raise ModelError(f"{len(default)} activation functions are needed, not {len(names)}")
    names = names[: len(default)]  # RNN's schema names two, whatever the direction
    unknown = [name for name in names if name not in _FUNCTIONS]
    if unknown:
        raise ModelError(f"unknown activation function {unknown[0]!r}")
    return {
        "activations": names,
        "alphas": _parameters(names, _ALPHAS, node.numbers("activation_alpha", ())),
        "betas": _parameters(names, _BETAS, node.numbers("activation_beta", ())),
    }


def _parameters(
    names: tuple[str, ...], defaults: dict[str, float], given: tuple[float, ...]
) -> tuple[float, ...]:
    values = iter(given)
    return tuple(next(values, defaults[name]) if name in defaults else 0.0 for name in names)


RULES: Final = default_domain(
    {op_type: _recurrent(activations) for op_type, activations in LAYER_ACTIVATIONS.items()}
)
