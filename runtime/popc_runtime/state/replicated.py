"""The variables of all replicas, those of other processes too."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
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
        payload = b"".join(array.tobytes() for arrays in own.values() for array in arrays)
        found: dict[str, list[Array]] = {spec.name: [] for spec in specs}
        for content in self.group.gather("the variables", payload):
            start = 0
            for spec in specs:
                for array in own[spec.name]:
                    part = content[start : start + array.nbytes]
                    start += array.nbytes
                    found[spec.name].append(np.frombuffer(part, array.dtype).reshape(array.shape))
        return found

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
        payload = b"".join(mark for marks in own.values() for mark in marks)
        found: dict[str, list[bytes]] = {spec.name: [] for spec in specs}
        size = sha256().digest_size
        for content in self.group.gather("the marks of variables", payload):
            marks = iter([content[at : at + size] for at in range(0, len(content), size)])
            for spec in specs:
                found[spec.name] += [next(marks) for _ in own[spec.name]]
        return found
