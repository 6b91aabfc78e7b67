"""Updates of elements at positions."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import NOT_BATCH, Case, Cut, Rule

__all__ = ["RULES"]


def _scatter_elements(case: Case) -> Cut | str:
    axis = next((dim for dim in case.axes if dim is not None), None)
    sizes = set() if axis is None else {case.shape(index)[axis] for index in range(3)}
    if axis is None or axis == case.integer("axis") % max(len(case.shape(0)), 1) or len(sizes) > 1:
        return "it may write anywhere in the batch"
    return case.cut(dict.fromkeys(range(3), axis), (axis,))


def _tensor_scatter(case: Case) -> Cut | str:
    if 0 not in case.axes:
        return NOT_BATCH
    return case.cut(dict.fromkeys(range(3), 0), (0,))


RULES: Final[dict[str, Rule]] = {
    "ScatterElements": _scatter_elements,
    "TensorScatter": _tensor_scatter,
}
