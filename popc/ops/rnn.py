"""Recurrent layers, with ONNX's operands in time-major layout, and their gradients.

Operands: X [S, B, I], W [D, G*H, I], R [D, G*H, H], optional bias [D, 2*G*H], optional lengths [B],
optional initial_h [D, B, H]; LSTM also: optional initial_c [D, B, H], optional peepholes [D, 3*H];
GRU also: optional attention [S, B], which makes the update gate z of a step (1 - attention) * z.
Results: Y [S, D, B, H], Y_h [D, B, H]; LSTM also: Y_c [D, B, H].

Attributes: direction; activations, alphas, betas: one per function and direction; clip (0: none);
GRU: linear_before_reset; LSTM: input_forget.

With attribute ``keep``, more results hold what the gradient needs, in float32 at least: the states
[h or h and c, D, S + 1, B, H], in order of time, a backward direction starting from the end; and
(not of RNN) the gates [K, D, S, B, H]: i, o, f, g(...), h(c) of LSTM; z, r, n of GRU, with the
product R h before n if linear_before_reset.

DynamicQuantizeLSTM has weights of bytes, W and R of int8, and four more operands [D, 4*H]: scale
and zero point (absent: 0) of each row of W, then of R.  What they are multiplied by is rounded to
bytes: X by the range of each sequence, over its steps, and the states by that of each row, with 0.

The gradient ops take the layer's eight operands (of which bias and initial states are not read),
states, gates, and the gradients of Y, Y_h and Y_c.  Attribute ``wanted`` lists the numbers of the
layer's operands whose gradients they give.

LinearAttention has a state [B, N, K, V], q [T, B, N, queries, K], k [T, B, N, 1, K],
v [T, B, N, 1, V], optional decay [T, B, N, 1 or K, 1] and beta [T, B, N, 1, 1]; results: answers
[T, B, N, queries, V] and the last state.  Its gradient takes these six, and the gradients of both
results.
"""

from __future__ import annotations

from typing import Final

from popc.ir import Shape, TensorType
from popc.ir.attributes import integer, integers, text
from popc.ops.infer import FLOATS, check_rank, one_dtype, operand, optional_operand
from popc.ops.spec import InferRule, OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]

_GATES: Final = {"GRU": 3, "LSTM": 4, "RNN": 1}
_STATES: Final = {"GRU": 1, "LSTM": 2, "RNN": 1}
_LENGTHS: Final = 4  # operand that holds whole numbers, whatever the others are


