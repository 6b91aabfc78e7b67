"""The random numbers of replicas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from popc_runtime.kernels import RandomState
from popc_runtime.kernels.core.random_checks import field_of

__all__ = ["ReplicatedRandom"]


class ReplicatedRandom:
    """The random numbers of all replicas, as one."""

    def __init__(self, sequences: Sequence[RandomState]) -> None:
        self._sequences = tuple(sequences)

    def seed(self, seed: int) -> None:
        """Restart all sequences."""
        for sequence in self._sequences:
            sequence.seed(seed)

    def save(self) -> Any:
        """The states of all sequences: plain data."""
        return {"replicas": [sequence.save() for sequence in self._sequences]}

    def restore(self, state: Any) -> None:
        """Go on from where `save` was called.

        Raises:
            ValueError: the state is damaged, or that of another program; nothing has changed then.
        """
        saved = field_of(state, "replicas", "random", list)
        if len(saved) != len(self._sequences):
            raise ValueError(
                f"random.replicas has {len(saved)} sequences, not {len(self._sequences)}"
            )
        for number, (sequence, saving) in enumerate(zip(self._sequences, saved, strict=True)):
            sequence.check(saving, f"random.replicas[{number}]")
        for sequence, saving in zip(self._sequences, saved, strict=True):
            sequence.restore(saving)
