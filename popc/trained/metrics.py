"""Metrics that a function of the user's computes from the outputs of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from popc_runtime.errors import UsageError
from popc_runtime.format import Array

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Metric", "host_metrics"]

# From the outputs for all samples, and the data, by name, to one number.
Metric: TypeAlias = Callable[[dict[str, Array], dict[str, Array]], object]


def host_metrics(
    metrics: Mapping[str, Metric],
    samples: Iterable[Mapping[str, Array]],
    data: Mapping[str, npt.ArrayLike],
) -> dict[str, float]:
    """Numbers by name: of the outputs of all samples, and the data of as many.

    Raises:
        UsageError: there are no samples, or a function gives no number.
    """
    if not metrics:
        return {}
    rows = list(samples)
    if not rows:
        raise UsageError("there are no samples to compute metrics of")
    outputs = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    arrays = {name: np.asarray(value) for name, value in data.items()}
    taken = {name: array[: len(rows)] if array.ndim else array for name, array in arrays.items()}
    return {name: _number(name, metric(outputs, taken)) for name, metric in metrics.items()}


def _number(name: str, value: object) -> float:
    found = np.asarray(value)
    if found.ndim or found.dtype.kind not in "biuf":
        raise UsageError(
            f"the metric {name!r} is {value!r:.80}", hint="its function has to return one number"
        )
    return float(found)
