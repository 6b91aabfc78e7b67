"""A tensor of a random model: what it holds, and how far results may be from that."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from popc_runtime.format import Array

__all__ = ["Value"]


@dataclass(frozen=True, eq=False)
class Value:
    """A value that one run computes.

    Attributes:
        name: Of the tensor in the model.
        array: As onnxruntime computes it, node by node.
        error: Float64 of the same shape: how far another right result may be from it; of truth
            values 1 where either is right.
        is_constant: An initializer.
    """

    name: str
    array: Array
    error: Array = field(default_factory=lambda: np.zeros(()))
    is_constant: bool = False

    def __post_init__(self) -> None:
        if self.error.shape != self.array.shape:
            spread = np.broadcast_to(np.asarray(self.error, np.float64), self.array.shape)
            object.__setattr__(self, "error", spread)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self.array.shape)

    @property
    def is_float(self) -> bool:
        """True if it holds floating-point numbers."""
        return self.array.dtype.kind == "f"
