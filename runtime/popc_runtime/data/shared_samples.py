"""Samples and results of a step where several processes run the replicas of a program."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from popc_runtime.format import Array, StreamDirection, StreamSpec, TensorSpec
from popc_runtime.groups import ReplicaShare

__all__ = ["Shared", "own_samples", "whole_result", "whole_shape"]


class Shared(Protocol):
    """The part of an executable that is needed here."""

    @property
    def share(self) -> ReplicaShare | None:
        """The replicas of this process."""

    def stream(self, name: str, direction: str | None = None) -> StreamSpec:
        """The data that moves through a stream."""


def _axis(program: Shared, name: str, rank: int, *, fed: bool) -> int | None:
    """The dimension that counts replicas; ``None`` if this process has all there is.

    ``name`` is that of an input if it is ``fed``, else that of an output.
    """
    share = program.share
    if share is None or share.count == share.total or (fed and name in share.common):
        return None
    stream = program.stream(name, StreamDirection.INPUT if fed else StreamDirection.OUTPUT)
    return rank - len(stream.shape) - 1


def whole_shape(program: Shared, spec: TensorSpec) -> tuple[int, ...]:
    """The shape of what all processes together are given for an input in a step."""
    axis, shape = _axis(program, spec.name, len(spec.shape), fed=True), spec.shape
    if axis is None or program.share is None:
        return shape
    return (*shape[:axis], program.share.total, *shape[axis + 1 :])


def own_samples(program: Shared, name: str, array: Array) -> Array:
    """The samples of this process among those of all, of the shape that `whole_shape` says."""
    axis = _axis(program, name, array.ndim, fed=True)
    if axis is None or program.share is None:
        return array
    return np.take(array, program.share.own, axis)


def whole_result(
    program: Shared, name: str, array: Array, note: bytes = b""
) -> tuple[Array, bytes]:
    """A result of all replicas, put together, and the notes that all processes give with theirs.

    All processes call this together.
    """
    axis = _axis(program, name, array.ndim, fed=False)
    if axis is None or program.share is None or program.share.group is None:
        return array, note
    size = len(note)
    gathered = program.share.group.gather(f"output {name}", note + array.tobytes())
    parts = [np.frombuffer(each[size:], array.dtype).reshape(array.shape) for each in gathered]
    return np.concatenate(parts, axis), b"".join(each[:size] for each in gathered)
