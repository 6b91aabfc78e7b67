"""ai.graphcore, recurrent layers: PopART's LSTM, and those of TensorFlow for the IPU in its manner.

`LSTM` is PopART's (`builder.aiGraphcore.lstm`), and PopnnLSTM and PopnnDynamicLSTM; `GRU`,
`DynamicGRU` and `AUGRU` are PopnnGRU, PopnnDynamicGRU and PopnnAUGRU.  Inputs, in order:

* X [S, B, I].
* Weights of the input above those of the state: [G, I + H, H], gate by gate, or as TensorFlow has
  them, [I + H, G * H].  The gates are update, reset, candidate; of LSTM forget, input, candidate,
  output in the first form, and input, forget, candidate, output in the second.
* Biases [G, H], or [G, 2, H]: those of the input and those of the state; optional.
* Initial state: [B, H], of LSTM [2, B, H] with the output first and the cell second; optional.
* Lengths of the sequences, [B]; optional, but not for DynamicGRU.  Beyond them the output is zero
  and the state stays.
* AUGRU: attention scores [B, S]; the update gate is multiplied by 1 - score.

Results: the output [S, B, H], or the last one [B, H] if ``output_full_sequence`` is 0; the state
[B, H], of LSTM the cell; of LSTM also the last output, [B, H].

Attributes: ``output_full_sequence``; ``activation`` and ``recurrent_activation``, one of those
below; ``reset_after``: whether the reset gate applies after the product with the state's weights;
``time_major``: 0 if X and the full output have the batch first.
"""

from __future__ import annotations

from typing import Final

from popc.frontend.node import ImportRule, Node
from popc.frontend.rules.graphcore.operators import emit_zeros, graphcore_domain, takes
from popc.frontend.rules.moves import emit_reshape, emit_slice, emit_transpose
from popc.frontend.values import Value
from popc.ir import AttributeMap, Shape, Tensor
from popc_runtime.errors import ModelError

__all__ = ["RULES"]

# Name, alpha and beta of the same function in ai.onnx (softmax: of each row of units).
_ACTIVATIONS: Final = {
    "hard_sigmoid": ("hardsigmoid", 0.2, 0.5),
    "linear": ("affine", 1.0, 0.0),
    "relu": ("relu", 0.0, 0.0),
    "sigmoid": ("sigmoid", 0.0, 0.0),
    "softmax": ("softmax", 0.0, 0.0),
    "tanh": ("tanh", 0.0, 0.0),
}
_LENGTHS: Final = 4  # number of the operand
_ATTENTION: Final = 5  # likewise

# Where ai.onnx's gates i, o, f, c are among PopART's and TensorFlow's.
_POPART_GATES: Final = (1, 3, 0, 2)
_TENSORFLOW_GATES: Final = (0, 3, 1, 2)


def _lstm(node: Node) -> list[Value | None]:
    x = _sequence(node)
    batch = x.type.shape[1]
    order = _TENSORFLOW_GATES if node.input(1).type.rank == 2 else _POPART_GATES
    w, r = _weights(node, x, order)
    hidden = r.type.shape[2]
    initial = _checked(node, 3, "the initial state", (2, batch, hidden))
    h, c = (None, None) if initial is None else _pieces(node, initial, 0)
    operands = [x, w, r, _biases(node, order, hidden), _lengths(node, x), h, c]
    y, last, cell = node.emit_all("LSTM", operands, _attributes(node, recurrent=1, plain=2))
    last = emit_reshape(node, last, (batch, hidden))
    return [_output(node, y, last), emit_reshape(node, cell, (batch, hidden)), last]


def _gru(node: Node) -> list[Value | None]:
    x = _sequence(node)
    steps, batch, _ = x.type.shape
    w, r = _weights(node, x, (0, 1, 2))
    hidden = r.type.shape[2]
    initial = _checked(node, 3, "the initial state", (batch, hidden))
    h = None if initial is None else emit_reshape(node, initial, (1, batch, hidden))
    operands = [x, w, r, _biases(node, (0, 1, 2), hidden), _lengths(node, x), h]
    if node.op_type == "AUGRU":
        node.input(_ATTENTION)
        scores = _checked(node, _ATTENTION, "the attention", (batch, steps))
        operands.append(None if scores is None else emit_transpose(node, scores, (1, 0)))
    if node.op_type == "DynamicGRU":
        node.input(_LENGTHS)
    y, last = node.emit_all("GRU", operands, _attributes(node, recurrent=1, plain=1))
    last = emit_reshape(node, last, (batch, hidden))
    return [_output(node, y, last), last]


def _sequence(node: Node) -> Tensor:
    """X with the time first."""
    x = node.input(0)
    if x.type.rank != 3:
        raise ModelError(f"X must have 3 dimensions, not {x.type}")
    return x if node.integer("time_major", 1) else emit_transpose(node, x, (1, 0, 2))


