"""Support vector machines of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations
from typing import Final

import numpy as np

from popc.frontend import messages as onnx
from popc.frontend.functions import FunctionBody
from popc.frontend.node import Node
from popc.frontend.rules.common import converted, standard_op
from popc.frontend.rules.ml.scores import (
    ClassLabels,
    add,
    affine,
    class_labels,
    largest,
    ml_domain,
    post_transformed,
    rows_of,
    side_by_side,
    two_scores,
)
from popc.frontend.values import Value
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType

__all__ = ["RULES"]

_LEAST: Final = 1e-7  # probability that one class of a pair is right
# Squares of vectors times gamma: 2**-23 of them is what the exponent may be wrong by.
_LONGEST: Final = 32.0


def _kernel(node: Node, x: Tensor, vectors: Array, name: str, shift: float) -> Tensor:
    """The kernel of rows [N, C] and vectors [K, C], each product plus ``shift`` [N, K]."""
    parameters = node.numbers("kernel_params", ())
    if name == "LINEAR":
        return affine(node, x, vectors, np.float32(shift))
    if len(parameters) != 3:
        raise ModelError(f"kernel_params must be gamma, coef0 and degree, not {list(parameters)}")
    gamma, constant, degree = parameters
    if name == "RBF":
        return _radial(node, x, vectors, gamma)
    if name not in ("POLY", "SIGMOID"):
        raise ModelError(f"there is no kernel {name!r}")
    product = affine(node, x, np.float32(gamma) * vectors, np.float32(constant))
    if name == "SIGMOID":
        return node.emit("Tanh", [product])
    return node.emit("Pow", [product, node.constant(np.float32(degree))])


def _radial(node: Node, x: Tensor, vectors: Array, gamma: float) -> Tensor:
    """exp(-gamma |x - v|^2).

    |x|^2 - 2 x v + |v|^2 is a product of matrices, about the mean of the vectors, so that little is
    lost; where that would be too much, differences are squared.
    """
    rows, columns = x.type.shape
    if vectors.shape[1] != columns:
        raise ModelError(f"support vectors have {vectors.shape[1]} features, rows {columns}")
    axes, mean = node.constant(np.array([-1])), vectors.mean(axis=0, dtype=np.float64)
    middle = mean.astype(np.float32)
    near = vectors - middle
    lengths = np.square(near, dtype=np.float64).sum(axis=1)
    if abs(gamma) * lengths.max() > _LONGEST:
        spread = node.emit("Reshape", [x], {"shape": (rows, 1, columns)})
        distance = node.emit("Sub", [spread, node.constant(vectors[None])])
        squares = standard_op(node, "ReduceSumSquare", [distance, axes], {"keepdims": 0})
        return node.emit("Exp", [node.emit("Mul", [squares, node.constant(np.float32(-gamma))])])
    moved = node.emit("Sub", [x, node.constant(middle)])
    squares = standard_op(node, "ReduceSumSquare", [moved, axes], {"keepdims": 1})
    own = node.emit("Mul", [squares, node.constant(np.float32(-gamma))])
    product = affine(node, moved, 2 * gamma * near.astype(np.float64), -gamma * lengths)
    zero = node.constant(np.float32(0))
    power = node.emit("Add", [product, own])
    bound = node.emit("Min" if gamma > 0 else "Max", [power, zero])
    return node.emit("Exp", [bound])


def _vectors(node: Node, count: int) -> Array:
    numbers = np.asarray(node.numbers("support_vectors", ()), np.float32)
    if count < 1 or not numbers.size or numbers.size % count:
        raise ModelError(f"{numbers.size} numbers are not {count} support vectors")
    return numbers.reshape(count, -1)


def _regressor(node: Node) -> Tensor:
    """The post transform is none that onnxruntime applies."""
    x, count = rows_of(node), node.integer("n_supports", 0)
    name, rho = node.text("kernel_type", "LINEAR"), node.numbers("rho", ())
    coefficients = np.asarray(node.numbers("coefficients"), np.float32)
    if not rho:
        raise ModelError("rho is required but missing")
    if count > 0:
        if coefficients.size != count:
            raise ModelError(f"{coefficients.size} coefficients are not {count} supports'")
        x = _kernel(node, x, _vectors(node, count), name, 0.0)
    scores = affine(node, x, coefficients[None], rho[0])
    if not node.integer("one_class", 0):
        return scores
    above = node.emit("Greater", [scores, node.constant(np.float32(0))])
    signs = [node.constant(np.float32(sign)) for sign in (1, -1)]
    return node.emit("Where", [above, *signs])


# -- classifiers -----------------------------------------------------------------------------------


def _classifier(node: Node) -> Sequence[Value]:
    x, labels = rows_of(node), class_labels(node, "classlabels_ints")
    counts, rho = node.integers("vectors_per_class", ()), node.numbers("rho", ())
    if not rho:
        raise ModelError("rho is required but missing")
    if not sum(counts):
        return _linear(node, x, labels, rho[0])
    if len(counts) != len(labels) or len(labels) < 2 or min(counts) < 0:
        raise ModelError(f"{len(labels)} labels have vectors {list(counts)}")
    pairs = list(combinations(range(len(labels)), 2))
    if len(rho) < len(pairs):
        raise ModelError(f"{len(rho)} numbers rho are too few for {len(pairs)} pairs of classes")
    kernel = _kernel(node, x, _vectors(node, sum(counts)), node.text("kernel_type", "LINEAR"), 0.0)
    scores = affine(node, kernel, _pair_coefficients(node, counts, pairs), rho[: len(pairs)])
    chosen = labels.chosen(node, largest(node, _votes(node, scores, len(labels), pairs)))
    return [chosen, _shown(node, scores, pairs, len(labels))]


def _linear(node: Node, x: Tensor, labels: ClassLabels, rho: float) -> Sequence[Value]:
    """Without support vectors: a function for each class."""
    coefficients = np.asarray(node.numbers("coefficients"), np.float32)
    if coefficients.size % len(labels):
        raise ModelError(f"{coefficients.size} coefficients are not {len(labels)} functions")
    functions = coefficients.reshape(len(labels), -1)
    scores = affine(node, x, functions, np.float32(rho))
    shown = post_transformed(node, scores, node.text("post_transform"))
    if len(labels) != 2:
        return [labels.chosen(node, largest(node, scores)), shown]
    most = standard_op(node, "ReduceMax", [scores, node.constant(np.array([1]))], {"keepdims": 1})
    positive = not (coefficients < 0).any()
    compare, limit = ("GreaterOrEqual", 0.5) if positive else ("Greater", 0.0)
    above = node.emit(compare, [most, node.constant(np.float32(limit))])
    index = node.emit("Reshape", [largest(node, scores)], {"shape": (x.type.shape[0], 1)})
    second = node.emit("Or", [above, converted(node, index, DType.BOOL)])
    return [labels.of_two(node, second), shown]


def _pair_coefficients(
    node: Node, counts: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> Array:
    """The weights of all support vectors in the decision between each pair [pairs, vectors].

    The model has a row of coefficients for each other class: those of class i against class j are
    in row j - 1 if j is behind i, else in row j.
    """
    given = np.asarray(node.numbers("coefficients"), np.float32)
    total, ends = sum(counts), np.cumsum([0, *counts])
    if given.size < (len(counts) - 1) * total:
        raise ModelError(f"{given.size} coefficients are too few for {total} support vectors")
    given = given[: (len(counts) - 1) * total].reshape(len(counts) - 1, total)
    weights = np.zeros((len(pairs), total), np.float32)
    for row, (i, j) in enumerate(pairs):
        of_i, of_j = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        weights[row, of_i] = given[j - 1, of_i]
        weights[row, of_j] = given[i, of_j]
    return weights


def _votes(node: Node, scores: Tensor, classes: int, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Counts of pairs that decide for each class [N, classes]: above 0 for the first."""
    first = np.zeros((len(pairs), classes), np.float32)
    second = first.copy()
    for row, (i, j) in enumerate(pairs):
        first[row, i] = second[row, j] = 1
    above = node.emit("Greater", [scores, node.constant(np.float32(0))])
    won = converted(node, above, DType.FLOAT32)
    return affine(node, won, (first - second).T, second.sum(axis=0))


