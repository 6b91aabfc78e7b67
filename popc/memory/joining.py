"""Concat without copying: operands are computed where the result wants them.

If a Concat's operands lie one behind the other in its output (its axis is the first, or all
dimensions before it have size one), the buffer of an operand can be a part of the buffer of the
output.  If images are joined whose channels lie side by side, each operand has a part of every
pixel: its buffer can be those parts.  An operand is joined if all of this holds:

* it is all that its buffer holds, in the memory format of the output; the buffer could be taken
  over in place (it belongs to the graph that holds the Concat, lies in the same region, is no
  constant, ...);
* the operand has not been joined to another Concat;
* if it gets a part of every pixel: whatever lies in its buffer has that format too, and is the
  whole image or some of its channels;
* the output's buffer belongs to that graph too, so it is no loop state;
* neither buffer is overwritten in place once the Concat has run, or the operand is not read after
  it: from then on its content is also the output's;
* reserving the whole output from the time of its first operand on does not raise the peak.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from popc.ir import Graph, Op, Tensor
from popc.memory.clock import Clock
from popc.memory.plan import aligned
from popc.memory.storage import Buffer, Site, Storage
from popc.ops.rows import is_concat_of_pixels, is_row_of_operands, step_of_concat
from popc_runtime.format import Array, Region

__all__ = ["join_concats"]


class _Candidate(NamedTuple):
    """An operand that may be joined: its number, its buffer, where it goes in the output."""

    operand: int
    buffer: Buffer
    offset: int


class _Profile:
    """Bytes of the arena in use at every tick."""

    def __init__(self, storage: Storage, ticks: int) -> None:
        changes = np.zeros(ticks + 2, np.int64)
        for buffer in storage.roots(Region.ARENA):
            changes[buffer.first] += aligned(buffer.nbytes)
            changes[buffer.last + 1] -= aligned(buffer.nbytes)
        self._live: Array = np.cumsum(changes)
        self._peak = int(self._live.max())

    def admits(self, target: Buffer, parts: Sequence[Buffer]) -> bool:
        """True if merging ``parts`` into ``target`` keeps the peak; if so, it is done here."""
        first = min(buffer.first for buffer in (target, *parts))
        last = max(buffer.last for buffer in (target, *parts))
        live = self._live[first : last + 1].copy()
        live += aligned(target.nbytes)
        for buffer in (target, *parts):
            live[buffer.first - first : buffer.last + 1 - first] -= aligned(buffer.nbytes)
        if int(live.max()) > self._peak:
            return False
        self._live[first : last + 1] = live
        return True


def join_concats(
    execution: Iterable[tuple[Graph, Op]], storage: Storage, clock: Clock
) -> dict[Op, frozenset[int]]:
    """Merge buffers of operands into those of Concats; the operands that each has joined."""
    profile = _Profile(storage, clock.now)
    parts: set[Buffer] = set()
    joined: dict[Op, frozenset[int]] = {}
    for owner, op in execution:
        if op.op_type != "Concat" or not _can_join(op, storage.sites[op.output].strides):
            continue
        target, start = storage.sites[op.output].buffer.resolve()
        if start != 0 or target.region is not Region.ARENA or target.owner is not owner:
            continue  # what is kept in a loop state must not be written piece by piece
        candidates = [
            candidate
            for candidate in _find_candidates(storage, owner, op, clock.ops[op].begin)
            if not _is_part(storage.sites[op.operand(candidate.operand)].buffer, parts)
        ]
        accepted = _join(profile, storage, op.output, candidates)
        if accepted:
            joined[op] = frozenset(candidate.operand for candidate in accepted)
            parts.update(candidate.buffer for candidate in accepted)
    return joined


def _can_join(op: Op, strides: tuple[int, ...] | None) -> bool:
    """True if each operand of a Concat has a place of its own in the output."""
    return is_row_of_operands(op) if strides is None else is_concat_of_pixels(op, strides)


def _find_candidates(storage: Storage, owner: Graph, op: Op, tick: int) -> list[_Candidate]:
    """Operands that may be joined, the one computed last first: it costs the least."""
    target = storage.sites[op.output].buffer.resolve()[0]
    strides = storage.sites[op.output].strides
    candidates: dict[Buffer, _Candidate] = {}
    offset = 0
    for index, operand in enumerate(op.inputs):
        assert operand is not None, f"{op!r} has an absent operand"
        buffer = _buffer_of(storage, operand, in_pixels=strides is not None)
        if (
            buffer is not None
            and buffer not in candidates
            and buffer is not target
            and buffer.owner is owner
            and _is_joinable(buffer, target, tick)
        ):
            candidates[buffer] = _Candidate(index, buffer, offset)
        offset += step_of_concat(op, operand, strides)
    return sorted(candidates.values(), key=lambda candidate: -candidate.buffer.first)


def _buffer_of(storage: Storage, operand: Tensor, *, in_pixels: bool) -> Buffer | None:
    """The buffer that could be a part of the output: ``operand`` is all that it holds."""
    if not in_pixels:
        return storage.sites[operand].fills(operand)
    strides = storage.sites[operand].strides
    buffer = storage.sites[operand].fills(operand, strides)
    if buffer is None or strides is None:
        return None
    in_step = all(
        site.strides == strides and site.offset + site.buffer.resolve()[1] < strides[-1]
        for _, site in _lying_in(storage, buffer)
    )
    return buffer if in_step else None


def _lying_in(storage: Storage, buffer: Buffer) -> list[tuple[Tensor, Site]]:
    return [
        (tensor, site)
        for tensor, site in storage.sites.items()
        if site.buffer.resolve()[0] is buffer
    ]


def _is_part(buffer: Buffer | None, parts: Container[Buffer]) -> bool:
    """True if ``buffer``, or one that it lies in, has been joined."""
    while buffer is not None and buffer not in parts:
        buffer = buffer.home
    return buffer is not None


def _is_joinable(buffer: Buffer, target: Buffer, tick: int) -> bool:
    dead_after = buffer.last <= tick
    unchanged_after = buffer.overwritten <= tick and target.overwritten <= tick
    return (
        buffer.takeable
        and buffer.nbytes > 0
        and buffer.region is target.region
        and (dead_after or unchanged_after)
    )


def _join(
    profile: _Profile, storage: Storage, output: Tensor, candidates: Sequence[_Candidate]
) -> list[_Candidate]:
    """Join all candidates if the peak allows, else as many as it does, one by one."""
    target = storage.sites[output].buffer.resolve()[0]
    together = profile.admits(target, [candidate.buffer for candidate in candidates])
    accepted: list[_Candidate] = []
    for candidate in candidates:
        if together or profile.admits(target, [candidate.buffer]):
            _merge(storage, output, target, candidate)
            accepted.append(candidate)
    return accepted


def _merge(storage: Storage, output: Tensor, target: Buffer, candidate: _Candidate) -> None:
    """Let the buffer of an operand be a part of that of the output, with the output's strides."""
    strides = storage.sites[output].strides
    if strides is not None:
        for tensor, site in _lying_in(storage, candidate.buffer):
            storage.sites[tensor] = replace(site, strides=strides)
    target.absorb(candidate.buffer, candidate.offset)
