"""Checks of a node's operands against the operator's definition: number and element types.

Checking here, against ONNX's own definitions, is what lets import rules rely on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cache
from typing import Final

from popc.frontend.definitions import Presence, find_definition, newest
from popc.frontend.values import Value
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["check_signature"]

_OLDEST_CHECKED: Final = 7  # opset; what exporters wrote for older ones goes beyond the definitions
_EIGHT_BITS: Final = ("Conv", "MatMul")  # PopART's products have operands that ONNX's do not
# Inputs that Resize-11 demands although sizes take their place: PopART's builder leaves them out.
_IN_PLACE_OF: Final = frozenset([("Resize", "scales")])


@frozen
class _Formal:
    """A formal input: the variable of its type ("" if it shares none), and what it may be."""

    name: str
    required: bool
    variable: str
    dtypes: frozenset[DType]  # empty: anything


@frozen
class _Signature:
    """The inputs of an operator; ``last_repeats`` if any number may follow.

    ``fitting`` are the element types of tensors that have been looked at, and are allowed.
    """

    formals: tuple[_Formal, ...]
    fewest: int
    last_repeats: bool
    fitting: set[tuple[DType, ...]] = field(default_factory=set[tuple[DType, ...]])

    def formals_of(self, count: int) -> tuple[_Formal, ...]:
        """The formals of so many inputs."""
        return self.formals[:count] + self.formals[-1:] * (count - len(self.formals))


def check_signature(
    op_type: str, domain: str, version: int, inputs: Sequence[Value | None]
) -> None:
    """Refuse operands that the operator does not take.

    Operators without a definition take anything; so do those of opsets before 7, whose definitions
    were narrower than what exporters wrote.  Others also take element types that only a later
    version of the operator names, as PopART does: Max of integers at opset 8, for instance.

    Raises:
        ModelError: there are too many or too few, one has a wrong type, or two types differ.
    """
    signature = _signature(op_type, domain, version)
    if signature is None or (not domain and version < _OLDEST_CHECKED):
        return
    if op_type in _EIGHT_BITS and any(_has_eight_bits(value) for value in inputs):
        return
    count = len(inputs)
    while count and inputs[count - 1] is None:
        count -= 1
    if count > len(signature.formals) and not signature.last_repeats:
        raise ModelError(f"{op_type} takes {len(signature.formals)} inputs, but {count} are given")
    if count < signature.fewest:
        raise ModelError(f"{op_type} needs {signature.fewest} inputs, but {count} are given")
    dtypes = tuple([value.type.dtype for value in inputs if type(value) is Tensor])
    if len(dtypes) == len(inputs) and dtypes in signature.fitting:
        return
    bound: dict[str, tuple[int, DType]] = {}
    for index, formal in enumerate(signature.formals_of(count)):
        _check_input(formal, index, inputs[index], bound)
    if len(dtypes) == len(inputs):
        signature.fitting.add(dtypes)


def _has_eight_bits(value: Value | None) -> bool:
    return isinstance(value, Tensor) and value.type.dtype.is_float8


def _check_input(
    formal: _Formal, index: int, value: Value | None, bound: dict[str, tuple[int, DType]]
) -> None:
    if value is None and formal.required:
        raise ModelError(f"input {index} ({formal.name}) is required but missing")
    if not isinstance(value, Tensor):
        return
    dtype = value.type.dtype
    if formal.dtypes and dtype not in formal.dtypes:
        allowed = ", ".join(type_ for type_ in DType if type_ in formal.dtypes)
        raise ModelError(f"input {index} ({formal.name}) is {dtype}, but may be {allowed}")
    if formal.variable:
        first, expected = bound.setdefault(formal.variable, (index, dtype))
        if dtype is not expected:
            raise ModelError(
                f"inputs {first} and {index} must have the same type, "
                f"but are {expected} and {dtype}"
            )


@cache
def _signature(op_type: str, domain: str, version: int) -> _Signature | None:
    definition = find_definition(op_type, domain, version)
    if definition is None:
        return None
    last = None if domain else newest(op_type, domain)
    later = {formal.name: formal.dtypes for formal in last.inputs} if last else {}
    formals: list[_Formal] = []
    for formal in definition.inputs:
        name, is_single = formal.name, formal.presence is Presence.REQUIRED
        required = is_single and (op_type, name) not in _IN_PLACE_OF
        dtypes = formal.dtypes | later.get(name, frozenset())
        formals.append(_Formal(name, required, formal.variable, dtypes))
    repeats = bool(formals) and definition.inputs[-1].presence is Presence.VARIADIC
    return _Signature(tuple(formals), definition.fewest, repeats)
