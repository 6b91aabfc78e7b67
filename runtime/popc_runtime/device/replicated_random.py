"""The random numbers of replicas."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from popc_runtime.groups import ReplicaShare
from popc_runtime.kernels import RandomState
from popc_runtime.kernels.core.random_checks import field_of

__all__ = ["ReplicatedRandom"]


class ReplicatedRandom:
    """The random numbers of all replicas, as one.

    Each has a sequence of its own, and one that it has in common with all others.  What is saved
    are those of all processes, the common ones behind the others.
    """

    def __init__(
        self,
        own: Sequence[RandomState],
        alike: Sequence[RandomState],
        share: ReplicaShare,
    ) -> None:
        self._sequences = (*own, *alike)
        self._share = share

    def seed(self, seed: int) -> None:
        """Restart all sequences."""
        for sequence in self._sequences:
            sequence.seed(seed)

    def save(self) -> Any:
        """The states of all sequences: plain data.  All processes call this together."""
        states = [sequence.save() for sequence in self._sequences]
        count = self._share.count
        group = self._share.group
        if group is None:
            return {"replicas": states}
        gathered = group.gather("the random numbers", json.dumps(states).encode())
        everywhere = [json.loads(each) for each in gathered]
        own = [state for each in everywhere for state in each[:count]]
        return {"replicas": own + [state for each in everywhere for state in each[count:]]}

    def restore(self, state: Any) -> None:
        """Go on from where `save` was called, in whatever processes that was.

        Raises:
            ValueError: the state is damaged, or that of another program; nothing has changed then.
        """
        total = self._share.total
        saved = field_of(state, "replicas", "random", list)
        if len(saved) != 2 * total:
            raise ValueError(f"random.replicas has {len(saved)} sequences, not {2 * total}")
        for number, saving in enumerate(saved):
            self._sequences[0].check(saving, f"random.replicas[{number}]")
        places = [*self._share.own, *(total + number for number in self._share.own)]
        for sequence, place in zip(self._sequences, places, strict=True):
            sequence.restore(saved[place])
