"""Names and meanings of old numpy and onnx that PopART's tests use, and newer releases lack."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, Final

import numpy as np
import onnx
import onnx.checker
import onnx.helper
import onnx.version_converter  # tests use it without importing it

_NUMPY: Final[dict[str, Any]] = {
    "Inf": np.inf,
    "NaN": np.nan,
    "alltrue": np.all,
    "cumproduct": np.cumprod,
    "float": float,
    "float_": np.float64,
    "in1d": np.isin,
    "int": int,
    "object": object,
    "product": np.prod,
    "sometrue": np.any,
}


def restore() -> None:
    """Put names back, each where it is missing, and give functions their former meaning."""
    for name, value in _NUMPY.items():
        if name not in vars(np):
            setattr(np, name, value)
    if not hasattr(onnx, "load_from_string"):
        onnx.load_from_string = onnx.load_model_from_string
    if not hasattr(onnx, "mapping"):
        onnx.mapping = sys.modules["onnx.mapping"] = _mapping()  # type: ignore[attr-defined]
    np.linspace = _of_doubles(np.linspace)
    resize: Any = importlib.import_module("onnx.backend.test.case.node.resize")
    resize.interpolate_nd = _of_ratios(resize.interpolate_nd)


def _of_doubles(linspace: Callable[..., Any]) -> Callable[..., Any]:
    """Let ``np.linspace`` count in float64 between scalars of any type, as before numpy 2."""

    @wraps(linspace)
    def old(start: Any, stop: Any, *args: Any, **settings: Any) -> Any:
        ends = (float(end) if isinstance(end, np.floating) else end for end in (start, stop))
        return linspace(*ends, *args, **settings)

    return old


def _of_ratios(interpolate: Callable[..., Any]) -> Callable[..., Any]:
    """Hand functions of coefficients the ratio alone, as before onnx 1.13."""

    @wraps(interpolate)
    def old(data: Any, coefficients: Callable[[Any], Any], *args: Any, **settings: Any) -> Any:
        return interpolate(data, lambda ratio, _scale: coefficients(ratio), *args, **settings)

    return old


def _mapping() -> ModuleType:
    """The two tables between element types of ONNX and dtypes of numpy."""
    dtypes: dict[int, np.dtype[Any]] = {}
    for kind in onnx.TensorProto.DataType.values():
        if kind not in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
            with contextlib.suppress(KeyError, ValueError):
                dtypes[kind] = onnx.helper.tensor_dtype_to_np_dtype(kind)
    made: Any = ModuleType("onnx.mapping")
    made.TENSOR_TYPE_TO_NP_TYPE = dtypes
    plain = {kind: dtype for kind, dtype in dtypes.items() if kind <= onnx.TensorProto.COMPLEX128}
    made.NP_TYPE_TO_TENSOR_TYPE = {dtype: kind for kind, dtype in reversed(plain.items())}
    module: ModuleType = made
    return module
