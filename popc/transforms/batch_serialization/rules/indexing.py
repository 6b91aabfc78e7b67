"""Gather and one-hot."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Case, Combination, Cut, Rule

__all__ = ["RULES"]

_MIXED: Final = "it takes elements from anywhere in the batch"


def _gather(case: Case) -> Cut | str:
    along, data, indices = _own_axis(case), case.axis(0), case.axis(1)
    if data is not None and data != along:
        shift = len(case.shape(1)) - 1 if data > along else 0
        return case.cut({0: data}, (data + shift,))
    if indices is not None:
        return case.cut({1: indices}, (along + indices,))
    return _MIXED


def _gather_grad(case: Case) -> Cut | str:
    along, grad, indices = case.integer("axis"), case.axis(0), case.axis(1)
    rank = len(case.shape(1))
    if grad is None and indices is not None:
        grad = along + indices
    if grad is None:
        return "its operands are not cut"
    if along <= grad < along + rank:
        return case.cut({0: grad, 1: grad - along}, (Combination.SUM,))
    return case.cut({0: grad}, (grad if grad < along else grad - rank + 1,))


def _gather_elements(case: Case) -> Cut | str:
    along, data, indices = _own_axis(case), case.axis(0), case.axis(1)
    if indices is not None and indices == along:
        return case.cut({1: indices}, (indices,))
    axis = indices if indices is not None else data
    if axis is None or axis == along or case.shape(0)[axis] != case.shape(1)[axis]:
        return _MIXED
    return case.cut({0: axis, 1: axis}, (axis,))


def _gather_nd(case: Case) -> Cut | str:
    batch_dims = case.integer("batch_dims")
    axis = case.axis(0) if case.axis(1) is None else case.axis(1)
    if axis is not None and axis < batch_dims:
        return case.cut({0: axis, 1: axis}, (axis,))
    if case.axis(1) is not None and axis is not None and axis < len(case.shape(1)) - 1:
        return case.cut({1: axis}, (axis,))
    return _MIXED


def _one_hot(case: Case) -> Cut | str:
    axis = case.axis(0)
    if axis is None:
        return "its indices are not cut"
    along = case.integer("axis") % (len(case.shape(0)) + 1)
    return case.cut({0: axis}, (axis if axis < along else axis + 1,))


def _own_axis(case: Case) -> int:
    return case.integer("axis") % max(len(case.shape(0)), 1)


RULES: Final[dict[str, Rule]] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherGrad": _gather_grad,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
}
