"""Hyper-parameters of optimizers: values, constant or not, and those of single weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from popc.popart.calls import constructed
from popc.popart.errors import popart_exception

__all__ = ["OptimizerValue", "OptimizerValueMap", "value_of_pair", "values_of_map"]


class OptimizerValue:
    """A hyper-parameter in single precision, and whether it is constant.

    Forms: ``(val, isConst)``, ``(val)``, which is constant, ``()``, which is 0 and not constant,
    and a tuple of both.
    """

    __slots__ = ("_const", "_value")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._value, self._const = 0.0, False
        if len(args) == 1 and isinstance(args[0], tuple) and not kwargs:
            args = args[0]
        forms = (OptimizerValue._both, OptimizerValue._constant, OptimizerValue._zero)
        constructed(self, forms, args, kwargs)

    def _both(self, val: float, isConst: bool) -> None:
        self._value, self._const = float(np.float32(val)), isConst

    def _constant(self, val: float) -> None:
        self._both(val, isConst=True)

    def _zero(self) -> None:
        """Zero, not constant."""

    def val(self) -> float:
        """The value."""
        return self._value

    def isConst(self) -> bool:
        """True if it is constant."""
        return self._const

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OptimizerValue):
            return NotImplemented
        return (self._value, self._const) == (other._value, other._const)

    def __hash__(self) -> int:
        return hash((self._value, self._const))

    def __repr__(self) -> str:
        return f"OptimizerValue({self._value:g}, {self._const})"


class OptimizerValueMap:
    """A hyper-parameter: its default, and the values of single weights."""

    __slots__ = ("_default", "_specific")

    def __init__(self, default: OptimizerValue, specific: Mapping[str, OptimizerValue]) -> None:
        self._default = default
        self._specific = dict(specific)

    def getDefault(self) -> OptimizerValue:
        """The value of weights that have none of their own."""
        return self._default

    def get(self, name: str) -> OptimizerValue:
        """The value of a weight."""
        return self._specific.get(name, self._default)

    def specific(self) -> dict[str, OptimizerValue]:
        """The values of single weights, by name."""
        return dict(self._specific)


def value_of_pair(pair: object) -> OptimizerValue:
    """The value that a map's entry is: a tuple of a number and a truth value.

    Raises:
        popart_exception: it is no tuple.
        RuntimeError: the tuple holds something else.
    """
    if not isinstance(pair, tuple):
        raise popart_exception(
            "A value in the optimizer map must be a py::tuple of a number and whether it is "
            f"constant, such as (0.1, False), not {pair!r}"
        )
    try:
        return OptimizerValue(*pair)
    except TypeError as error:
        raise RuntimeError(
            f"Unable to cast Python instance {pair!r} to a number and whether it is constant"
        ) from error


def values_of_map(values: Mapping[object, object]) -> dict[str, OptimizerValue]:
    """The values of a map, by key.

    Raises:
        popart_exception: a key is no text, or a value no tuple.
        RuntimeError: a tuple holds something else than a number and a truth value.
    """
    found: dict[str, OptimizerValue] = {}
    for key, pair in values.items():
        if not isinstance(key, str):
            raise popart_exception(
                f"A key in the optimizer map input must be a py::str, not {key!r}"
            )
        found[key] = value_of_pair(pair)
    return found
