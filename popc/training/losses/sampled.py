"""Losses over many classes of which only some are looked at: nce and sampled softmax.

Formulas are those of TensorFlow's ``nn_impl`` (``nce_loss``, ``sampled_softmax_loss``).  Which
classes to compare with is drawn by `popc.training.losses.sampler`.
"""

from __future__ import annotations

from typing import Final

from popc.ir import AttributeMap, Tensor
from popc.ops.loss_forms import reduced
from popc.training.losses.sampler import LossEmitter, Sample, draw
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["noise_contrastive", "sampled_softmax"]

# What a class counts that is drawn although it is the right one: as good as nothing.
_IMPOSSIBLE: Final = {DType.FLOAT16: -3e4}
_IMPOSSIBLE_ELSE: Final = -1e30


def noise_contrastive(b: LossEmitter) -> Tensor:
    """The cross entropy of telling right classes from those that are drawn: a sigmoid for each.

    Of a sample that is the sum over its classes and the drawn ones; each of several right classes
    counts as right by its share.
    """
    right, drawn, _ = _scores(b)
    losses = [
        _sum(b, b.emit("Sub", [b.emit("Softplus", [right]), _shared(b, right)])),
        _sum(b, b.emit("Softplus", [drawn])),
    ]
    return reduced(b, b.emit("Add", [*losses]), b.spec.reduction)


def sampled_softmax(b: LossEmitter) -> Tensor:
    """The cross entropy of a softmax over the right classes and those that are drawn."""
    right, drawn, hits = _scores(b)
    dtype = right.type.dtype
    impossible = b.constant(_IMPOSSIBLE.get(dtype, _IMPOSSIBLE_ELSE), dtype)
    drawn = b.emit("Add", [drawn, b.emit("Mul", [hits, impossible])])
    scores = b.emit("Concat", [right, drawn], {"axis": 1})
    probabilities = b.emit("LogSoftmax", [scores], {"axis": 1})
    cut: AttributeMap = {"starts": (0, 0), "sizes": right.type.shape, "steps": (1, 1)}
    own = _shared(b, b.emit("Slice", [probabilities], cut))
    return reduced(b, b.emit("Neg", [_sum(b, own)]), b.spec.reduction)


def _shared(b: LossEmitter, x: Tensor) -> Tensor:
    """``x`` [N, T] by the share of each right class."""
    if b.spec.num_true == 1:
        return x
    return b.emit("Mul", [x, b.constant(1 / b.spec.num_true, x.type.dtype)])


def _scores(b: LossEmitter) -> tuple[Tensor, Tensor, Tensor]:
    """Scores [N, T] of right classes and [N, S] of drawn ones, less what they gain by luck.

    Also, as numbers [N, S]: which of the drawn classes are right ones.
    """
    table, biases = _classes(b)
    rows, width = b.input.type.shape
    true = b.spec.num_true
    label = b.labels(b.spec.label, (rows,) if true == 1 else (rows, true))
    sample = draw(b, table.type.shape[0])
    right = _right_scores(b, table, label)
    drawn_rows = b.emit("Gather", [table, sample.classes], {"axis": 0})
    columns = b.emit("Transpose", [drawn_rows], {"perm": (1, 0)})
    assert columns.type.shape[0] == width
    drawn = b.emit("MatMul", [b.input, columns])
    if biases is not None:
        of_label = b.reshaped(b.emit("Gather", [biases, label], {"axis": 0}), (rows, true))
        right = b.emit("Add", [right, of_label])
        drawn = b.emit("Add", [drawn, b.emit("Gather", [biases, sample.classes], {"axis": 0})])
    dtype = b.input.type.dtype
    luck = b.reshaped(sample.log_expected(label, dtype), (rows, true))
    right = b.emit("Sub", [right, luck])
    drawn = b.emit("Sub", [drawn, sample.log_expected(sample.classes, dtype)])
    return right, drawn, _hits(b, label, sample)


def _right_scores(b: LossEmitter, table: Tensor, label: Tensor) -> Tensor:
    """Products [N, T] of each sample with the weights of its right classes."""
    rows, width = b.input.type.shape
    chosen = b.emit("Gather", [table, label], {"axis": 0})
    if label.type.rank == 1:
        return b.reshaped(_sum(b, b.emit("Mul", [chosen, b.input])), (rows, 1))
    single = b.reshaped(b.input, (rows, 1, width))
    products = b.emit("Mul", [chosen, single])
    return b.emit("ReduceSum", [products], {"axes": (2,), "keepdims": 0})


def _hits(b: LossEmitter, label: Tensor, sample: Sample) -> Tensor:
    """Numbers [N, S]: 1 where a drawn class is a right one of a sample, else 0."""
    classes = sample.classes
    column = b.reshaped(label, (*label.type.shape, 1))
    if column.type.dtype is not classes.type.dtype:
        column = b.emit("Cast", [column], {"to": classes.type.dtype.value})
    same = b.emit("Equal", [column, classes])
    hits = b.emit("Cast", [same], {"to": b.input.type.dtype.value})
    if label.type.rank == 1:
        return hits
    return b.emit("ReduceMax", [hits], {"axes": (1,), "keepdims": 0})


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


def _sum(b: LossEmitter, x: Tensor) -> Tensor:
    """Sums over the last of two dimensions."""
    return b.emit("ReduceSum", [x], {"axes": (1,), "keepdims": 0})