def _shown(node: Node, scores: Tensor, pairs: Sequence[tuple[int, int]], classes: int) -> Tensor:
    """The scores of pairs, or probabilities of classes if the model has their parameters."""
    name = node.text("post_transform")
    a, b = (np.asarray(node.numbers(name, ()), np.float32) for name in ("prob_a", "prob_b"))
    if len(a) != len(b) or 0 < len(a) < len(pairs):
        raise ModelError(f"prob_a and prob_b, {len(a)} and {len(b)}, are not of all pairs")
    if len(a):
        probabilities = _probabilities(node, scores, pairs, classes, (a, b))
        return post_transformed(node, probabilities, name)
    if classes == 2:
        return two_scores(node, scores, name, share=name != "NONE")
    return post_transformed(node, scores, name)


def _probabilities(
    node: Node,
    scores: Tensor,
    pairs: Sequence[tuple[int, int]],
    classes: int,
    parameters: tuple[Array, Array],
) -> Tensor:
    """Probabilities of classes [N, classes] that fit those of the pairs best."""
    a, b = (node.constant(each[: len(pairs)]) for each in parameters)
    value = node.emit("Add", [node.emit("Mul", [scores, a]), b])
    one = node.constant(np.float32(1))
    right = node.emit("Sub", [one, node.emit("Sigmoid", [value])])
    low, high = (node.constant(np.float32(number)) for number in (_LEAST, 1 - _LEAST))
    right = node.emit("Min", [node.emit("Max", [right, low]), high])
    both = side_by_side(node, right, node.emit("Sub", [one, right]))
    places = np.zeros((classes, classes), np.int64)
    for row, (i, j) in enumerate(pairs):
        places[i, j], places[j, i] = row, row + len(pairs)
    table = node.emit("Gather", [both, node.constant(places)], {"axis": 1})
    outside = np.where(np.eye(classes, dtype=bool), 0, 1).astype(np.float32)
    table = node.emit("Mul", [table, node.constant(outside)])
    proto = onnx.NodeProto(op_type="Coupling", input=["r"], output=["p"])
    (coupled,) = node.importer.expand(FunctionBody(_coupling(classes)), [table], proto)
    assert isinstance(coupled, Tensor)
    return add(node, coupled, 0)


