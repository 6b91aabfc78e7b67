"""The update of a weight whose optimizer state is divided among the replicas.

Each replica keeps and computes a part of the flat weight: it gets its part of the gradient by a
reduce-scatter, and the parts of the new weight are gathered.  PopART calls this replicated tensor
sharding.  Groups of replicas may have all parts, so that several hold the same one; then gradients
are reduced over all replicas before each takes its part.
"""

from __future__ import annotations

from typing import Final

from popc.ir import AttributeMap, Tensor, TensorType, VariableRole
from popc.ops.build import build
from popc.optimizers.update import UPDATED, Initial, Sharing, WeightUpdate

__all__ = ["ShardedUpdate"]

_SHARD: Final = "Sharded___"


class ShardedUpdate(WeightUpdate):
    """The update of the replica's part of a weight that all replicas share.

    The gradient is still that of the whole weight until it is `reduced`.

    Attributes:
        whole: The weight.
        domain: The groups of replicas that hold all parts.
    """

    def __init__(self, whole: WeightUpdate, domain: Sharing) -> None:
        self.domain = domain
        super().__init__(
            whole.graph,
            self._part_of(whole.weight, whole, prefix=_SHARD),
            whole.gradient,
            whole.scale,
            whole.scalars,
            whole.resolution,
            whole.sharing,
        )
        self.name = self.label = whole.name
        self.whole = whole.weight
        self._settings = whole.settings

    def _part_of(self, x: Tensor, emitter: WeightUpdate, *, prefix: str = "") -> Tensor:
        local: AttributeMap = {"op": "local", **self.domain.attributes}
        return emitter.emit("ReplicatedReduceScatter", [x], attributes=local, prefix=prefix)

    def part(self, x: Tensor) -> Tensor:
        """The replica's part of ``x``."""
        return self._part_of(x, self)

    def reduced(self, x: Tensor, op: str, *, prefix: str = "") -> Tensor:
        """The replica's part of ``x`` reduced over the replicas."""
        return self.reduced_part(x, op, self.domain, prefix=prefix)

    def total(self, x: Tensor) -> Tensor:
        """``x``, which has been summed up over the replica's part, summed up over all parts."""
        attributes: AttributeMap = {"op": "add", **self.domain.attributes}
        return self.emit("ReplicatedAllReduce", [x], attributes=attributes)

    def variable(self, prefix: str, type_: TensorType, initial: Initial | None = None) -> Tensor:
        """The variable: of a state as large as the weight, only the replica's part."""
        if prefix not in self.variables:
            is_part = type_.shape == self.weight.type.shape
            self.variables[prefix] = self.graph.add_variable(
                f"{prefix}{self.name}",
                type_,
                VariableRole.OPTIMIZER_STATE,
                None,
                self.domain.places(self.sharing.size) if is_part else (),
            )
            self.variables[prefix].whole = self.whole.type.shape if is_part else ()
            if initial is not None:
                self.variables[prefix].initial = initial(self.whole)
        return self.variables[prefix]

    def store(self, target: Tensor, value: Tensor) -> None:
        """Give the weight all its parts, or a state its next value."""
        if target is not self.weight:
            super().store(target, value)
            return
        updated = self.gathered(value, self.domain)
        self.graph.rename(updated, f"{UPDATED}{self.name}")
        build(self.graph, "CopyVarUpdate", [self.whole, updated])
