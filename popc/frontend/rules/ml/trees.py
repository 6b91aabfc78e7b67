"""Ensembles of trees of ai.onnx.ml, in all the forms that its versions have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import converted
from popc.frontend.rules.ml.scores import (
    ClassLabels,
    add,
    class_labels,
    largest,
    ml_domain,
    post_transformed,
    rows_of,
    side_by_side,
    two_scores,
)
from popc.frontend.rules.ml.trees_read import (
    TreeScores,
    base_values,
    check_targets,
    listed_ensemble,
    numbered_ensemble,
    rows_and_type,
)
from popc.frontend.rules.ml.trees_tables import tables_of
from popc.frontend.values import Value
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType

__all__ = ["RULES"]

_AGGREGATES: Final = ("AVERAGE", "SUM", "MIN", "MAX")  # by their numbers in ai.onnx.ml 5
_TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")  # likewise


def _regressor(node: Node) -> Tensor:
    x, dtype = rows_and_type(node, "nodes_values_as_tensor", "target_weights_as_tensor")
    ensemble, count = listed_ensemble(node, "target"), node.integer("n_targets", 1)
    check_targets(ensemble.entries, count)
    aggregate, bases = node.text("aggregate_function"), base_values(node, count)
    if aggregate not in _AGGREGATES:
        raise ModelError(f"there is no aggregate function {aggregate!r}")
    scores = TreeScores(node, x, tables_of(ensemble, dtype), count, aggregate)
    name, values = node.text("post_transform"), scores.values()
    if count == 1:  # of which onnxruntime transforms nothing else
        values = converted(node, add(node, values, bases), DType.FLOAT32)
        return post_transformed(node, values, name if name == "PROBIT" else "NONE")
    if bases.any():  # which targets have that are met
        based = add(node, values, bases)
        values = based if scores.are_met() else _where(node, scores.met(), based, None)
    return _transformed(node, values, name)


def _numbered(node: Node) -> Tensor:
    """TreeEnsemble-5: results have the type of the rows."""
    given = node.input(0).type.dtype
    x = rows_of(node, doubles=True)
    ensemble, count = numbered_ensemble(node), node.integer("n_targets", 1)
    check_targets(ensemble.entries, count)
    aggregate, transform = node.integer("aggregate_function"), node.integer("post_transform")
    if not 0 <= aggregate < len(_AGGREGATES) or not 0 <= transform < len(_TRANSFORMS):
        raise ModelError(f"there is no aggregate function {aggregate} or transform {transform}")
    tables = tables_of(ensemble, x.type.dtype.storage)
    values = TreeScores(node, x, tables, count, _AGGREGATES[aggregate]).values()
    name = _TRANSFORMS[transform]
    if count == 1:
        name = name if name == "PROBIT" else "NONE"
    return converted(node, post_transformed(node, values, name), given)


def _classifier(node: Node) -> Sequence[Value]:
    labels = class_labels(node, "classlabels_int64s")
    x, dtype = rows_and_type(node, "nodes_values_as_tensor", "class_weights_as_tensor")
    ensemble, count = listed_ensemble(node, "class"), len(labels)
    check_targets(ensemble.entries, count)
    bases, name = base_values(node, count), node.text("post_transform")
    scores = TreeScores(node, x, tables_of(ensemble, dtype), count, "SUM")
    if count == 2:
        return _of_two(scores, labels, bases, name)
    values = add(node, scores.values(), bases)
    ranked = values
    if not len(bases) and not scores.are_met():
        lowest = node.constant(np.array(-np.inf, dtype))
        ranked = node.emit("Where", [scores.met(), values, lowest])
    return [labels.chosen(node, largest(node, ranked)), _transformed(node, values, name)]


def _transformed(node: Node, values: Tensor, name: str) -> Tensor:
    return post_transformed(node, converted(node, values, DType.FLOAT32), name)


# -- two classes -----------------------------------------------------------------------------------


def _of_two(scores: TreeScores, labels: ClassLabels, bases: Array, name: str) -> Sequence[Value]:
    """Trees that name one class only decide by its score, about 0.5 or about 0.

    Trees that name both decide by the second, about 0, and onnxruntime gives the numbers 0 and 1,
    whatever labels are.
    """
    node, named, weights = scores.node, set(scores.tables[5].tolist()), scores.tables[6]
    share = not (weights < 0).any()
    limit = 0.5 if len(named) == 1 and share else 0.0
    if named == {0} and len(bases) < 2:
        values = TreeScores(node, scores.x, scores.tables, 1, "SUM").values()
        values = add(node, values, bases) if len(bases) else values
        decisive = values
        score = converted(node, values, DType.FLOAT32)
        both = two_scores(node, score, name, share=share)
    else:
        decisive, both = _columns(scores, bases, name)
        if len(named) > 1 and labels.numbers:
            labels = ClassLabels((), (0, 1))
    zero = node.constant(np.array(limit, decisive.type.dtype.storage))
    return [labels.of_two(node, node.emit("Greater", [decisive, zero])), both]


def _columns(scores: TreeScores, bases: Array, name: str) -> tuple[Tensor, Tensor]:
    """The score that decides, and both scores; a class that no leaf names has 0."""
    node, met = scores.node, None if scores.are_met() else scores.met()
    values = scores.values()
    v0, v1 = (_column(node, values, index) for index in range(2))
    m0, m1 = (None if met is None else _column(node, met, index) for index in range(2))
    if len(bases) == 2:
        common = add(node, v0, bases[1])
        negative = _where(node, m0, node.emit("Neg", [common]), None)
        first = _where(node, m1, negative, _where(node, m0, add(node, v0, bases[0]), None))
        second = _where(node, m1, common, None)
    else:
        first, second = _where(node, m0, add(node, v0, bases), None), v1
    decisive = _where(node, m1, second, first)
    both = _transformed(node, side_by_side(node, first, second), name)
    if m1 is not None and not len(bases):
        alone = two_scores(node, converted(node, first, DType.FLOAT32), name, share=False)
        both = node.emit("Where", [m1, both, alone])
    return decisive, both


def _column(node: Node, values: Tensor, index: int) -> Tensor:
    place = node.constant(np.array([index]))
    return node.emit("Gather", [values, place], {"axis": 1})


def _where(node: Node, condition: Tensor | None, x: Tensor, other: Tensor | None) -> Tensor:
    """``x`` where ``condition`` holds (``None``: everywhere), else ``other`` or zero."""
    if condition is None:
        return x
    if other is None:
        other = node.constant(np.zeros((), x.type.dtype.storage))
    return node.emit("Where", [condition, x, other])


RULES: Final = ml_domain(
    {
        "TreeEnsemble": _numbered,
        "TreeEnsembleClassifier": _classifier,
        "TreeEnsembleRegressor": _regressor,
    }
)
