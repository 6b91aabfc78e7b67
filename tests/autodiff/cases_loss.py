"""Gradient cases of losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from tests.support.gradients import Case

__all__ = ["CASES"]

_RNG: Final = np.random.default_rng(3)
_SHAPES: Final = {"flat": (5, 4), "image": (2, 4, 3, 2)}


def _scores(shape: tuple[int, ...]) -> Array:
    return _RNG.normal(size=shape)


def _labels(shape: tuple[int, ...], classes: int, ignored: int | None = None) -> Array:
    labels = _RNG.integers(0, classes, shape)
    if ignored is not None:
        labels.flat[::3] = ignored
    return labels


def _torch(name: str, reduction: str, ignored: int | None) -> Callable[..., Any]:
    def function(scores: Any, labels: Any, weights: Any = None) -> Any:
        import torch

        options = {"reduction": reduction, "ignore_index": -100 if ignored is None else ignored}
        return getattr(torch.nn.functional, name)(scores, labels, weights, **options)

    return function


def _case(
    op_type: str, name: str, shape: str, reduction: str, *, weighted: bool, ignored: int | None
) -> Case:
    size = _SHAPES[shape]
    scores, labels = _scores(size), _labels((size[0], *size[2:]), size[1], ignored)
    weights = [_RNG.uniform(0.5, 2, size[1])] if weighted else []
    attributes: dict[str, Any] = {"reduction": reduction}
    if ignored is not None:
        attributes["ignore_index"] = ignored
    return Case(
        op_type,
        [scores, labels, *weights],
        attributes,
        name=f"{shape}-{reduction}{'-weighted' * weighted}{'-ignoring' * (ignored is not None)}",
        frozen=(2,),
        torch=_torch(name, reduction, ignored),
    )


def _cross_entropy_of(scores: Any, labels: Any) -> Any:
    import torch

    loss = torch.nn.functional.cross_entropy(scores, labels)
    return loss, torch.nn.functional.log_softmax(scores, 1)


def _probabilities(shape: tuple[int, ...]) -> Array:
    return _RNG.dirichlet(np.ones(shape[-1]) * 3, shape[:-1])


def _nll_of(reduction: str, *, logarithms: bool) -> Callable[..., Any]:
    def function(probabilities: Any, labels: Any) -> Any:
        import torch

        logs = probabilities if logarithms else torch.log(probabilities)
        options = {"reduction": reduction, "ignore_index": 1}
        flat = logs.reshape(-1, logs.shape[-1])
        loss = torch.nn.functional.nll_loss(flat, labels.reshape(-1).long(), **options)
        return loss.reshape(labels.shape) if reduction == "none" else loss

    return function


def _nll(reduction: str, *, logarithms: bool) -> Case:
    probabilities = _probabilities((3, 2, 4))
    return Case(
        "Nll",
        [
            np.log(probabilities) if logarithms else probabilities,
            _labels((3, 2), 4, 1).astype(np.int32),
        ],
        {
            "reduction": {"none": "NoReduction", "mean": "Mean", "sum": "Sum"}[reduction],
            "inputIsLogProbability": int(logarithms),
            "ignoreIndex": 1,
        },
        name=f"{reduction}{'-logarithms' * logarithms}",
        domain="ai.graphcore",
        torch=_nll_of(reduction, logarithms=logarithms),
    )


CASES: Final[list[Case]] = [
    *(
        _case(op_type, name, shape, reduction, weighted=weighted, ignored=ignored)
        for op_type, name in (
            ("NegativeLogLikelihoodLoss", "nll_loss"),
            ("SoftmaxCrossEntropyLoss", "cross_entropy"),
        )
        for shape, reduction, weighted, ignored in (
            ("flat", "mean", False, None),
            ("flat", "none", False, None),
            ("flat", "sum", True, None),
            ("image", "mean", True, None),
            ("image", "mean", True, 2),
            ("image", "mean", False, 255),
            ("image", "none", True, -1),
        )
    ),
    *(
        Case(
            "SoftmaxCrossEntropyLoss",
            [_scores((3, 4, 2)), _labels((3, 2), 4)],
            name=f"outputs-{'-'.join(map(str, weighted))}",
            outputs=2,
            weighted=weighted,
            torch=lambda x, y, chosen=weighted: tuple(_cross_entropy_of(x, y)[i] for i in chosen),
        )
        for weighted in ((0, 1), (1,), (0,))
    ),
    *(
        _nll(reduction, logarithms=logarithms)
        for reduction in ("none", "mean", "sum")
        for logarithms in (False, True)
    ),
]
