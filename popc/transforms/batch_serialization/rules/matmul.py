"""Matrix products, which may also sum over the batch, and functions of matrices."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Case, Combination, Cut, Rule, aligned, matrices

__all__ = ["RULES", "product"]

_CONTRACTED: Final = -1  # in place of an axis of the result
_EPILOGUE: Final = (2, 3)  # bias and residual
_FOLLOWING: Final = ("activation", "quantize_scale", "rounding_scale")


def _matmul(case: Case) -> Cut | str:
    return product(case, _EPILOGUE)


def product(case: Case, added: tuple[int, ...]) -> Cut | str:
    """The cut of a matrix product to whose result the operands ``added`` are added."""
    places = [
        _result_axis(case, index, axis)
        for index in (0, 1)
        if (axis := case.axis(index)) is not None
    ]
    rank = case.op.output.type.rank
    places += [
        axis + rank - len(case.shape(index))
        for index in added
        if (axis := case.axis(index)) is not None
    ]
    place = next((axis for axis in places if axis != _CONTRACTED), None)
    if place is not None:
        operands = {index: _operand_axis(case, index, place) for index in (0, 1)}
        rest = {
            index: aligned(case.shape(index), rank, place) for index in added if case.has(index)
        }
        return case.cut(operands | rest, (place,))
    if not places:
        return "neither factor is cut"
    return _sum(case, added, {0: _contracted(case, 0), 1: _contracted(case, 1)})


def _sum(case: Case, added: tuple[int, ...], operands: dict[int, int]) -> Cut | str:
    if any(map(case.has, added)) or any(map(case.op.attributes.get, _FOLLOWING)):
        return "it sums over the batch, and goes on with the sum"
    return case.cut(operands, (Combination.SUM,))


def _contracted(case: Case, index: int) -> int:
    """The axis of a factor that is summed over."""
    rank = len(case.shape(index))
    return rank - 1 if index == 0 or rank == 1 else rank - 2


def _result_axis(case: Case, index: int, axis: int) -> int:
    """The axis of the product that an axis of a factor becomes."""
    rank, result = len(case.shape(index)), case.op.output.type.rank
    if axis == _contracted(case, index):
        return _CONTRACTED
    if axis < rank - 2:
        return axis + _stack_rank(case) - (rank - 2)
    if index == 1:
        return result - 1  # a column
    return result - (2 if len(case.shape(1)) > 1 else 1)  # a row


def _operand_axis(case: Case, index: int, place: int) -> int | None:
    """The axis of a factor that an axis of the product comes from."""
    shape, stack = case.shape(index), _stack_rank(case)
    if place < stack:
        own = place - (stack - (len(shape) - 2))
        return own if own >= 0 and shape[own] != 1 else None
    is_row = place == stack and len(case.shape(0)) > 1
    if index == 0:
        return len(shape) - 2 if is_row else None
    return None if is_row else len(shape) - 1


def _stack_rank(case: Case) -> int:
    """The number of axes of the product that count matrices."""
    return max(len(case.shape(0)), len(case.shape(1)), 2) - 2


def _gemm(case: Case) -> Cut | str:
    inner = (1 - case.integer("transA"), case.integer("transB"))  # summed over
    left, right = case.axis(0), case.axis(1)
    added = {index: case.axis(index) for index in _EPILOGUE}
    place = next(
        (axis + 2 - len(case.shape(index)) for index, axis in added.items() if axis is not None),
        None,
    )
    if left is not None and left != inner[0]:
        place = 0
    elif right is not None and right != inner[1]:
        place = 1
    if place is None:
        return _sum(case, _EPILOGUE, dict(enumerate(inner)))
    factors = {0: 1 - inner[0] if place == 0 else None, 1: 1 - inner[1] if place == 1 else None}
    rest = {index: aligned(case.shape(index), 2, place) for index in added if case.has(index)}
    return case.cut(factors | rest, (place,))


RULES: Final[dict[str, Rule]] = {
    "Det": matrices,
    "DetGrad": matrices,
    "Gemm": _gemm,
    "Inverse": matrices,
    "MatMul": _matmul,
}