@cache
def _coupling(classes: int) -> onnx.FunctionProto:
    """Probabilities p [N, k] of classes from those of pairs r [N, k, k].

    T.-F. Wu, C.-J. Lin, R. C. Weng: Probability estimates for multi-class classification by
    pairwise coupling (2004), algorithm 2, as libsvm has it: at most 100 rounds, until the error is
    below 0.005 / k; here for each row by itself.
    """
    from onnx import parser

    lines = [*_before(classes), *_rounds(classes)]
    text = "\n".join(lines)
    return parser.parse_function(
        f'<domain: "popc", opset_import: ["" : 18]>\nCoupling (r) => (p) {{\n{text}\n}}'
    )


def _before(classes: int) -> Iterator[str]:
    """Q and the first p: all classes are as probable."""
    yield "t = Transpose<perm = [0, 2, 1]>(r)"
    yield "opposite = Mul(r, t)"
    yield "off = Neg(opposite)"
    yield "squares = Mul(r, r)"
    yield "axis = Constant<value_ints = [1]>()"
    yield "last = Constant<value_ints = [2]>()"
    yield "diagonal = ReduceSum<keepdims = 0>(squares, axis)"
    yield f"eye = Constant<value = {_matrix(classes)}>()"
    yield "wide = Unsqueeze(diagonal, last)"
    yield "on = Mul(wide, eye)"
    yield "q = Add(off, on)"
    yield "nothing = Constant<value_float = 0.0>()"
    yield "zeros = Mul(diagonal, nothing)"
    yield f"equal = Constant<value_float = {1 / classes!r}>()"
    yield "start = Add(zeros, equal)"
    yield "rounds = Constant<value_int = 100>()"
    yield "going = Constant<value = bool {1}>()"
    yield f"least = Constant<value_float = {0.005 / classes!r}>()"
    yield "one = Constant<value_float = 1.0>()"
    yield "two = Constant<value_float = 2.0>()"


