"""Functions of single elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Final, TypeAlias

from popc_runtime.format.dtypes import DType
from popc_runtime.format.program import Attributes
from popc_runtime.kernels.binding import Binding
from popc_runtime.native.forms import map_record
from popc_runtime.native.record import (
    MAX_RANK,
    Encoder,
    Record,
)

__all__ = ["ENCODERS", "activation"]

_Parameters: TypeAlias = tuple[float, ...]


def _none(attributes: Attributes) -> _Parameters:
    del attributes
    return ()


def _from(**defaults: float) -> Callable[[Attributes], _Parameters]:
    """Parameters that are attributes, with their defaults."""

    def parameters(attributes: Attributes) -> _Parameters:
        return tuple(float(str(attributes.get(name, value))) for name, value in defaults.items())

    return parameters


# Maps of floats, and which parameters they have.
_UNARY: Final[Mapping[str, Callable[[Attributes], _Parameters]]] = {
    "Abs": _none,
    "Ceil": _none,
    "Clip": _from(min=-inf, max=inf),
    "Elu": _from(alpha=1.0),
    "Erf": _none,
    "Exp": _none,
    "FakeQuantize": _from(scale=1.0, low=-128.0, high=127.0),
    "Floor": _none,
    "Gelu": _none,
    "HardSigmoid": _from(alpha=0.2, beta=0.5),
    "HardSwish": _none,
    "LeakyRelu": _from(alpha=0.01),
    "Log": _none,
    "Neg": _none,
    "Reciprocal": _none,
    "Relu": _none,
    "Round": _none,
    "Sigmoid": _none,
    "Softplus": _none,
    "Sqrt": _none,
    "Square": _none,
    "Swish": _from(alpha=1.0),
    "Tanh": _none,
}
_ARITHMETIC: Final = ("Add", "Mul", "Sub")
_FLOAT_BINARY: Final = (*_ARITHMETIC, "Div", "Max", "Min", "PRelu")
_COMPARISONS: Final = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_LOGICAL: Final = ("And", "Or", "Xor")
_SUFFIXES: Final = {
    DType.FLOAT32: "f32",
    DType.INT32: "i32",
    DType.INT64: "i64",
    DType.UINT8: "u8",
    DType.BOOL: "b8",
}
_CASTS: Final = frozenset(
    {
        (DType.INT32, DType.FLOAT32),
        (DType.INT64, DType.FLOAT32),
        (DType.UINT8, DType.FLOAT32),
        (DType.BOOL, DType.FLOAT32),
        (DType.INT32, DType.INT64),
        (DType.INT64, DType.INT32),
    }
)


def activation(name: str, attributes: Attributes) -> tuple[str, _Parameters] | None:
    """The map that computes a unary op, and its parameters; ``None`` if there is none."""
    if name not in _UNARY:
        return None
    if name == "Gelu" and attributes.get("approximate", "none") == "tanh":
        return "GeluTanh", ()
    return name, _UNARY[name](attributes)


def _map(
    kernel: str, binding: Binding, operands: int, parameters: _Parameters = ()
) -> Record | None:
    out = binding.output()
    inputs = [binding.input(index) for index in range(operands)]
    if out.ndim > MAX_RANK or out.size == 0:
        return None
    return map_record(kernel, out, inputs, parameters)


def _unary(name: str, binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    found = activation(name, binding.attributes)
    if found is None or _types(binding) != (DType.FLOAT32, DType.FLOAT32):
        return None
    return _map(f"{found[0]}_f32", binding, 1, found[1])


def _binary(name: str, binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    left, right, result = *binding.input_dtypes[:2], binding.output_dtypes[0]
    if len(binding.inputs) != 2 or left is not right or left is not result or left is None:
        return None
    known = _FLOAT_BINARY if left is DType.FLOAT32 else _ARITHMETIC
    if left not in (DType.FLOAT32, DType.INT32, DType.INT64) or name not in known:
        return None
    return _map(f"{name}_{_SUFFIXES[left]}", binding, 2)


def _comparison(name: str, binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    left, right = binding.input_dtypes[:2]
    if left is not right or left not in (DType.FLOAT32, DType.INT32, DType.INT64):
        return None
    return _map(f"{name}_{_SUFFIXES[left]}", binding, 2)


def _logical(name: str, binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    return _map(f"{name}_b8", binding, 2)


def _not(binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    return _map("Not_b8", binding, 1)


def _cast(binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    types = _types(binding)
    if types not in _CASTS:
        return None
    source, target = (_SUFFIXES[one] for one in types)
    return _map(f"Cast_{source}_{target}", binding, 1)


def _where(binding: Binding, numbers: Mapping[str, int]) -> Record | None:
    del numbers
    size = binding.output().itemsize
    return _map(f"Where_{8 * size}", binding, 3) if size in (1, 4, 8) else None


def _types(binding: Binding) -> tuple[DType | None, DType | None]:
    return binding.input_dtypes[0], binding.output_dtypes[0]


ENCODERS: Final[dict[str, Encoder]] = {
    **{name: partial(_unary, name) for name in _UNARY},
    **{name: partial(_binary, name) for name in _FLOAT_BINARY},
    **{name: partial(_comparison, name) for name in _COMPARISONS},
    **{name: partial(_logical, name) for name in _LOGICAL},
    "Cast": _cast,
    "Not": _not,
    "Where": _where,
}