def _recurrent(kind: str) -> InferRule:
    """The type rule of a layer."""

    def infer(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
        _check_shapes(_operand_shapes(kind, inputs, attributes), inputs)
        one_dtype([type_ for index, type_ in enumerate(inputs) if index != _LENGTHS], FLOATS)
        results = _states(kind, inputs)
        if not integer(attributes, "keep", 0):
            return results
        x, (steps, directions, batch, hidden) = operand(inputs, 0), results[0].shape
        work = DType.FLOAT64 if x.dtype is DType.FLOAT64 else DType.FLOAT32
        states = TensorType(work, (_STATES[kind], directions, steps + 1, batch, hidden))
        kept = _kept_gates(kind, attributes)
        gates = TensorType(work, (kept, directions, steps, batch, hidden))
        return (*results, states, gates) if kept else (*results, states)

    return infer


def _quantized_lstm(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The type rule of an LSTM with weights of bytes."""
    shapes = _operand_shapes("LSTM", inputs, attributes)
    rows = shapes[1][1][:2]
    parameters = ("scale of W", "zero point of W", "scale of R", "zero point of R")
    _check_shapes([*shapes, *((name, rows) for name in parameters)], inputs)
    one_dtype([operand(inputs, 1), operand(inputs, 2), inputs[9], inputs[11]], (DType.INT8,))
    whole = (1, 2, _LENGTHS, 9, 11)
    floats = [type_ for index, type_ in enumerate(inputs) if index not in whole]
    one_dtype([*floats, operand(inputs, 8), operand(inputs, 10)], (DType.FLOAT32,))
    return _states("LSTM", inputs)


def _check_shapes(shapes: list[tuple[str, Shape]], inputs: OperandTypes) -> None:
    for (name, shape), type_ in zip(shapes, inputs, strict=False):
        if type_ is not None and type_.shape != shape:
            raise ModelError(f"{name} must have shape {list(shape)}, not {list(type_.shape)}")


def _states(kind: str, inputs: OperandTypes) -> tuple[TensorType, ...]:
    """The types of all states, and of the last ones."""
    x, (directions, _, hidden) = operand(inputs, 0), operand(inputs, 2).shape
    y = x.with_shape((x.shape[0], directions, x.shape[1], hidden))
    return (y, *(y.with_shape(y.shape[1:]),) * _STATES[kind])


def _kept_gates(kind: str, attributes: Attributes) -> int:
    if kind == "GRU":
        return 4 if integer(attributes, "linear_before_reset", 0) else 3
    return 5 if kind == "LSTM" else 0


def _operand_shapes(
    kind: str, inputs: OperandTypes, attributes: Attributes
) -> list[tuple[str, Shape]]:
    """Names and shapes of a layer's operands, as follows from X and R."""
    x, r = operand(inputs, 0), operand(inputs, 2)
    check_rank(x, 3, "X")
    check_rank(r, 3, "R")
    steps, batch, width = x.shape
    directions = 2 if text(attributes, "direction") == "bidirectional" else 1
    hidden = r.shape[2]
    rows = _GATES[kind] * hidden
    state = (directions, batch, hidden)
    shapes = [
        ("X", x.shape),
        ("W", (directions, rows, width)),
        ("R", (directions, rows, hidden)),
        ("B", (directions, 2 * rows)),
        ("sequence_lens", (batch,)),
        ("initial_h", state),
    ]
    if kind == "GRU":
        shapes.append(("attention", (steps, batch)))
    if kind == "LSTM":
        shapes += [("initial_c", state), ("P", (directions, 3 * hidden))]
    return shapes


def _gradient(kind: str) -> InferRule:
    """The type rule of a layer's gradient: the types of the wanted operands."""

    def infer(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
        shapes = _operand_shapes(kind, inputs, attributes)
        x = operand(inputs, 0)
        return tuple(x.with_shape(shapes[index][1]) for index in integers(attributes, "wanted"))

    return infer


def _linear_attention(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The answers, and the state after all tokens."""
    del attributes
    state, q = _linear_operands(inputs)
    return q.with_shape((*q.shape[:-1], state.shape[-1])), state


def _linear_attention_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The types of operands that are ``wanted``; the last two are gradients of the results."""
    _linear_operands(inputs)
    return tuple(operand(inputs, index) for index in integers(attributes, "wanted"))


def _linear_operands(inputs: OperandTypes) -> tuple[TensorType, TensorType]:
    """State and queries; what fits together is said in popc_runtime.kernels.rnn_linear."""
    state, q, k, v = (operand(inputs, index) for index in range(4))
    maybe = [optional_operand(inputs, index) for index in (4, 5)]
    rest = [type_ for type_ in maybe if type_ is not None]
    one_dtype([state, q, k, v, *rest], FLOATS)
    check_rank(state, 4, "the state")
    for type_ in (q, k, v, *rest):
        check_rank(type_, 5, "tokens")
    batch, heads, keys, values = state.shape
    outer = (q.shape[0], batch, heads)
    shapes = [(*outer, q.shape[3], keys), (*outer, 1, keys), (*outer, 1, values)]
    each = [(*outer, 1, 1), (*outer, keys, 1)]
    allowed = [each, each[:1]]  # of decay and beta
    fits = all(
        type_ is None or type_.shape in shapes_of
        for type_, shapes_of in zip(maybe, allowed, strict=True)
    )
    if [q.shape, k.shape, v.shape] != shapes or not fits:
        raise ModelError(f"{q}, {k} and {v} do not fit a state of {state}")
    return state, q


OPS: Final[dict[str, OpSpec]] = {
    "DynamicQuantizeLSTM": OpSpec(_quantized_lstm),
    "LinearAttention": OpSpec(_linear_attention),
    "LinearAttentionGrad": OpSpec(_linear_attention_grad),
    **{kind: OpSpec(_recurrent(kind)) for kind in _GATES},
    **{f"{kind}Grad": OpSpec(_gradient(kind)) for kind in _GATES},
}
