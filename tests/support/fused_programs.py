"""Random chains of elementwise steps, and operands for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from popc_runtime.format import Array, Attributes, DType
from popc_runtime.kernels.core.stored import as_stored
from popc_runtime.kernels.parts.fused_steps import FusedStep, written

__all__ = ["TYPES", "Chain", "chains", "channels_last"]

_FLOATS: Final = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)
_INTEGERS: Final = (DType.INT32, DType.INT64)
TYPES: Final = (*_FLOATS, *_INTEGERS, DType.BOOL)

_ATTRIBUTES: Final[dict[str, dict[str, Any]]] = {
    "Cast": {},
    "Clip": {"min": -0.5, "max": 0.75},
    "ClipGrad": {"min": -0.5, "max": 0.75},
    "Gelu": {"approximate": "none"},
    "GeluGrad": {"approximate": "none"},
    "LeakyRelu": {"alpha": 0.1},
    "ScaledAdd": {"scale0": 0.5, "scale1": -1.5},
    "Swish": {"alpha": 1.0},
}
_UNARY: Final = (
    *("Abs", "Ceil", "Clip", "Erf", "Exp", "Gelu", "LeakyRelu", "Neg", "Reciprocal", "Relu"),
    *("Round", "Sigmoid", "Sign", "Sin", "Softplus", "Sqrt", "Square", "Swish", "Tanh"),
)
_BINARY: Final = ("Add", "Div", "Max", "Min", "Mul", "Sub", "ScaledAdd")
_SLOPES: Final = ("ClipGrad", "GeluGrad", "ReluGrad", "SigmoidGrad", "TanhGrad")
_COMPARISONS: Final = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_OF_INTEGERS: Final = (("Abs", "Neg"), ("Add", "Max", "Min", "Mul", "Sub"))
_OF_BOOLS: Final = (("Not",), ("And", "Or", "Xor"))


@dataclass(frozen=True)
class Chain:
    """Steps, and what they work on; bfloat16 operands are bit patterns."""

    inputs: tuple[Array, ...]
    dtypes: tuple[DType, ...]  # of inputs
    constant: tuple[int, ...]
    steps: tuple[FusedStep, ...]
    shape: tuple[int, ...]

    @property
    def attributes(self) -> Attributes:
        """Of an instruction."""
        return written(self.steps)

    def out(self) -> Array:
        """Memory for the result."""
        return np.zeros(self.shape, self.steps[-1].dtype.storage)

    @property
    def types(self) -> tuple[DType, ...]:
        """Of inputs and results of steps."""
        return (*self.dtypes, *(step.dtype for step in self.steps))


def channels_last(array: Array) -> Array:
    """The same values with axis 1 innermost in memory."""
    if array.ndim < 3:
        return array
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


@st.composite
def chains(draw: st.DrawFn, most_steps: int = 8, types: tuple[DType, ...] = TYPES) -> Chain:
    """Programs of some steps on operands of any element type, shape and layout."""
    drawn = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 8, 17, 40)), max_size=4)))
    shape: tuple[int, ...] = draw(
        st.sampled_from((drawn, drawn, (2, 16, 9, 9), (3000,), (5, 1100)))
    )
    random = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    dtypes = tuple(draw(st.lists(st.sampled_from(types), min_size=1, max_size=4)))
    shapes = [shape, *(_smaller(draw, shape) for _ in dtypes[1:])]
    inputs = tuple(
        _laid_out(draw, _values(random, item, dtype))
        for item, dtype in zip(shapes, dtypes, strict=True)
    )
    known: list[DType] = list(dtypes)
    full = [item == shape for item in shapes]
    steps: list[FusedStep] = []
    for _ in range(draw(st.integers(1, most_steps))):
        steps.append(_step(draw, known, full))
        known.append(steps[-1].dtype)
        full.append(True)
    constant = tuple(index for index in range(len(dtypes)) if draw(st.booleans()))
    return Chain(inputs, dtypes, constant, tuple(steps), shape)


def _smaller(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to ``shape``."""
    kept = draw(st.integers(0, len(shape)))
    if draw(st.booleans()):
        return shape
    return tuple(1 if draw(st.integers(0, 3)) == 0 else item for item in shape[kept:])


def _laid_out(draw: st.DrawFn, array: Array) -> Array:
    how = draw(st.sampled_from(("plain", "plain", "last", "wide", "turned")))
    if how == "last":
        return channels_last(array)
    if how == "turned" and array.ndim:
        return np.ascontiguousarray(array.T).T
    if how == "wide" and array.ndim:
        wide = np.repeat(array, 2, axis=-1)
        return wide[..., ::2]
    return array


def _values(random: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    if dtype is DType.BOOL:
        return np.asarray(random.random(shape) < 0.5)
    if dtype.is_integer:
        return np.asarray(random.integers(-9, 9, shape), dtype.storage)
    values = np.asarray(random.standard_normal(shape) * 2, np.float32)
    if values.size > 3:
        values.reshape(-1)[:3] = np.nan, np.inf, -0.0
    return as_stored(values, dtype).reshape(shape)


def _step(draw: st.DrawFn, known: list[DType], full: list[bool]) -> FusedStep:
    """A step on values that there are, one of which has the shape of the result."""
    first = draw(st.sampled_from([number for number, is_full in enumerate(full) if is_full]))
    dtype = known[first]
    if draw(st.integers(0, 4)) == 0:
        to = draw(st.sampled_from(TYPES))
        return FusedStep("Cast", (first,), to, {"to": to.value})
    alike = [number for number, item in enumerate(known) if item is dtype]
    second = draw(st.sampled_from(alike))
    pair = (first, second) if draw(st.booleans()) else (second, first)
    conditions = [number for number, item in enumerate(known) if item is DType.BOOL]
    if draw(st.booleans()) and conditions:
        return FusedStep("Where", (draw(st.sampled_from(conditions)), *pair), dtype, {})
    if dtype is not DType.BOOL and draw(st.integers(0, 4)) == 0:
        return FusedStep(draw(st.sampled_from(_COMPARISONS)), pair, DType.BOOL, {})
    if dtype.is_float and draw(st.integers(0, 4)) == 0:
        name = draw(st.sampled_from(_SLOPES))
        return FusedStep(name, (first, second), dtype, _ATTRIBUTES.get(name, {}))
    if dtype.is_float and draw(st.integers(0, 6)) == 0:
        return FusedStep(
            "Sum", (first, *(draw(st.sampled_from(alike)) for _ in range(2))), dtype, {}
        )
    unary: tuple[str, ...] = _UNARY if dtype.is_float else _OF_INTEGERS[0]
    binary: tuple[str, ...] = _BINARY if dtype.is_float else _OF_INTEGERS[1]
    if dtype is DType.BOOL:
        unary, binary = _OF_BOOLS
    name = draw(st.sampled_from((*unary, *binary)))
    reads = (first,) if name in unary else pair
    return FusedStep(name, reads, dtype, _ATTRIBUTES.get(name, {}))
