"""Linear models of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.ml.scores import (
    affine,
    class_labels,
    largest,
    ml_domain,
    post_transformed,
    rows_of,
    two_scores,
)
from popc.frontend.values import Value
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import Array

__all__ = ["RULES"]


def _coefficients(node: Node, count: int) -> Array:
    """The coefficients [count, features]."""
    numbers = np.asarray(node.numbers("coefficients"), np.float32)
    if count < 1 or numbers.size % count:
        raise ModelError(f"{numbers.size} coefficients are not those of {count} functions")
    return numbers.reshape(count, -1)


def _classifier(node: Node) -> Sequence[Value]:
    """A function for each intercept; a single one is that of the second class."""
    x, labels = rows_of(node), class_labels(node, "classlabels_ints")
    intercepts, name = node.numbers("intercepts", ()), node.text("post_transform")
    if not intercepts:
        raise ModelError("intercepts are required but missing")
    scores = affine(node, x, _coefficients(node, len(intercepts)), intercepts)
    if len(intercepts) > 1:
        if len(labels) < len(intercepts):
            raise ModelError(f"{len(labels)} labels are too few for {len(intercepts)} functions")
        chosen = labels.chosen(node, largest(node, scores))
        return [chosen, post_transformed(node, scores, name)]
    if len(labels) != 2:
        raise ModelError(f"a single function tells two labels apart, not {len(labels)}")
    above = node.emit("Greater", [scores, node.constant(np.float32(0))])
    return [labels.of_two(node, above), two_scores(node, scores, name, share=True)]


def _regressor(node: Node) -> Tensor:
    x, count = rows_of(node), node.integer("targets")
    terms = node.numbers("intercepts", ()) or (0.0,) * count
    if len(terms) != count:
        raise ModelError(f"there are {len(terms)} intercepts for {count} targets")
    scores = affine(node, x, _coefficients(node, count), terms)
    name = node.text("post_transform")
    if count == 1 and name not in ("NONE", "PROBIT"):
        return scores  # as onnxruntime does
    return post_transformed(node, scores, name)


RULES: Final = ml_domain({"LinearClassifier": _classifier, "LinearRegressor": _regressor})