def _matrix(classes: int) -> str:
    numbers = ", ".join(str(int(i == j)) for i in range(classes) for j in range(classes))
    return f"float[{classes},{classes}] {{{numbers}}}"


def _rounds(classes: int) -> Iterator[str]:
    """The loop, which ends when no row has an error that is too large."""
    yield "p = Loop(rounds, going, start) <body = round (int64 i, bool c, float[a,b] before)"
    yield "=> (bool goes, float[a,b] after) {"
    yield "axes1 = Constant<value_ints = [1]>()"
    yield "axes2 = Constant<value_ints = [2]>()"
    yield "tall = Unsqueeze(before, axes2)"
    yield "products = MatMul(q, tall)"
    yield "qp0 = Squeeze(products, axes2)"
    yield "weighed = Mul(before, qp0)"
    yield "pqp0 = ReduceSum<keepdims = 1>(weighed, axes1)"
    yield "difference = Sub(qp0, pqp0)"
    yield "errors = Abs(difference)"
    yield "error = ReduceMax<keepdims = 1>(errors, axes1)"
    yield "active = GreaterOrEqual(error, least)"
    yield "p0 = Identity(before)"
    for k in range(classes):
        yield from _step(k)
    yield f"after = Where(active, p{classes}, before)"
    yield "marks = Cast<to = 6>(active)"
    yield "any = ReduceMax<keepdims = 0>(marks)"
    yield "goes = Cast<to = 9>(any)"
    yield "}>"


def _step(k: int) -> Iterator[str]:
    """The best probability of class k for the given others, and what follows from it."""
    n = k + 1
    yield f"k{k} = Constant<value_ints = [{k}]>()"
    yield f"own{k} = Gather<axis = 1>(qp{k}, k{k})"
    yield f"row3{k} = Gather<axis = 1>(q, k{k})"
    yield f"row{k} = Squeeze(row3{k}, axes1)"
    yield f"d{k} = Gather<axis = 1>(row{k}, k{k})"
    yield f"rest{k} = Sub(pqp{k}, own{k})"
    yield f"x{k} = Div(rest{k}, d{k})"
    yield f"s{k} = Add(one, x{k})"
    yield f"xd{k} = Mul(x{k}, d{k})"
    yield f"twice{k} = Mul(two, own{k})"
    yield f"slope{k} = Add(xd{k}, twice{k})"
    yield f"gain{k} = Mul(x{k}, slope{k})"
    yield f"sum{k} = Add(pqp{k}, gain{k})"
    yield f"once{k} = Div(sum{k}, s{k})"
    yield f"pqp{n} = Div(once{k}, s{k})"
    yield f"moved{k} = Mul(x{k}, row{k})"
    yield f"qps{k} = Add(qp{k}, moved{k})"
    yield f"qp{n} = Div(qps{k}, s{k})"
    yield f"unit{k} = Gather<axis = 0>(eye, k{k})"
    yield f"added{k} = Mul(x{k}, unit{k})"
    yield f"ps{k} = Add(p{k}, added{k})"
    yield f"p{n} = Div(ps{k}, s{k})"


RULES: Final = ml_domain({"SVMClassifier": _classifier, "SVMRegressor": _regressor})
