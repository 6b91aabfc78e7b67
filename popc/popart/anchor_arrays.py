"""The numbers of elements that inputs and anchors have in a step, and their shapes."""

from __future__ import annotations

from math import prod

import numpy as np

from popc.popart.dataflow import AnchorReturnType
from popc.popart.enums import AnchorReturnTypeId
from popc.popart.tensorinfo import _TensorInfoCore
from popc_runtime.ground.frozen import frozen

__all__ = ["StepSizes"]


@frozen
class StepSizes:
    """The parts of a step.

    Attributes:
        batches: Batches per step.
        accumulation: Micro-batches of a batch.
        replicas: How often it happens at the same time.
    """

    batches: int
    accumulation: int
    replicas: int

    def anchor_dims(self, kind: AnchorReturnType) -> tuple[int, ...]:
        """The dimensions in front of those of an anchored tensor; those of size 1 are left out."""
        dims: tuple[int, ...] = (self.replicas,)
        if kind.id() is AnchorReturnTypeId.All:
            dims = (self.batches, self.accumulation, self.replicas)
        elif kind.id() is AnchorReturnTypeId.EveryN:
            if self.batches % kind.rp():
                raise RuntimeError("Invalid anchor period, does not divide batchesPerStep")
            dims = (self.batches // kind.rp(), self.accumulation, self.replicas)
        return tuple(dim for dim in dims if dim > 1)

    def anchor_array(self, kind: AnchorReturnType, info: _TensorInfoCore) -> np.ndarray:
        """An array for the values of an anchor in a step.

        Raises:
            TypeError: numpy has no such element type.
        """
        dtype = np.dtype(info.data_type_lcase())
        return np.empty((*self.anchor_dims(kind), *info.shape()), dtype)

    def anchor_count(self, kind: AnchorReturnType, info: _TensorInfoCore) -> int:
        """The elements that an anchor returns."""
        return prod(self.anchor_dims(kind)) * info.nelms()

    def input_count(self, info: _TensorInfoCore, *, broadcast: bool) -> int:
        """The elements that an input takes."""
        replicas = 1 if broadcast else self.replicas
        return info.nelms() * self.batches * self.accumulation * replicas
