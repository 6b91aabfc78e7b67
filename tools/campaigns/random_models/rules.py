"""Error bounds of a node's results, given those of its operands.

A rule gets a `Step` and returns one array of errors for each result.  Errors are those of two
computations that are compared: each rounds in its own way, so that a rounding counts twice.
Sums are of terms that may be added in any order, with partial sums in float32; results of float16
are rounded once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from onnx import helper

from popc_runtime.format import Array
from tools.campaigns.random_models.evaluation import run_node
from tools.campaigns.random_models.value import Value

__all__ = [
    "FLOAT32",
    "FUNCTION",
    "Rule",
    "Step",
    "errors_of",
    "narrow",
    "of_sum",
    "rounding",
    "unit",
    "wide",
]

FLOAT32: Final = 2.0**-24  # largest relative error of a rounding
_UNITS: Final = {"float16": 2.0**-11, "float32": FLOAT32, "float64": 2.0**-53}
FUNCTION: Final = 2.0**-20  # functions of single elements, relative to the largest result


@dataclass(frozen=True)
class Step:
    """A node that has been run."""

    node: onnx.NodeProto
    operands: Sequence[Value | None]
    results: Sequence[Array | None]
    opset: int

    def attribute(self, name: str, default: Any) -> Any:
        """An attribute of the node."""
        found = [attribute for attribute in self.node.attribute if attribute.name == name]
        return helper.get_attribute_value(found[0]) if found else default

    def operand(self, index: int) -> Value:
        """An operand that is there."""
        value = self.operands[index]
        assert value is not None, self.node.op_type
        return value

    def has(self, index: int) -> bool:
        """True if there is such an operand."""
        return index < len(self.operands) and self.operands[index] is not None

    @property
    def y(self) -> Array:
        """The first result, as float64."""
        assert self.results[0] is not None
        return self.results[0].astype(np.float64)

    def through(self, *first: Array) -> Array:
        """The first result for other first operands, as float64; float16 becomes float32."""
        replaced = [narrow(array) for array in first]
        others = [None if x is None else wide(x.array) for x in self.operands[len(first) :]]
        return self.evaluated([*replaced, *others])

    def evaluated(self, operands: Sequence[Array | None]) -> Array:
        """The first result for other operands, as float64."""
        results = run_node(self.node, operands, self.opset)
        return results[self.node.output[0]].astype(np.float64)

    def rounding(self, result: Array | None = None) -> Array:
        """The distance that two roundings of a result to its type may have."""
        array = self.results[0] if result is None else result
        assert array is not None
        return rounding(array)


Rule: TypeAlias = Callable[[Step], list[Array]]


def narrow(array: Array) -> Array:
    """Float64 as float32; others as they are."""
    return array.astype(np.float32) if array.dtype == np.float64 else array


def wide(array: Array) -> Array:
    """Float16 as float32; others as they are."""
    return array.astype(np.float32) if array.dtype == np.float16 else array


def unit(dtype: Any) -> float:
    """The largest relative error of a rounding; 0 for integers."""
    return _UNITS.get(np.dtype(dtype).name, 0.0)


def rounding(array: Array) -> Array:
    """The distance that two roundings of numbers to their type may have."""
    if array.dtype.kind != "f":
        return np.zeros(array.shape)
    kind = np.finfo(array.dtype)  # engines may take float32 that is smaller than that for zero
    least = float(kind.smallest_normal if array.dtype == np.float32 else kind.smallest_subnormal)
    return 2 * unit(array.dtype) * np.abs(array.astype(np.float64)) + least


def of_sum(count: float) -> float:
    """The distance of two sums of ``count`` terms, relative to the sum of their magnitudes."""
    return 2 * (count + 2) * FLOAT32


def errors_of(step: Step) -> list[Array]:
    """The error bound of each result of a node."""
    from tools.campaigns.random_models.rule_table import RULES
    from tools.campaigns.random_models.rules_of_rows import sampled

    if not any(made is not None and made.size for made in step.results):
        return [np.zeros(() if made is None else made.shape) for made in step.results]
    rule = RULES.get(step.node.op_type, sampled)
    with np.errstate(all="ignore"):
        return rule(step)
