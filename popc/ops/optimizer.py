"""Steps of optimizers, under the names that PopART decomposes its optimizers into.

Each computes the next value of operand 0, a weight or a part of the optimizer's state, and may do
so in place; a ``CopyVarUpdate`` makes it the value of the variable.  State may have another
floating-point type than the weight: the arithmetic is in float32 at least, the result is rounded
once.

Scalars are operands of rank 0: float32 if the host may change them, float64 constants otherwise.
Scalars that several weights need in a combined form (learning rate over loss scale) come combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer, number
from popc.ops.infer import FLOATS, attribute_dtype, check_choice, one_dtype, operand
from popc.ops.spec import InferRule, OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["ADAM_MODES", "MOMENT_KINDS", "OPS"]

_SCALARS: Final = (DType.FLOAT32, DType.FLOAT64)

# k and s are the operands keep and scale, m is the moment, x what it is a moment of.
MOMENT_KINDS: Final = (
    "decay_add",  # k m + s x
    "decay_add_square",  # k m + (s x)^2
    "infinity",  # max(k m, |s x|)
    "moving_average",  # k m + (1 - k) s x
    "moving_average_square",  # k m + (1 - k) (s x)^2
)
# "..._no_bias": without the correction for moments that started at zero; "adamax": the second
# moment is a maximum, which has no root to take and no bias.
ADAM_MODES: Final = ("adam", "adam_no_bias", "adamax", "lamb", "lamb_no_bias")


def _check_tensors(inputs: OperandTypes, optional: Sequence[int], count: int) -> None:
    """The first ``count`` operands are floating-point tensors of one shape."""
    shape = operand(inputs, 0).shape
    for index in range(count):
        if index in optional and inputs[index] is None:
            continue
        type_ = operand(inputs, index)
        one_dtype([type_], FLOATS)
        if type_.shape != shape:
            raise ModelError(f"operand {index} is {type_}, but must have the shape {list(shape)}")


def _check_scalars(inputs: OperandTypes, first: int, least: int, most: int) -> None:
    """From ``first`` on there are ``least`` scalars, and up to ``most`` if they are not absent."""
    if not first + least <= len(inputs) <= first + most:
        raise ModelError(f"{len(inputs)} operands are not {first} tensors and {least} scalars")
    for index, type_ in enumerate(inputs[first:], start=first):
        if type_ is None and index < first + least:
            raise ModelError(f"scalar operand {index} is missing")
        if type_ is not None and (type_.rank or type_.dtype not in _SCALARS):
            raise ModelError(f"operand {index} is {type_}, but must be a scalar")


def _update(
    tensors: int, scalars: int, *, more: int = 0, optional: Sequence[int] = ()
) -> InferRule:
    """``tensors`` tensors, then ``scalars`` scalars and up to ``more`` others: as operand 0."""

    def infer(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
        del attributes
        _check_tensors(inputs, optional, tensors)
        _check_scalars(inputs, tensors, scalars, scalars + more)
        return (operand(inputs, 0),)

    return infer


def _moment(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands: moment, what it is a moment of, keep, and optionally scale."""
    check_choice(attributes, "kind", MOMENT_KINDS)
    return _update(2, 1, more=1)(inputs, attributes)


