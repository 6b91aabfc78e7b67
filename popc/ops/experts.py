"""Products with matrices of which each row chooses one, as in mixtures of experts.

``ExpertMatMul``: row r of x [R, K] times the transposed matrix expert[r] of weights [E, N, K], plus
the row of that number of an optional bias [E, N].  ``ExpertMatMulNBits``: of weights that are
stored in a few bits, as `popc.ops.nbits` describes them, with one more dimension in front.
"""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.infer import FLOATS, check_rank, one_dtype, operand, optional_operand
from popc.ops.nbits import OPS as NBITS
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]

_BIAS: Final = 5  # operand of ExpertMatMulNBits


def _product(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """x, expert, weights, [bias]."""
    del attributes
    x, weights = operand(inputs, 0), operand(inputs, 2)
    check_rank(weights, 3, "the weights")
    one_dtype([x, weights], FLOATS)
    experts, width, depth = weights.shape
    _check_rows(x, operand(inputs, 1), experts)
    if x.shape[1] != depth:
        raise ModelError(f"rows of {x.shape[1]} numbers do not fit {list(weights.shape)}")
    return _result(x, optional_operand(inputs, 3), experts, width)


def _few_bits(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """x, expert, numbers, scales, [zero points], [bias]."""
    x, stored = operand(inputs, 0), [optional_operand(inputs, index) for index in (2, 3, 4)]
    ranks = {type_.rank for type_ in stored if type_ is not None and type_.rank > 0}
    experts = {type_.shape[0] for type_ in stored if type_ is not None and type_.rank > 0}
    if len(experts) != 1 or not ranks:
        raise ModelError("weights, scales and zero points are of different numbers of experts")
    (count,) = experts
    of_one = [None if type_ is None else type_.with_shape(type_.shape[1:]) for type_ in stored]
    _check_rows(x, operand(inputs, 1), count)
    (result,) = NBITS["MatMulNBits"].infer([x, *of_one], attributes)
    if integer(attributes, "transposed", 0) or integer(attributes, "rounded", 0):
        raise ModelError("experts are neither transposed nor of rounded rows")
    return _result(x, optional_operand(inputs, _BIAS), count, result.shape[1])


def _check_rows(x: TensorType, expert: TensorType, experts: int) -> None:
    check_rank(x, 2, "x")
    if expert.dtype not in (DType.INT32, DType.INT64) or expert.shape != x.shape[:1]:
        raise ModelError(f"each of {x.shape[0]} rows needs the number of an expert, not {expert}")
    if experts == 0 and x.shape[0] > 0:
        raise ModelError("there are rows, but no experts")


def _result(
    x: TensorType, bias: TensorType | None, experts: int, width: int
) -> tuple[TensorType, ...]:
    if bias is not None and bias != x.with_shape((experts, width)):
        raise ModelError(f"the bias of {experts} experts must be {[experts, width]}, not {bias}")
    return (x.with_shape((x.shape[0], width)),)


OPS: Final[dict[str, OpSpec]] = {
    "ExpertMatMul": OpSpec(_product),
    "ExpertMatMulNBits": OpSpec(_few_bits),
}
