"""Gradient cases of the CTC loss.

PyTorch gives the gradient of the scores in front of a LogSoftmax instead, whether or not there is
one: `test_ctc` compares that.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tests.support.gradients import Case

__all__ = ["CASES"]

_RNG: Final = np.random.default_rng(4)


def _case(reduction: str, **attributes: Any) -> Case:
    scores = _RNG.normal(size=(7, 3, 5))
    logs = scores - np.log(np.exp(scores).sum(axis=2, keepdims=True))
    blank = attributes.get("blank", 0)
    labels = np.array([[1, 1, 2], [3, 2, 4], [4, 4, 4]])
    labels = np.where(labels == blank, 0, labels)
    inputs = [logs, labels, np.array([7, 5, 6]), np.array([3, 2, 0])]
    return Case(
        "Ctc",
        inputs,
        {"reduction": reduction, **attributes},
        name=reduction,
        domain="ai.graphcore",
    )


CASES: Final[list[Case]] = [_case("NoReduction"), _case("Mean"), _case("Sum", blank=4)]
