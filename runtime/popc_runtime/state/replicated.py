"""The variables of all replicas, those of other processes too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from popc_runtime.device import Engine
from popc_runtime.format import Array, VariableSpec
from popc_runtime.ground.frozen import frozen
from popc_runtime.groups import Group, ReplicaShare

if TYPE_CHECKING:
    from popc_runtime.device import ReplicatedEngine

__all__ = ["Replicated"]


@frozen
class Replicated:
    """The replicas of an engine, among those of all processes.

    Attributes:
        engine: It leads those of this process.
        share: Which those are.
    """

    engine: Engine | ReplicatedEngine
    share: ReplicaShare

    @property
    def group(self) -> Group | None:
        """The processes; ``None`` if there is only this one."""
        return self.share.group

    @classmethod
    def of(cls, engine: Engine | ReplicatedEngine) -> Replicated:
        """The replicas of an engine."""
        if isinstance(engine, Engine):
            return cls(engine, ReplicaShare(0, 1, 1))
        return cls(engine, engine.share)

    def held(self, specs: Sequence[VariableSpec]) -> dict[str, list[Array]]:
        """The arrays of variables, one per replica, by name."""
        own = {
            spec.name: [engine.variables[spec.name] for engine in self.engine.replicas]
            for spec in specs
        }
        if self.group is None or not specs:
            return own
        pieces = {name: [array.tobytes() for array in arrays] for name, arrays in own.items()}
        like = {name: arrays[0] for name, arrays in own.items()}
        return {
            name: [np.frombuffer(p, like[name].dtype).reshape(like[name].shape) for p in parts]
            for name, parts in _gathered(self.group, "the variables", pieces).items()
        }

    def marks(self, specs: Sequence[VariableSpec]) -> dict[str, list[bytes]]:
        """For each variable and replica, bytes that are the same where values are."""
        own = {
            spec.name: [
                sha256(engine.variables[spec.name].tobytes()).digest()
                for engine in self.engine.replicas
            ]
            for spec in specs
        }
        if self.group is None or not specs:
            return own
        return _gathered(self.group, "the marks of variables", own)


def _gathered(group: Group, what: str, own: Mapping[str, list[bytes]]) -> dict[str, list[bytes]]:
    """The pieces of the replicas of all processes, by name; they are as long as the own ones."""
    found: dict[str, list[bytes]] = {name: [] for name in own}
    for content in group.gather(what, b"".join(chain.from_iterable(own.values()))):
        start = 0
        for name, pieces in own.items():
            for piece in pieces:
                found[name].append(bytes(content[start : start + len(piece)]))
                start += len(piece)
    return found
