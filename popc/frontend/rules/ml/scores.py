"""Rows, scores and classes: what the operators of ai.onnx.ml share.

The standard says little about scores of two classes; these are onnxruntime's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from popc.frontend.node import ImportRule, Node
from popc.frontend.rules.common import converted, reshaped, standard_op
from popc.frontend.values import TextValue, Value
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "ClassLabels",
    "add",
    "affine",
    "class_labels",
    "largest",
    "ml_domain",
    "post_transformed",
    "rows_of",
    "side_by_side",
    "two_scores",
]

_DOMAIN: Final = "ai.onnx.ml"
_ZERO: Final = 1e-7  # scores nearer to 0 than this are none, for SOFTMAX_ZERO
_OF_SINGLE: Final = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
_ERF: Final = 0.147  # of Winitzki's approximation of the inverse of erf


def ml_domain(rules: dict[str, ImportRule]) -> dict[tuple[str, str], ImportRule]:
    """Rules of ai.onnx.ml by op type, keyed as the rule table wants them."""
    return {(_DOMAIN, op_type): rule for op_type, rule in rules.items()}


def rows_of(node: Node, index: int = 0, *, doubles: bool = False) -> Tensor:
    """An operand as float32 rows [N, C] (with ``doubles``, float64 stays); a list is one row."""
    x = node.input(index)
    keeps = doubles and x.type.dtype is DType.FLOAT64
    x = x if keeps else converted(node, x, DType.FLOAT32)
    if x.type.rank not in (1, 2):
        raise ModelError(f"needs rows of features, not {x.type}")
    return reshaped(node, x, (1, x.type.shape[0])) if x.type.rank == 1 else x


def add(node: Node, x: Tensor, terms: npt.ArrayLike) -> Tensor:
    """``x`` plus numbers, which broadcast; itself if all are zero."""
    numbers = np.asarray(terms, x.type.dtype.storage)
    return node.emit("Add", [x, node.constant(numbers)]) if numbers.size and numbers.any() else x


def affine(node: Node, x: Tensor, rows: npt.ArrayLike, terms: npt.ArrayLike) -> Tensor:
    """Products of float32 rows ``x`` [N, C] with ``rows`` [K, C], plus ``terms``."""
    weights = np.ascontiguousarray(np.asarray(rows, np.float32).T)
    if weights.shape[0] != x.type.shape[1]:
        raise ModelError(
            f"there are {weights.shape[0]} coefficients for {x.type.shape[1]} features"
        )
    return add(node, node.emit("MatMul", [x, node.constant(weights)]), terms)


# -- scores ----------------------------------------------------------------------------------------


def post_transformed(node: Node, scores: Tensor, name: str) -> Tensor:
    """Scores [N, K] behind a post transform.

    Raises:
        ModelError: there is none of that name.
    """
    if name == "LOGISTIC":
        return node.emit("Sigmoid", [scores])
    if name == "SOFTMAX":
        return node.emit("Softmax", [scores], {"axis": 1})
    if name == "SOFTMAX_ZERO":
        return _softmax_of_some(node, scores)
    if name == "PROBIT":
        return _probit(node, scores)
    if name != "NONE":
        raise ModelError(f"there is no post transform {name!r}")
    return scores


def _softmax_of_some(node: Node, scores: Tensor) -> Tensor:
    """Softmax in which scores of 0 have no part, but are divided likewise."""
    number = node.constant(np.array(_ZERO, scores.type.dtype.storage))
    largest_ = standard_op(
        node, "ReduceMax", [scores, node.constant(np.array([1]))], {"keepdims": 1}
    )
    powers = node.emit("Exp", [node.emit("Sub", [scores, largest_])])
    inverse = node.emit("Exp", [node.emit("Neg", [largest_])])
    some = node.emit("Greater", [node.emit("Abs", [scores]), number])
    none = node.emit("Mul", [scores, inverse])
    zero = node.constant(np.zeros((), scores.type.dtype.storage))
    kept = node.emit("Where", [some, powers, zero])
    total = standard_op(node, "ReduceSum", [kept, node.constant(np.array([1]))], {"keepdims": 1})
    return node.emit("Div", [node.emit("Where", [some, powers, none]), total])


def _probit(node: Node, scores: Tensor) -> Tensor:
    """The quantile of the normal distribution, with Winitzki's inverse of erf."""
    storage = scores.type.dtype.storage

    def number(value: float) -> Tensor:
        return node.constant(np.array(value, storage))

    x = node.emit("Sub", [node.emit("Mul", [scores, number(2)]), number(1)])
    less, more = node.emit("Sub", [number(1), x]), node.emit("Add", [number(1), x])
    log = node.emit("Log", [node.emit("Mul", [less, more])])
    half = node.emit("Mul", [log, number(0.5)])
    v = node.emit("Add", [half, number(2 / (3.14159 * _ERF))])
    rest = node.emit("Sub", [node.emit("Mul", [v, v]), node.emit("Mul", [log, number(1 / _ERF)])])
    root = node.emit("Sqrt", [node.emit("Sub", [node.emit("Sqrt", [rest]), v])])
    negative = node.emit("Less", [x, number(0)])
    signed = node.emit("Where", [negative, node.emit("Neg", [root]), root])
    return node.emit("Mul", [signed, number(2**0.5)])


