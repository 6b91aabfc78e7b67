"""The distance between two copies of a model after training."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper

from popc.popart.calls import native
from popc.popart.errors import popart_exception
from popc.popart.loading import load_model

__all__ = ["NumericsReport"]

_WHAT: Final = ("start of A", "end of A", "start of B", "end of B")
_Tensors = dict[str, onnx.TensorProto]
_FLOATS: Final = (onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE, onnx.TensorProto.BFLOAT16)
_SMALL: Final = 1e-8  # keeps what did not change from being divided by nothing


class NumericsReport:
    """Changes of the weights in two trainings, compared: A0 and A1, B0 and B1 are ONNX files.

    Raises:
        popart_exception: one is no file, or their weights differ in number, name or type, or are
            of a floating-point type other than FLOAT.
    """

    __slots__ = ("_errors", "_reports")

    @native
    def __init__(self, A0: str, A1: str, B0: str, B1: str) -> None:
        models = [_weights(path, what) for path, what in zip((A0, A1, B0, B1), _WHAT, strict=True)]
        self._reports: dict[str, str] = {}
        self._errors: dict[str, float] = {}
        for tensors in zip(*(model.items() for model in models), strict=True):
            self._compare([tensor for _, tensor in tensors])

    def _compare(self, tensors: list[onnx.TensorProto]) -> None:
        first = tensors[0]
        for other in tensors[1:]:
            if (other.name, other.data_type, other.dims) != (
                first.name,
                first.data_type,
                first.dims,
            ):
                raise popart_exception(
                    f"The weights {first.name} and {other.name} differ in name or type"
                )
        if first.data_type in _FLOATS:
            raise popart_exception(
                f"Create report for floating-point type {_type_name(first)} is not supported"
            )
        if first.data_type == onnx.TensorProto.FLOAT:
            values = [numpy_helper.to_array(tensor).astype(np.float64) for tensor in tensors]
            self._report(first.name, values)

    def _report(self, name: str, values: list[np.ndarray[Any, Any]]) -> None:
        a, b = values[1] - values[0], values[3] - values[2]
        squares = float(np.sum(a * a)), float(np.sum(b * b)), float(np.sum((a - b) ** 2))
        self._errors[name] = squares[2] / (np.sqrt(squares[0] * squares[1]) + _SMALL)
        self._reports[name] = (
            f"{name}: |dA|^2 = {squares[0]:g}, |dB|^2 = {squares[1]:g}, |dA - dB|^2 = "
            f"{squares[2]:g}, relative error = {self._errors[name]:g}"
        )

    @native
    def report(self, id: str) -> str:  # noqa: A002
        """The change of a weight.

        Raises:
            popart_exception: it is none that is compared.
        """
        if id not in self._reports:
            raise popart_exception(f"No report available for {id}")
        return self._reports[id]

    def fullReport(self) -> str:
        """The changes of all weights, a line for each."""
        return "\n".join(self._reports.values())

    def getRelativeErrors(self) -> dict[str, float]:
        """The distance of the two changes of each weight, relative to the changes."""
        return dict(self._errors)


def _weights(path: str, what: str) -> _Tensors:
    if not Path(path).is_file():
        raise popart_exception(f"{path} ({what}) is not a regular file")
    model, _ = load_model(path)
    return {tensor.name: tensor for tensor in model.graph.initializer}


def _type_name(tensor: onnx.TensorProto) -> str:
    return str(onnx.TensorProto.DataType.Name(tensor.data_type))
