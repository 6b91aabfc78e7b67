"""Convolution on graphs by B-splines (Fey et al., SplineCNN): E edges, D dimensions, K kernels."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.infer import FLOATS, check_rank, one_dtype, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]


def _check_space(inputs: OperandTypes, attributes: Attributes) -> int:
    """The number of splines not zero at a place, from places, kernel sizes and open flags."""
    degree = integer(attributes, "degree")
    if not 0 <= degree <= 3:
        raise ModelError(f"splines have degree 0 to 3, not {degree}")
    places = operand(inputs, 0)
    one_dtype([places], FLOATS)
    check_rank(places, 2, "the places")
    dimensions = places.shape[1]
    for index in (1, 2):
        type_ = operand(inputs, index)
        if type_.shape != (dimensions,) or type_.dtype.is_float:
            raise ModelError(f"input {index} must be {dimensions} integers, not {type_}")
    return int((degree + 1) ** dimensions)


def _basis(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands: places [E, D] in [0, 1], kernel sizes [D], whether open [D].

    Results: the (degree + 1)^D splines that are not zero at each place, and which kernels they
    belong to.
    """
    splines = _check_space(inputs, attributes)
    places, sizes = operand(inputs, 0), operand(inputs, 1)
    shape = (places.shape[0], splines)
    return places.with_shape(shape), sizes.with_shape(shape)


def _basis_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands of SplineBasis and the gradient of its first result; the gradient of the places."""
    splines = _check_space(inputs, attributes)
    places, grad = operand(inputs, 0), operand(inputs, 3)
    if grad != places.with_shape((places.shape[0], splines)):
        raise ModelError(f"a gradient {grad} does not fit places {places}")
    return (places,)


def _check_weighting(inputs: OperandTypes) -> TensorType:
    """The type of the result, given features, weights, basis and kernel numbers."""
    x, weight, basis, kernels = (operand(inputs, index) for index in range(4))
    one_dtype([x, weight, basis], FLOATS)
    for type_, rank, what in ((x, 2, "features"), (weight, 3, "weights"), (basis, 2, "the basis")):
        check_rank(type_, rank, what)
    if not kernels.dtype.is_integer or kernels.shape != basis.shape:
        raise ModelError(f"kernel numbers must be integers of {list(basis.shape)}, not {kernels}")
    if basis.shape[0] != x.shape[0] or weight.shape[1] != x.shape[1]:
        raise ModelError(f"features {x}, weights {weight} and basis {basis} do not fit together")
    return x.with_shape((x.shape[0], weight.shape[2]))


def _weighting(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands: features [E, in], weights [K, in, out], basis [E, S], kernel numbers [E, S].

    Each edge's features times the weights of its kernels, weighted by the basis: [E, out].
    """
    del attributes
    return (_check_weighting(inputs),)


def _weighting_grad(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands of SplineWeighting and a gradient; gradients of features, weights and basis."""
    del attributes
    result, grad = _check_weighting(inputs), operand(inputs, 4)
    if grad != result:
        raise ModelError(f"the gradient must be {result}, not {grad}")
    return operand(inputs, 0), operand(inputs, 1), operand(inputs, 2)


OPS: Final[dict[str, OpSpec]] = {
    "SplineBasis": OpSpec(_basis),
    "SplineBasisGrad": OpSpec(_basis_grad),
    "SplineWeighting": OpSpec(_weighting),
    "SplineWeightingGrad": OpSpec(_weighting_grad),
}
