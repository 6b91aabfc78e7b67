"""Numbers in the updates: known when the program is compiled, or computed from variables.

Most updates need hyper-parameters in a combined form, such as the learning rate over the loss
scale.  Constants combine here; others by ops on scalars, once for all weights that share them.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from popc.ir import Graph, OpSettings, Tensor, TensorType, VariableRole
from popc.ops.build import build
from popc.optimizers.resolve import Resolution
from popc.optimizers.spec import OptimizerSpec
from popc.optimizers.values import HyperParameterSpec
from popc_runtime.format import DType, HyperParameter

__all__ = ["Scalar", "Scalars", "add_hyper_parameter"]

Scalar: TypeAlias = "float | Tensor"

_SETTINGS: Final = OpSettings(origin="optimizer")
_SCALAR: Final = TensorType(DType.FLOAT32, ())


def add_hyper_parameter(graph: Graph, name: str, value: float) -> Tensor:
    """A float32 variable that the host may change."""
    initial = np.asarray(value, np.float32)
    return graph.add_variable(name, _SCALAR, VariableRole.HYPER_PARAMETER, initial)


class Scalars:
    """Hyper-parameters of weights, and what follows from them."""

    def __init__(self, graph: Graph, spec: OptimizerSpec, resolution: Resolution) -> None:
        self._graph = graph
        self._resolution = resolution
        self._specs = {parameter.name: parameter for parameter in spec.hyper_parameters()}
        self._found: dict[tuple[str, int | None], tuple[Scalar, str]] = {}
        self._results: dict[tuple[str, Scalar, Scalar], Tensor] = {}
        self._constants: dict[tuple[float, DType], Tensor] = {}
        self.known: dict[str, Scalar] = {}  # by names of PopART's, where tensors have others

    def hyper_parameter(self, name: str, weight: str) -> Scalar:
        """The value of a hyper-parameter for a weight: a number, or the variable that holds it."""
        source = self._resolution.source(name, weight)
        if (name, source) not in self._found:
            self._found[name, source] = self._add(self._specs[name], weight, source), weight
        return self._found[name, source][0]

    def _add(self, spec: HyperParameterSpec, weight: str, source: int | None) -> Scalar:
        given = self._resolution.value(spec.name, weight)
        if given.const:
            return given.value
        name = f"{spec.stem}___{self._resolution.label([source])}"
        return add_hyper_parameter(self._graph, name, given.value)

    @property
    def used(self) -> list[HyperParameter]:
        """All that were asked for, by order of declaration, those for all weights first."""
        order = list(self._specs)
        rows = sorted(
            self._found.items(),
            key=lambda row: (order.index(row[0][0]), -1 if row[0][1] is None else row[0][1]),
        )
        return [
            HyperParameter(
                name,
                self._resolution.group(source),
                self._resolution.value(name, weight).value,
                "" if isinstance(scalar, float) else scalar.name,
            )
            for (name, source), (scalar, weight) in rows
        ]

    # -- arithmetic ------------------------------------------------------------------------------

    def mul(self, a: Scalar, b: Scalar) -> Scalar:
        """a * b."""
        if isinstance(a, float) and isinstance(b, float):
            return a * b
        for one, other in ((a, b), (b, a)):
            if one in (0, 1):
                return other if one == 1 else 0.0
        return self._result("Mul", a, b)

    def div(self, a: Scalar, b: Scalar) -> Scalar:
        """a / b."""
        if isinstance(a, float) and isinstance(b, float):
            return a / b
        return a if b == 1 else self._result("Div", a, b)

    def sub(self, a: Scalar, b: Scalar) -> Scalar:
        """a - b."""
        if isinstance(a, float) and isinstance(b, float):
            return a - b
        return a if b == 0 else self._result("Sub", a, b)

    def larger(self, a: Scalar, b: Scalar) -> Scalar:
        """The larger of the two."""
        if isinstance(a, float) and isinstance(b, float):
            return max(a, b)
        return self._result("Max", a, b)

    def _result(self, op_type: str, a: Scalar, b: Scalar) -> Tensor:
        key = (op_type, a, b)
        if key not in self._results:
            operands = [self.operand(scalar, DType.FLOAT32) for scalar in (a, b)]
            self._results[key] = build(self._graph, op_type, operands, settings=_SETTINGS).output
        return self._results[key]

    def operand(self, scalar: Scalar, dtype: DType = DType.FLOAT64) -> Tensor:
        """The number as an operand; a known one as a constant of ``dtype``."""
        if not isinstance(scalar, float):
            return scalar
        if (scalar, dtype) not in self._constants:
            data = np.asarray(scalar, dtype.storage)
            constant = self._graph.add_constant("scalar", TensorType(dtype, ()), data)
            self._constants[scalar, dtype] = constant
        return self._constants[scalar, dtype]

    def named(self, scalar: Scalar, stem: str, label: str) -> Scalar:
        """``scalar``, called by its name in PopART if it is computed and has no name yet."""
        if isinstance(scalar, float) or scalar.producer is None:
            self.known[f"{stem}___{label}"] = scalar
            return scalar
        if scalar.name.startswith(scalar.producer.op_type):
            self._graph.rename(scalar, f"{stem}___{label}")
        return scalar
