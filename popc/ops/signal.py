"""Fourier transforms and the mel filter bank."""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.infer import attribute_dtype, check_rank, operand
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["OPS"]


def _infer_dft(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """The last dimension holds real (1) or complex (2) numbers; ``axis`` is another one."""
    x = operand(inputs, 0)
    axis, length = integer(attributes, "axis"), integer(attributes, "dft_length")
    inverse, onesided = integer(attributes, "inverse"), integer(attributes, "onesided")
    _check_signal(x)
    if not 0 <= axis < x.rank - 1:
        raise ModelError(f"axis {axis} of {x} does not hold samples")
    if length < 1:
        raise ModelError(f"the transform length {length} must be positive")
    if onesided and inverse and x.shape[-1] != 2:
        raise ModelError("the inverse of a one-sided transform needs complex input")
    shape = list(x.shape)
    shape[axis] = length // 2 + 1 if onesided and not inverse else length
    shape[-1] = 1 if onesided and inverse else 2
    result = x.with_shape(tuple(shape))
    if result.size and x.size == 0:
        raise ModelError(f"there is nothing to transform in {x}")
    return (result,)


def _check_signal(x: TensorType) -> None:
    if not x.dtype.is_float:
        raise ModelError(f"the signal must be of a floating-point type, not {x.dtype}")
    if x.rank < 2 or x.shape[-1] not in (1, 2):
        raise ModelError(f"the last dimension of {x} must be 1 (real) or 2 (complex)")


def _infer_stft(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Signal [N, L, 1 or 2] gives [N, frames, bins, 2]."""
    x = operand(inputs, 0)
    window = inputs[1] if len(inputs) > 1 else None
    length, step = integer(attributes, "frame_length"), integer(attributes, "frame_step")
    _check_signal(x)
    check_rank(x, 3, "the signal")
    if step < 1 or not 1 <= length <= x.shape[1]:
        raise ModelError(f"frames of {length} samples every {step} do not fit {x}")
    if window is not None and window.shape != (length,):
        raise ModelError(f"the window {window} must have the frame length {length}")
    onesided = integer(attributes, "onesided")
    if onesided and x.shape[-1] == 2:
        raise ModelError("a one-sided transform needs a real signal")
    frames = (x.shape[1] - length) // step + 1
    return (x.with_shape((x.shape[0], frames, length // 2 + 1 if onesided else length, 2)),)


def _infer_mel_weight_matrix(
    inputs: OperandTypes, attributes: Attributes
) -> tuple[TensorType, ...]:
    """Sample rate, lower and upper edge (one value each) give [dft_length // 2 + 1, bins]."""
    for index in range(3):
        if operand(inputs, index).size != 1:
            raise ModelError(f"operand {index} must be one value, not {operand(inputs, index)}")
    bins, length = integer(attributes, "num_mel_bins"), integer(attributes, "dft_length")
    if bins < 0 or length < 0:
        raise ModelError(f"num_mel_bins {bins} and dft_length {length} must not be negative")
    return (TensorType(attribute_dtype(attributes, "dtype"), (length // 2 + 1, bins)),)


OPS: Final[dict[str, OpSpec]] = {
    "DFT": OpSpec(_infer_dft),
    "MelWeightMatrix": OpSpec(_infer_mel_weight_matrix),
    "STFT": OpSpec(_infer_stft),
}