def _adam_var_update(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands: w, first and second moment; rate, keep, beta1, beta2, epsilon, number of the step.

    The result is w keep - rate m / (sqrt(v) + epsilon), with the moments corrected for their bias
    if the mode says so.  The number of the step may be absent where nothing is corrected.
    """
    check_choice(attributes, "mode", ADAM_MODES)
    return _update(3, 5, more=1)(inputs, attributes)


def _adam_updater(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands: first and second moment, w; decay, beta1, beta2, epsilon, number of the step.

    The result is m / (sqrt(v) + epsilon) + decay w, of the type of the first moment.
    """
    check_choice(attributes, "mode", ADAM_MODES)
    return _update(3, 4, more=1)(inputs, attributes)


def _rmsprop_updater(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands: gradient, its mean square, optionally its mean; epsilon, and optionally scale.

    The result is s g / (sqrt(v) + epsilon), or s g / sqrt(v + epsilon) if ``tf_variant``; v is the
    mean square, less the square of the mean if that is given.  It has the type of the mean square.
    """
    integer(attributes, "tf_variant")
    _update(3, 1, more=1, optional=(2,))(inputs, attributes)
    return (operand(inputs, 1),)


def _adadelta_updater(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands: gradient, its mean square v, that u of the steps; epsilon, and optionally scale.

    The result is s g sqrt((u + epsilon) / (v + epsilon)), of the type of v.
    """
    _update(3, 1, more=1)(inputs, attributes)
    return (operand(inputs, 1),)


def _scaled_gradient(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands: gradient, w; scale, decay.  The result is scale g + decay w, of type ``to``."""
    result = _update(2, 2)(inputs, attributes)[0]
    return (result.with_dtype(attribute_dtype(attributes, "to")),)


def _sum_of_squares(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """A float32 scalar."""
    del attributes
    one_dtype([operand(inputs, 0)], FLOATS)
    return (TensorType(DType.FLOAT32, ()),)


def _histogram(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Counts of elements up to, and above, each of the ``levels`` in size, in float32."""
    levels = attributes.get("levels")
    if not isinstance(levels, tuple) or list(levels) != sorted(levels):
        raise ModelError(f"attribute 'levels' must be an ascending list of numbers, not {levels!r}")
    one_dtype([operand(inputs, 0)], FLOATS)
    return (TensorType(DType.FLOAT32, (len(levels) + 1,)),)


def _loss_scale_update(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands: factor, counts below and above, scale; if ``period`` > 1, number of past updates.

    The result is half the factor if more than the part ``threshold`` is above, else twice, but the
    scale, which goes with the factor, is not to exceed ``largest``; between the periods it is the
    factor.
    """
    period = integer(attributes, "period")
    if period < 1:
        raise ModelError(f"attribute 'period' must be at least 1, not {period}")
    number(attributes, "largest")
    factor, counts, scale = (operand(inputs, index) for index in range(3))
    if scale != factor or factor.rank or counts != TensorType(DType.FLOAT32, (2,)):
        raise ModelError(f"{factor}, {counts} and {scale} are not a factor, two counts and a scale")
    return (factor,)


OPS: Final[dict[str, OpSpec]] = {
    # Gradients may be views of something else; what reads them twice wants them contiguous.
    "AccumulateMoment": OpSpec(_moment, inplace=(0,), strided_input=False),
    "AdaDeltaUpdater": OpSpec(_adadelta_updater, inplace=(0,)),
    "AdamUpdater": OpSpec(_adam_updater, inplace=(0,)),
    "AdamVarUpdate": OpSpec(_adam_var_update, inplace=(0,)),
    "Histogram": OpSpec(_histogram),
    "LambSquare": OpSpec(_sum_of_squares),
    # w - x rate min(|w|, limit) / |x|, from w, x; rate, |w|^2, |x|^2, and optionally limit.
    "LambVarUpdate": OpSpec(_update(2, 3, more=1), inplace=(0,)),
    "LossScaleUpdate": OpSpec(_loss_scale_update),
    "RMSPropUpdater": OpSpec(_rmsprop_updater, inplace=(0,)),
    # w keep - g rate, from w, g; rate, keep.
    "SGD0VarUpdate": OpSpec(_update(2, 2), inplace=(0,)),
    # v momentum + w decay, from v, w; momentum, decay.
    "SGD1AcclUpdate": OpSpec(_update(2, 2), inplace=(0,)),
    # w - v rate, from w, v; rate.
    "SGD1VarUpdate": OpSpec(_update(2, 1), inplace=(0,)),
    # v momentum + g scale + w decay, from v, g, w; momentum, scale, decay.
    "SGD2AcclUpdate": OpSpec(_update(3, 3), inplace=(0,)),
    # w keep - v velocity rate - g rate, from w, v, g; rate, velocity rate, keep.
    "SGDNesterovVarUpdate": OpSpec(_update(3, 3), inplace=(0,)),
    "ScaledGradient": OpSpec(_scaled_gradient, inplace=(0,)),
    # w keep - x rate, from w, x; rate, keep.
    "ScaledVarUpdate": OpSpec(_update(2, 2), inplace=(0,)),
}
