"""Losses over many classes of which only some are looked at: nce and sampled softmax.

Formulas are those of TensorFlow's ``nn_impl`` (``nce_loss``, ``sampled_softmax_loss``).  Classes
are sorted by frequency; those to compare with are drawn by Zipf's law, with replacement:
P(k) = log((k + 2) / (k + 1)) / log(classes + 1).
"""

from __future__ import annotations

from math import log
from typing import Final, Protocol

from popc.ir import AttributeMap, Shape, Tensor
from popc.ops.loss_forms import OpEmitter, reduced
from popc.training.losses.spec import LossSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["LossEmitter", "noise_contrastive", "sampled_softmax"]

# What a class counts that is drawn although it is the right one: as good as nothing.
_IMPOSSIBLE: Final = {DType.FLOAT16: -3e4}
_IMPOSSIBLE_ELSE: Final = -1e30


class LossEmitter(OpEmitter, Protocol):
    """The graph that a loss is added to."""

    input: Tensor
    spec: LossSpec

    def find(self, name: str) -> Tensor:
        """A tensor to compute with."""
        ...

    def labels(self, name: str, shape: Shape) -> Tensor:
        """Integers: an existing tensor of ``shape``, or a new input."""
        ...

    def reshaped(self, x: Tensor, shape: Shape) -> Tensor:
        """``x`` in another shape."""
        ...


def noise_contrastive(b: LossEmitter) -> Tensor:
    """The cross entropy of telling the right class from those that are drawn: a sigmoid for each.

    Of a sample that is the sum over its classes and the drawn ones.
    """
    right, drawn, _ = _scores(b)
    losses = [
        _sum(b, b.emit("Sub", [b.emit("Softplus", [right]), right])),
        _sum(b, b.emit("Softplus", [drawn])),
    ]
    return reduced(b, b.emit("Add", [*losses]), b.spec.reduction)


def sampled_softmax(b: LossEmitter) -> Tensor:
    """The cross entropy of a softmax over the right class and those that are drawn."""
    right, drawn, hits = _scores(b)
    dtype = right.type.dtype
    impossible = b.constant(_IMPOSSIBLE.get(dtype, _IMPOSSIBLE_ELSE), dtype)
    drawn = b.emit("Add", [drawn, b.emit("Mul", [hits, impossible])])
    scores = b.emit("Concat", [right, drawn], {"axis": 1})
    probabilities = b.emit("LogSoftmax", [scores], {"axis": 1})
    cut: AttributeMap = {"starts": (0, 0), "sizes": right.type.shape, "steps": (1, 1)}
    losses = b.emit("Neg", [_sum(b, b.emit("Slice", [probabilities], cut))])
    return reduced(b, losses, b.spec.reduction)


def _scores(b: LossEmitter) -> tuple[Tensor, Tensor, Tensor]:
    """Scores [N, 1] of the right classes and [N, S] of the drawn ones, less what they gain by luck.

    Also, as numbers [N, S]: which of the drawn classes are the right one.
    """
    table, biases = _classes(b)
    rows, width = b.input.type.shape
    label = b.labels(b.spec.label, (rows,))
    samples = _samples(b, table.type.shape[0])
    chosen = b.emit("Gather", [table, label], {"axis": 0})
    right = b.reshaped(_sum(b, b.emit("Mul", [chosen, b.input])), (rows, 1))
    drawn_rows = b.emit("Gather", [table, samples], {"axis": 0})
    columns = b.emit("Transpose", [drawn_rows], {"perm": (1, 0)})
    assert columns.type.shape[0] == width
    drawn = b.emit("MatMul", [b.input, columns])
    if biases is not None:
        of_label = b.reshaped(b.emit("Gather", [biases, label], {"axis": 0}), (rows, 1))
        right = b.emit("Add", [right, of_label])
        drawn = b.emit("Add", [drawn, b.emit("Gather", [biases, samples], {"axis": 0})])
    count = samples.type.shape[0]
    classes = table.type.shape[0]
    right = b.emit("Sub", [right, b.reshaped(_log_expected(b, label, count, classes), (rows, 1))])
    drawn = b.emit("Sub", [drawn, _log_expected(b, samples, count, classes)])
    column = b.reshaped(label, (rows, 1))
    if column.type.dtype is not samples.type.dtype:
        column = b.emit("Cast", [column], {"to": samples.type.dtype.value})
    same = b.emit("Equal", [column, samples])
    return right, drawn, b.emit("Cast", [same], {"to": right.type.dtype.value})


def _classes(b: LossEmitter) -> tuple[Tensor, Tensor | None]:
    """The weights of the classes [C, dim], and their biases [C] if there are any."""
    if b.input.type.rank != 2:
        raise ModelError(f"it is {b.input.type}, but must be [samples, dim]")
    table = b.find(b.spec.weights)
    if table.type.rank != 2 or table.type.shape[1] != b.input.type.shape[1]:
        raise ModelError(
            f"the weights {b.spec.weights!r} are {table.type}, but must be [classes, "
            f"{b.input.type.shape[1]}]"
        )
    biases = b.find(b.spec.biases) if b.spec.biases else None
    if biases is not None and biases.type.shape != table.type.shape[:1]:
        raise ModelError(
            f"the biases {b.spec.biases!r} are {biases.type}, but must be "
            f"[{table.type.shape[0]}], one for each class"
        )
    return table, biases


def _samples(b: LossEmitter, classes: int) -> Tensor:
    """The classes to compare with, [S]: a tensor of the model, an input, or drawn."""
    count = b.spec.num_sampled
    assert count is not None, "checked with the settings"
    if b.spec.samples:
        return b.labels(b.spec.samples, (count,))
    wide = DType.FLOAT32
    drawn: AttributeMap = {"to": wide.value, "shape": (count,), "low": 0.0, "high": 1.0}
    uniform = b.emit("RandomUniform", [], drawn)
    power = b.emit("Exp", [b.emit("Mul", [uniform, b.constant(log(classes + 1), wide)])])
    number = b.emit("Floor", [b.emit("Sub", [power, b.constant(1.0, wide)])])
    within = b.emit("Clip", [number], {"min": 0.0, "max": float(classes - 1)})
    return b.emit("Cast", [within], {"to": b.spec.label_dtype.value})


def _log_expected(b: LossEmitter, ids: Tensor, count: int, classes: int) -> Tensor:
    """The logarithm of how often each class is drawn in ``count`` draws."""
    wide = DType.FLOAT32
    number = b.emit("Cast", [ids], {"to": wide.value})
    upper, lower = (b.emit("Add", [number, b.constant(x, wide)]) for x in (2.0, 1.0))
    share = b.emit("Log", [b.emit("Div", [upper, lower])])
    expected = b.emit("Log", [b.emit("Mul", [share, b.constant(count / log(classes + 1), wide)])])
    dtype = b.input.type.dtype
    return expected if dtype is wide else b.emit("Cast", [expected], {"to": dtype.value})


def _sum(b: LossEmitter, x: Tensor) -> Tensor:
    """Sums over the last of two dimensions."""
    return b.emit("ReduceSum", [x], {"axes": (1,), "keepdims": 0})
