"""Floating-point exceptions: after each instruction, is there a NaN or infinity that it has made?

Hardware raises exceptions as operations happen; here results tell that they have happened:

* invalid: a NaN, although no operand has one,
* div0: an infinity of finite operands, by an instruction with a pole,
* overflow: an infinity of finite operands, by any other instruction.

An instruction counts as a whole: one infinite operand (a mask, say) excuses all infinities of the
result.  Instructions that only move or fill in elements are not checked.  The steps of a chain are
instructions of their own here: what one of them makes, a later one may hide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.errors import DeviceError
from popc_runtime.format import Array, DType, FloatCheck, Instruction
from popc_runtime.ground.frozen import frozen
from popc_runtime.kernels import KERNELS, Binding, Call, MoveKernel
from popc_runtime.kernels.core.preparation import prepare
from popc_runtime.kernels.core.stored import floats_of
from popc_runtime.kernels.fused import steps_apart
from popc_runtime.kernels.parts.fused_steps import steps_of

__all__ = ["POLES", "UNCHECKED", "with_checks"]

# Instructions that divide by something or take a logarithm, which may be zero.
POLES: Final = frozenset(
    {
        *("Div", "Pow", "Reciprocal", "Mod", "Inverse", "CumProdGrad"),
        *("Atanh", "Log", "Log1p", "ReduceLogSum", "ReduceLogSumExp"),
        *("BatchNormalization", "BatchNormalizationTraining", "BatchNormalizationGrad"),
        *("GroupNormalization", "GroupNormalizationGrad"),
        *("InstanceNormalization", "InstanceNormalizationGrad"),
        *("LayerNormalization", "LayerNormalizationGrad", "LRN", "LRNGrad"),
        *("RMSNormalization", "RMSNormalizationGrad"),
        *("Ctc", "Nll", "NllGrad"),
        *("AdaDeltaUpdater", "AdamUpdater", "AdamVarUpdate", "LambVarUpdate", "RMSPropUpdater"),
    }
)
UNCHECKED: Final = frozenset({"Fill"})

# Patterns of bits that infinities and NaNs have in common.
_EXPONENTS: Final = {
    DType.FLOAT16: np.uint16(0x7C00),
    DType.BFLOAT16: np.uint16(0x7F80),
}
_FLOATS: Final = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64)

# What the elements in question are, and what the operands are.
_WHAT: Final = {
    FloatCheck.INVALID: ("NaN", "no operand has one"),
    FloatCheck.DIV0: ("infinity", "all operands are finite"),
    FloatCheck.OVERFLOW: ("infinity", "all operands are finite"),
}
_HINTS: Final = {
    FloatCheck.INVALID: "0/0, inf - inf, roots and logarithms of negative numbers are NaN",
    FloatCheck.DIV0: "keep divisors and arguments of logarithms away from 0, by adding an epsilon",
    FloatCheck.OVERFLOW: "lower the learning rate or the loss scale, or use a wider type",
}


def with_checks(
    calls: Sequence[Call], item: Instruction, binding: Binding, kinds: Collection[FloatCheck]
) -> tuple[Call, ...]:
    """The calls of an instruction, with others around them that raise at exceptions of ``kinds``.

    Those that raise tell the name of the instruction, the result, and how many of its elements are
    affected, in a DeviceError.
    """
    if item.opcode == "FusedElementwise":
        return tuple(_checked_steps(item, binding, kinds))
    is_move = isinstance(KERNELS[item.opcode], MoveKernel)
    outputs = _floats_of(binding.outputs, binding.output_dtypes)
    if not kinds or not outputs or is_move or item.opcode in UNCHECKED:
        return tuple(calls)
    operands = list(_floats_of(binding.inputs, binding.input_dtypes).values())
    check = _Check(item, operands, outputs, frozenset(kinds))
    if any(
        np.may_share_memory(operand.array, other.array)
        for operand in operands
        for other in outputs.values()
    ):
        return (check.look_before, *calls, check)  # what is overwritten cannot be looked at later
    return (*calls, check)


def _checked_steps(
    item: Instruction, binding: Binding, kinds: Collection[FloatCheck]
) -> Iterator[Call]:
    count = len(steps_of(binding.attributes, len(binding.inputs)))
    names = item.name.split(", ")
    if len(names) != count:  # some nodes are several steps
        names = [item.name] * count
    result = binding.output()
    for name, (step, inner) in zip(names, steps_apart(binding), strict=True):
        single = replace(item, opcode=step.opcode, name=name, attributes=step.attributes)
        yield from with_checks(prepare(KERNELS[step.opcode], inner), single, inner, kinds)
        result = inner.output()
    yield partial(np.copyto, binding.output(), result)


@frozen
class _Tensor:
    array: Array
    dtype: DType

    def is_finite(self) -> bool:
        exponent = _EXPONENTS.get(self.dtype)
        if exponent is None:
            return bool(np.isfinite(self.array).all())
        return not (np.bitwise_and(self.array.view(np.uint16), exponent) == exponent).any()

    def floats(self) -> Array:
        return floats_of(self.array, self.dtype)

    def has_nan(self) -> bool:
        return not self.is_finite() and bool(np.isnan(self.floats()).any())


def _floats_of(
    arrays: Sequence[Array | None], dtypes: Sequence[DType | None]
) -> dict[int, _Tensor]:
    """The floating-point numbers among the arrays, by their place."""
    return {
        index: _Tensor(array, dtype)
        for index, (array, dtype) in enumerate(zip(arrays, dtypes, strict=True))
        if array is not None and dtype is not None and dtype in _FLOATS and array.size
    }


class _Check:
    """The check after one instruction, and before it if it overwrites operands."""

    def __init__(
        self,
        item: Instruction,
        operands: Sequence[_Tensor],
        outputs: dict[int, _Tensor],
        kinds: frozenset[FloatCheck],
    ) -> None:
        self._item = item
        self._operands = operands
        self._outputs = outputs
        self._kinds = kinds
        self._before: tuple[bool, bool] | None = None

    def look_before(self) -> None:
        """Keep in mind what the operands are like."""
        self._before = None
        self._before = self._state()

    def _state(self) -> tuple[bool, bool]:
        """True if an operand has a NaN, and true if all are finite."""
        if self._before is not None:
            return self._before
        finite = all(operand.is_finite() for operand in self._operands)
        return not finite and any(operand.has_nan() for operand in self._operands), finite

    def __call__(self) -> None:
        """Look at the results.

        Raises:
            DeviceError: they show an exception.
        """
        for index, output in self._outputs.items():
            if not output.is_finite():
                self._judge(index, output)

    def _judge(self, index: int, output: _Tensor) -> None:
        has_nan, finite = self._state()
        infinity = FloatCheck.DIV0 if self._item.opcode in POLES else FloatCheck.OVERFLOW
        suspects: list[tuple[FloatCheck, bool, Callable[[Array], Array]]] = [
            (FloatCheck.INVALID, not has_nan, np.isnan),
            (infinity, finite, np.isinf),
        ]
        for kind, is_exception, found in suspects:
            if is_exception and kind in self._kinds:
                places = found(output.floats())
                if places.any():
                    raise self._error(kind, index, output, places)

    def _error(self, kind: FloatCheck, index: int, output: _Tensor, places: Array) -> DeviceError:
        item = self._item
        found, operands = _WHAT[kind]
        first = [int(i) for i in np.unravel_index(int(places.argmax()), places.shape)]
        shape = ",".join(map(str, places.shape))
        count = f"{found} in {np.count_nonzero(places):,} of {places.size:,} elements"
        result = f"result {self._name(index)}, {output.dtype.value}[{shape}]"
        return DeviceError(
            f"floating-point exception ({kind.value}) in {item.opcode} ({item.name})",
            subject=item.name,
            details=(f"{result}: {count}, first at {first}; {operands}",),
            hint=_HINTS[kind],
        )

    def _name(self, index: int) -> str:
        """The name of a result, if the archive has it."""
        names = self._item.attributes.get("results")
        if isinstance(names, tuple) and index < len(names):
            return repr(names[index])
        return str(index)