def _output(node: Node, y: Tensor, last: Tensor) -> Tensor:
    """All outputs [S, 1, B, H], as the model wants them, or the last one."""
    if not node.integer("output_full_sequence", 1):
        return last
    steps, _, batch, hidden = y.type.shape
    y = emit_reshape(node, y, (steps, batch, hidden))
    return y if node.integer("time_major", 1) else emit_transpose(node, y, (1, 0, 2))


def _attributes(node: Node, *, recurrent: int, plain: int) -> AttributeMap:
    """``recurrent`` functions of gates, then ``plain`` ones."""
    functions = [
        *[_activation(node, "recurrent_activation", "sigmoid")] * recurrent,
        *[_activation(node, "activation", "tanh")] * plain,
    ]
    names, alphas, betas = zip(*functions, strict=True)
    return {
        "direction": "forward",
        "clip": 0.0,
        "linear_before_reset": int(node.integer("reset_after", 0) != 0),
        "input_forget": 0,
        "activations": names,
        "alphas": alphas,
        "betas": betas,
    }


def _activation(node: Node, attribute: str, default: str) -> tuple[str, float, float]:
    name = node.text(attribute, default)
    if name not in _ACTIVATIONS:
        raise ModelError(f"{attribute} {name!r} is not one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _weights(node: Node, x: Tensor, order: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """W [1, G * H, I] and R [1, G * H, H], with the gates in another order."""
    weights, gates, width = node.input(1), len(order), x.type.shape[2]
    if weights.type.rank == 2:
        rows, columns = weights.type.shape
        split = emit_reshape(node, weights, (rows, gates, columns // gates))
        weights = emit_transpose(node, split, (1, 0, 2))
    rank, shape = weights.type.rank, weights.type.shape
    if rank != 3 or shape != (gates, width + shape[2], shape[2]):
        raise ModelError(
            f"weights {node.input(1).type} are neither [{gates}, {width} + H, H] "
            f"nor [{width} + H, {gates} * H]"
        )
    weights = _reordered(node, weights, order)
    hidden = shape[2]
    parts: list[Tensor] = []
    for window in (range(width), range(width, width + hidden)):
        part = emit_slice(node, weights, [range(gates), window, range(hidden)])
        turned = emit_transpose(node, part, (0, 2, 1))
        parts.append(emit_reshape(node, turned, (1, gates * hidden, len(window))))
    return parts[0], parts[1]


def _biases(node: Node, order: tuple[int, ...], hidden: int) -> Tensor | None:
    """Biases of the input and of the state, [1, 2 * G * H]."""
    biases, gates = node.optional(2), len(order)
    if biases is None:
        return None
    if biases.type.shape == (gates, 2, hidden):
        both = emit_transpose(node, _reordered(node, biases, order), (1, 0, 2))
        return emit_reshape(node, both, (1, 2 * gates * hidden))
    if biases.type.shape != (gates, hidden):
        expected = f"[{gates}, {hidden}] nor [{gates}, 2, {hidden}]"
        raise ModelError(f"biases {biases.type} are neither {expected}")
    flat = emit_reshape(node, _reordered(node, biases, order), (1, gates * hidden))
    zeros = emit_zeros(node, flat.type.shape, flat.type.dtype)
    return node.emit("Concat", [flat, zeros], {"axis": 1})


def _reordered(node: Node, x: Tensor, order: tuple[int, ...]) -> Tensor:
    """``x`` with the elements of its first dimension in another order."""
    if order == tuple(range(len(order))):
        return x
    pieces = _pieces(node, x, 0)
    return node.emit("Concat", [pieces[index] for index in order], {"axis": 0})


def _pieces(node: Node, x: Tensor, axis: int) -> list[Tensor]:
    """``x`` cut into elements of a dimension, which stays as one of 1."""
    split = (1,) * x.type.shape[axis]
    return node.emit_all("Split", [x], {"axis": axis, "split": split})


def _lengths(node: Node, x: Tensor) -> Tensor | None:
    """The lengths, unless they are known to say that all steps count."""
    lengths = _checked(node, _LENGTHS, "the lengths", x.type.shape[1:2])
    if lengths is None:
        return None
    if not lengths.type.dtype.is_integer:
        raise ModelError(f"the lengths must be integers, not {lengths.type}")
    known = node.known(_LENGTHS)
    return None if known is not None and (known >= x.type.shape[0]).all() else lengths


def _checked(node: Node, index: int, what: str, shape: Shape) -> Tensor | None:
    """An optional operand of a known shape."""
    x = node.optional(index)
    if x is not None and x.type.shape != shape:
        raise ModelError(f"{what} must have shape {list(shape)}, not {list(x.type.shape)}")
    return x


RULES: Final[dict[tuple[str, str], ImportRule]] = graphcore_domain(
    {
        "AUGRU": takes(6, 6, _gru),
        "DynamicGRU": takes(5, 5, _gru),
        "GRU": takes(2, 5, _gru),
        "LSTM": takes(2, 5, _lstm),
    }
)
