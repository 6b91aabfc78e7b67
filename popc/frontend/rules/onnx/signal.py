"""Fourier transforms and the mel filter bank."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import Node
from popc.frontend.rules.common import default_domain, reshaped
from popc.frontend.tensors import dtype_from_onnx
from popc.ir import Tensor
from popc.ops.infer import normal_axis
from popc_runtime.errors import ModelError

__all__ = ["RULES"]


def _dft(node: Node) -> Tensor:
    """DFT-17 has its axis in an attribute, DFT-20 in an operand."""
    x = node.input(0)
    given = _scalar(node, 2, "the transformed axis") if node.version >= 20 else node.integer("axis")
    axis = normal_axis(-2 if given is None else given, x.type.rank)
    inverse, onesided = bool(node.integer("inverse")), bool(node.integer("onesided"))
    length = _scalar(node, 1, "the transform length")
    if length is None:
        samples = x.type.shape[axis]
        length = 2 * (samples - 1) if inverse and onesided else samples
    return node.emit(
        "DFT",
        [x],
        {
            "axis": axis,
            "dft_length": length,
            "inverse": int(inverse),
            "onesided": int(onesided),
        },
    )


def _scalar(node: Node, index: int, what: str) -> int | None:
    """An integer operand that must be known, ``None`` if absent."""
    if node.optional(index) is None:
        return None
    value = node.require_known(index, what)
    if value.size != 1:
        raise ModelError(f"{what} must be one integer, not {value.size}")
    return int(value.reshape(()))


def _stft(node: Node) -> Tensor:
    """Real signals may be [batch, samples], as PyTorch exports them and onnxruntime takes them."""
    signal, window = node.input(0), node.optional(2)
    if signal.type.rank == 2:
        signal = reshaped(node, signal, (*signal.type.shape, 1))
    step = _scalar(node, 1, "the frame step")
    length = _scalar(node, 3, "the frame length")
    if step is None:
        raise ModelError("input 1, the frame step, is required but missing")
    if length is None:
        length = window.type.size if window is not None else signal.type.shape[1]
    return node.emit(
        "STFT",
        [signal, window],
        {
            "frame_length": length,
            "frame_step": step,
            "onesided": node.integer("onesided"),
        },
    )


def _mel_weight_matrix(node: Node) -> Tensor:
    bins = _scalar(node, 0, "the number of mel bins")
    length = _scalar(node, 1, "the transform length")
    if bins is None or length is None:
        raise ModelError("inputs 0 and 1, the number of bins and the length, are required")
    return node.emit(
        "MelWeightMatrix",
        [node.input(index) for index in (2, 3, 4)],
        {
            "num_mel_bins": bins,
            "dft_length": length,
            "dtype": dtype_from_onnx(node.integer("output_datatype")).value,
        },
    )


RULES: Final = default_domain(
    {
        "DFT": _dft,
        "MelWeightMatrix": _mel_weight_matrix,
        "STFT": _stft,
    }
)