def two_scores(node: Node, score: Tensor, name: str, *, share: bool) -> Tensor:
    """Scores of two classes [N, 2] from that of the second [N, 1], behind a post transform.

    ``share``: scores are parts of 1, and not on both sides of 0.

    Raises:
        ModelError: the transform is none of a single score.
    """
    if name not in _OF_SINGLE:
        raise ModelError(f"{name} of a single score, for two classes, is not defined")
    if name == "LOGISTIC":
        both = side_by_side(node, node.emit("Neg", [score]), score)
        return post_transformed(node, both, name)
    if not share:
        return side_by_side(node, node.emit("Neg", [score]), score)
    one = node.constant(np.ones((), score.type.dtype.storage))
    return side_by_side(node, node.emit("Sub", [one, score]), score)


def side_by_side(node: Node, *columns: Tensor) -> Tensor:
    """Columns [N, K] of one matrix."""
    return node.emit("Concat", list(columns), {"axis": 1})


# -- classes ---------------------------------------------------------------------------------------


class ClassLabels:
    """The labels of a classifier, words or numbers."""

    def __init__(self, words: tuple[str, ...], numbers: tuple[int, ...]) -> None:
        self.words = words
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.words) or len(self.numbers)

    def chosen(self, node: Node, index: Tensor) -> Value:
        """The labels whose places in the list are in ``index`` [N]."""
        index = converted(node, index, DType.INT64)
        if self.words:
            return TextValue(index, self.words)
        if self.numbers == tuple(range(len(self.numbers))):
            return index
        return node.emit("Gather", [node.constant(np.array(self.numbers)), index], {"axis": 0})

    def of_two(self, node: Node, is_second: Tensor) -> Value:
        """The second label where ``is_second`` [N, 1] holds, else the first [N]."""
        flat = reshaped(node, is_second, (is_second.type.shape[0],))
        if self.words:
            return self.chosen(node, flat)
        first, second = (node.constant(np.array(number)) for number in self.numbers[:2])
        return node.emit("Where", [flat, second, first])


def class_labels(node: Node, numbers: str) -> ClassLabels:
    """The labels that attributes ``classlabels_strings`` or ``numbers`` list.

    Raises:
        ModelError: neither does.
    """
    labels = ClassLabels(node.texts("classlabels_strings", ()), node.integers(numbers, ()))
    if not len(labels):
        raise ModelError(f"neither classlabels_strings nor {numbers} lists labels")
    return labels


def largest(node: Node, scores: Tensor) -> Tensor:
    """The number of the first of the largest scores of each row [N]."""
    return standard_op(node, "ArgMax", [scores], {"axis": 1, "keepdims": 0})
