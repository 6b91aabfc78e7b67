"""Functions of single elements: the map for each, and its parameters."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from math import inf

from popc_runtime.format.dtypes import DType
from popc_runtime.format.program import Attributes
from popc_runtime.ground.frozen import replace
from popc_runtime.ground.hints import Final, TypeAlias
from popc_runtime.kernels.core.rounding_mode import Rounding
from popc_runtime.native.binding import NativeBinding
from popc_runtime.native.contiguous import straightened
from popc_runtime.native.forms import map_record
from popc_runtime.native.record import MAX_RANK, Record

__all__ = [
    "FLOATS_OF_32",
    "activation",
    "binary",
    "copy_of",
    "function",
    "map_for",
    "map_of",
    "unary",
]


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
    "Celu": _from(alpha=1.0),
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
    "Mish": _none,
    "Neg": _none,
    "Reciprocal": _none,
    "Relu": _none,
    "Round": _none,
    "Selu": _from(alpha=1.67326319217681884765625, gamma=1.05070102214813232421875),
    "Shrink": _from(bias=0.0, lambd=0.5),
    "Sigmoid": _none,
    "Softplus": _none,
    "Sqrt": _none,
    "Square": _none,
    "Swish": _from(alpha=1.0),
    "Tanh": _none,
    "ThresholdedRelu": _from(alpha=1.0),
}


FLOATS_OF_32: Final = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32)


def activation(name: str, attributes: Attributes) -> tuple[str, _Parameters] | None:
    """The map that computes a unary op, and its parameters; ``None`` if there is none."""
    if name not in _UNARY:
        return None
    if name == "Gelu" and attributes.get("approximate", "none") == "tanh":
        return "GeluTanh", ()
    parameters = _UNARY[name](attributes)
    if name == "Shrink" and parameters[1] < 0:  # elements on both sides at once
        return None
    return name, parameters


# Integers that maps compute with as they are.
_INTEGERS: Final[dict[DType, str]] = {
    DType.INT8: "i8",
    DType.UINT8: "u8",
    DType.INT16: "i16",
    DType.UINT16: "u16",
    DType.INT32: "i32",
    DType.UINT32: "u32",
    DType.INT64: "i64",
}


def map_for(name: str, dtype: DType | None, numbers: Container[str]) -> str | None:
    """The map for operands of ``dtype``, which are converted if it is for a wider type."""
    if dtype is None:
        return None
    if dtype in FLOATS_OF_32:
        kernels = [f"{name}_f32"]
    elif dtype is DType.FLOAT64:
        kernels = [f"{name}_f64"]
    elif dtype is DType.BOOL:
        kernels = [f"{name}_b8", f"{name}_wide_i64"]
    elif dtype is DType.UINT64:
        kernels = [f"{name}_wide_u64"]
    else:
        kernels = [f"{name}_{_INTEGERS.get(dtype, 'wide_i64')}", f"{name}_wide_i64"]
    return next((kernel for kernel in kernels if kernel in numbers), None)


def copy_of(dtype: DType | None) -> str:
    """The map that copies elements of ``dtype``, to any type."""
    if dtype in FLOATS_OF_32:
        return "Copy_f32"
    if dtype is DType.FLOAT64:
        return "Copy_f64"
    return "Copy_u64" if dtype is DType.UINT64 else "Copy_i64"


def map_of(
    name: str,
    binding: NativeBinding,
    numbers: Mapping[str, int],
    operands: int,
    parameters: _Parameters = (),
) -> Record | None:
    """A map of operands of one type, if there is one for it."""
    out = binding.output()
    inputs = [binding.input(index) for index in range(operands)]
    types = binding.input_dtypes[:operands]
    kernel = map_for(name, types[0], numbers)
    if out.ndim > MAX_RANK or out.size == 0 or len(set(types)) != 1 or kernel is None:
        return None
    if Rounding.of(binding.attributes):
        return None
    straight, before = straightened(binding, inputs, out)
    record = map_record(kernel, out, straight, parameters, (binding.output_dtypes[0], *types))
    return replace(record, before=before)


def unary(name: str, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """A function of one operand, whose result has its type."""
    found = activation(name, binding.attributes)
    if found is None or binding.input_dtypes[0] is not binding.output_dtypes[0]:
        return None
    return map_of(found[0], binding, numbers, 1, found[1])


def function(name: str, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """A function of one operand without parameters, to any type."""
    return map_of(name, binding, numbers, 1)


def binary(name: str, binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """A function of two operands of one type, which the result has too."""
    if len(binding.inputs) != 2 or binding.input_dtypes[0] is not binding.output_dtypes[0]:
        return None
    return map_of(name, binding, numbers, 2)
