"""The argument of an optimizer's rule: one weight with its gradient, and means to emit ops.

A rule returns the next value of the weight.  What it keeps from update to update lives in variables
that it asks for with `WeightUpdate.state` and gives their next values with `WeightUpdate.keep`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias

from popc.ir import AttributeMap, Graph, OpSettings, Tensor, TensorType, VariableRole
from popc.ops.build import build
from popc.ops.collectives import places_in_groups
from popc.optimizers.resolve import Resolution
from popc.optimizers.scalars import Scalar, Scalars
from popc.placement import chip_of_variable
from popc_runtime.format import Array, DType

__all__ = [
    "COUNTER_TYPE",
    "UPDATED",
    "Division",
    "Initial",
    "Sharing",
    "UpdateRule",
    "WeightUpdate",
]

# PopART's reserved prefix of new values.
UPDATED: Final = "UpdatedVar___"
COUNTER_TYPE: Final = TensorType(DType.FLOAT32, ())

# What a variable of the optimizer starts as, by the weight that it goes with; ``None``: zeros.
Initial: TypeAlias = "Callable[[Tensor], Array | None]"


@dataclass(frozen=True, slots=True)
class Sharing:
    """Replicas that share a weight: how many, and how far apart their numbers are."""

    size: int = 1
    stride: int = 1

    @property
    def attributes(self) -> AttributeMap:
        """The groups as collectives are told them."""
        return {"size": self.size, "stride": self.stride}

    def places(self, replicas: int) -> tuple[int, ...]:
        """The place of each replica in its group."""
        return places_in_groups(self.size, self.stride, replicas)


@dataclass(frozen=True, slots=True)
class Division:
    """The groups of replicas that divide what there is of one weight; ``None``: each has a whole.

    Attributes:
        weight: Those that divide the weight itself.
        state: Those that divide the optimizer's state.
        sums: Those that divide the sum of the gradients of micro-batches.
    """

    weight: Sharing | None = None
    state: Sharing | None = None
    sums: Sharing | None = None


class WeightUpdate:
    """The update of one weight.

    Attributes:
        graph: Where the rule emits its ops.
        weight: The variable to update.
        whole: All of the variable, if ``weight`` is a part of it.
        gradient: The gradient: of all micro-batches, unless the rule accumulates it itself.
        scale: What to multiply the gradient by: removes the loss scale, makes a mean of a sum, and
            clips.
        scalars: Arithmetic on scalars.
        sharing: The replicas that share the weight, and what they make of its gradients.
        resolution: The hyper-parameters of all weights.
        name: The weight whose hyper-parameters count.
        label: What follows the prefix in the names of results.
        states: The variables that the rule has asked for, and their next values.
        variables: All variables that there are for the weight, by prefix.
        counts: The next values of those that count, by prefix.
        parts: New values of parts of the variables, with the element where each begins; of those
            that are not computed as a whole.
    """

    def __init__(
        self,
        graph: Graph,
        weight: Tensor,
        gradient: Tensor,
        scale: Scalar,
        scalars: Scalars,
        resolution: Resolution,
        sharing: Sharing = Sharing(),
    ) -> None:
        self.graph = graph
        self.weight = self.whole = weight
        self.gradient = gradient
        self.scale = scale
        self.scalars = scalars
        self.sharing = sharing
        self.resolution = resolution
        self.name = self.label = weight.name
        self.states: dict[Tensor, Tensor | None] = {}
        self.variables: dict[str, Tensor] = {}
        self.counts: dict[str, Tensor] = {}
        self.parts: dict[Tensor, list[tuple[int, Tensor]]] = {}
        self._settings = OpSettings(
            origin=f"Optimizer_{weight.name}", virtual_graph=chip_of_variable(weight)
        )

    # -- hyper-parameters ------------------------------------------------------------------------

    def hyper(self, name: str) -> Scalar:
        """A hyper-parameter of this weight."""
        return self.scalars.hyper_parameter(name, self.name)

    def initial(self, name: str) -> float:
        """The value of a hyper-parameter of this weight, or its first one."""
        return self.resolution.value(name, self.name).value

    def uses(self, name: str) -> bool:
        """True if a hyper-parameter of this weight is, or may become, anything but 0."""
        value = self.resolution.value(name, self.name)
        return value.value != 0 or not value.const

    def named(self, scalar: Scalar, stem: str, *hyper_parameters: str) -> Scalar:
        """``scalar``, if it is computed, with a name in PopART's style.

        ``hyper_parameters``: those that it follows from.
        """
        sources = [self.resolution.source(name, self.name) for name in hyper_parameters]
        return self.scalars.named(scalar, stem, self.resolution.label(sources))

    @property
    def settings(self) -> OpSettings:
        """The settings of the ops that belong to this update."""
        return self._settings

    # -- emitting --------------------------------------------------------------------------------

    def emit(
        self,
        op_type: str,
        tensors: Sequence[Tensor | None],
        scalars: Sequence[Scalar | None] = (),
        attributes: AttributeMap | None = None,
        *,
        prefix: str = "",
    ) -> Tensor:
        """Add an op; its result, called ``prefix`` and the name of the weight."""
        operands = [None if scalar is None else self.scalars.operand(scalar) for scalar in scalars]
        return build(
            self.graph,
            op_type,
            [*tensors, *operands],
            attributes,
            output_names=[f"{prefix}{self.label}"] if prefix else (),
            settings=self._settings,
        ).output

    def moment(self, kind: str, moment: Tensor, x: Tensor, *scalars: Scalar) -> Tensor:
        """The next value of ``moment``, which accumulates ``x``."""
        return self.emit("AccumulateMoment", [moment, x], scalars, {"kind": kind})

    def scaled_gradient(self, scale: Scalar, decay: Scalar, dtype: DType) -> Tensor:
        """The gradient times ``scale`` plus the weight times ``decay``, as ``dtype``."""
        operands = [self.gradient, self.weight]
        return self.emit("ScaledGradient", operands, [scale, decay], {"to": dtype.value})

    def regularized_gradient(self, mode: str, dtype: DType) -> tuple[Tensor, Scalar]:
        """The gradient with the weight decay if ``mode`` is "l2_regularization", and its scale."""
        if mode != "l2_regularization" or not self.uses("weight_decay"):
            return self.gradient, self.scale
        return self.scaled_gradient(self.scale, self.hyper("weight_decay"), dtype), 1.0

    def reduced(self, x: Tensor, op: str, *, prefix: str = "") -> Tensor:
        """``x`` reduced over the replicas that share the weight; the elements updated here."""
        return self.reduced_whole(x, op, prefix=prefix)

    def reduced_whole(self, x: Tensor, op: str, *, prefix: str = "") -> Tensor:
        """All elements of ``x`` reduced over the replicas that share the weight."""
        if self.sharing.size == 1:
            return x
        attributes: AttributeMap = {"op": op, **self.sharing.attributes}
        return self.emit("ReplicatedAllReduce", [x], attributes=attributes, prefix=prefix)

    def reduced_part(self, x: Tensor, op: str, domain: Sharing, *, prefix: str = "") -> Tensor:
        """The replica's part of ``x`` reduced over the replicas that share the weight.

        The replicas of a group of ``domain`` have all parts.  Replicas are added up in one order,
        however small the groups are.
        """
        if domain != self.sharing:
            x, op = self.reduced_whole(x, op), "local"
        attributes: AttributeMap = {"op": op, **domain.attributes}
        return self.emit("ReplicatedReduceScatter", [x], attributes=attributes, prefix=prefix)

    def gathered(self, part: Tensor, domain: Sharing, *, prefix: str = "") -> Tensor:
        """The parts that the replicas of a group have, put together as large as the weight."""
        shape = self.whole.type.shape
        rows = self.emit("ReplicatedAllGather", [part], attributes=domain.attributes)
        flat = self.emit("Reshape", [rows], attributes={"shape": (rows.type.size,)})
        cut: AttributeMap = {"starts": (0,), "sizes": (prod(shape),), "steps": (1,)}
        if flat.type.size != prod(shape):
            flat = self.emit("Slice", [flat], attributes=cut)
        return self.emit("Reshape", [flat], attributes={"shape": shape}, prefix=prefix)

    def part(self, x: Tensor) -> Tensor:
        """The elements that are updated here of ``x``, which replicas agree about."""
        return x

    def total(self, x: Tensor) -> Tensor:
        """``x``, which has been summed up over the elements that are updated here, over all."""
        return x

    # -- state -----------------------------------------------------------------------------------

    def variable(self, prefix: str, type_: TensorType, initial: Initial | None = None) -> Tensor:
        """The variable of the optimizer called ``prefix`` and the name of the weight."""
        if prefix not in self.variables:
            name = f"{prefix}{self.weight.name}"
            value = None if initial is None else initial(self.weight)
            role = VariableRole.OPTIMIZER_STATE
            self.variables[prefix] = self.graph.add_variable(
                name, type_, role, value, self.weight.rows
            )
        return self.variables[prefix]

    def state(self, prefix: str, type_: TensorType, initial: Initial | None = None) -> Tensor:
        """Such a variable, for the rule to read and to `keep` a value in."""
        variable = self.variable(prefix, type_, initial)
        self.states[variable] = None
        return variable

    def keep(self, variable: Tensor, value: Tensor) -> None:
        """Make ``value`` the next value of a variable that `state` has given."""
        self.states[variable] = value

    def counter(self, prefix: str) -> Tensor:
        """The number of this update, from 1: a scalar variable counts them."""
        variable = self.state(prefix, COUNTER_TYPE)
        one = self.scalars.operand(1.0, DType.FLOAT32)
        count = build(self.graph, "Add", [variable, one]).output
        self.keep(variable, count)
        return count

    def store(self, target: Tensor, value: Tensor) -> None:
        """Give ``target``, the weight or a state, its next value."""
        self.graph.rename(value, f"{UPDATED}{target.name}")
        build(self.graph, "CopyVarUpdate", [target, value])

    def state_type(self, asked: DType | None) -> TensorType:
        """The type of a moment: as asked for, else float32, or float64 for such a weight."""
        own = self.weight.type
        wide = DType.FLOAT64 if own.dtype is DType.FLOAT64 else DType.FLOAT32
        return own.with_dtype(asked or wide)


UpdateRule: TypeAlias = Callable[[WeightUpdate], Tensor]
