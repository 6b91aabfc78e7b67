"""Values that are computed where they are going to be kept.

At the end of an iteration the results of a loop body are copied over the loop's states, and
``CopyVarUpdate`` copies a new value over a variable, or over a part of one.  A value needs no copy
if it is computed in the memory of its target, which is allowed if all of this holds:

* all of it is going to be copied, as a whole or piece by piece, to places that lie one behind the
  other just as the pieces do (variables may lie in a row); it fills its buffer, and targets and
  copies belong to the graph of the op that computes it;
* from that op on, the graph does not read what the targets held before: neither them nor any view
  of them, nor a nested graph that captures one;
* if the op itself reads what lies there, its spec lists that operand under ``inplace``, and it
  reads nothing else in the same memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from popc.ir import Graph, Op, Tensor
from popc.memory.clock import Clock
from popc.memory.storage import Buffer, BufferRange, Storage
from popc.ops.control import is_read_throughout, loop_body, loop_states
from popc.ops.streaming import STORE

__all__ = ["Carried", "find_carried"]


class Carried(NamedTuple):
    """The place to which a value goes.

    Attributes:
        home: The memory that it will replace.
        last_read: The last tick at which anything but the op that computes the value reads what
            lay there before; -1 if nothing does.
    """

    home: BufferRange
    last_read: int


class _Copy(NamedTuple):
    """A copy that may be saved: what ``op`` copies at the end of ``owner``."""

    owner: Graph
    value: Tensor
    target: Tensor
    start: int = 0  # the byte of the target where the copy begins
    op: Op | None = None


class _Piece(NamedTuple):
    """Bytes of a value from ``offset`` on, and where they go."""

    offset: int
    target: BufferRange
    copier: Op | None


def find_carried(
    execution: Sequence[tuple[Graph, Op]], storage: Storage, clock: Clock
) -> dict[Buffer, Carried]:
    """The buffers of values that are going to be copied over something, with what they replace."""
    copies = [
        copy
        for graph, op in execution
        if op.subgraphs or op.op_type == "CopyVarUpdate"
        for copy in _copies(graph, op)
    ]
    if not copies:
        return {}
    makers = {
        storage.sites[output].buffer: (graph, op)
        for graph, op in execution
        if op.outputs and op not in storage.views
        for output in (op.outputs if op.op_type == STORE else op.outputs[:1])
    }
    pieces: dict[Buffer, list[_Piece]] = defaultdict(list)
    claimed: set[tuple[Buffer, int]] = set()
    for copy in copies:
        site = storage.sites[copy.value]
        maker = makers.get(site.buffer)
        if maker is None or maker[0] is not copy.owner or site.strides is not None:
            continue
        target = _target(storage, copy)
        place = (target.buffer, target.start)
        if place in claimed or any(piece.offset == site.offset for piece in pieces[site.buffer]):
            continue  # a value can be in one place only, and a place hold only one
        claimed.add(place)
        pieces[site.buffer].append(_Piece(site.offset, target, copy.op))
    readers = _Readers(storage, clock)
    found: dict[Buffer, Carried] = {}
    for buffer, parts in pieces.items():
        home = _in_one_place(buffer, sorted(parts, key=lambda piece: piece.offset))
        if home is not None:
            graph, op = makers[buffer]
            others = (op, *(piece.copier for piece in parts))
            found[buffer] = Carried(home, readers.last(graph, home, others))
    return found


def _copies(graph: Graph, op: Op) -> Iterator[_Copy]:
    if op.op_type == "CopyVarUpdate":
        target, value = op.operand(0), op.operand(1)
        start = op.attributes.get("start", 0)
        assert isinstance(start, int), f"{op!r}: start={start!r}"
        yield _Copy(graph, value, target, start * target.type.dtype.itemsize, op)
    body = loop_body(op)
    if body is not None:
        for index, state in enumerate(loop_states(op), start=1):
            yield _Copy(body, body.outputs[index], state.inner)


def _target(storage: Storage, copy: _Copy) -> BufferRange:
    buffer, start, _ = storage.sites[copy.target].extent(copy.target)
    start += copy.start
    return BufferRange(buffer, start, start + copy.value.type.nbytes)


def _in_one_place(buffer: Buffer, pieces: Sequence[_Piece]) -> BufferRange | None:
    """The place for the pieces of ``buffer`` if they are all of it and lie there as in it."""
    for piece, following in pairwise(pieces):
        size = piece.target.end - piece.target.start
        next_to_it = piece.target.end == following.target.start
        if following.offset != piece.offset + size or not next_to_it:
            return None
    first, last = pieces[0], pieces[-1]
    home = BufferRange(first.target.buffer, first.target.start, last.target.end)
    together = all(piece.target.buffer is home.buffer for piece in pieces)
    whole = first.offset == 0 and home.end - home.start == buffer.nbytes
    return home if together and whole else None


class _Readers:
    """Finds when memory is read."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._clock, self._views = clock, storage.views
        self._shown: dict[Buffer, list[tuple[BufferRange, Tensor]]] = defaultdict(list)
        for tensor, site in storage.sites.items():
            extent = site.extent(tensor)
            self._shown[extent.buffer].append((extent, tensor))

    def last(self, graph: Graph, memory: BufferRange, others: Sequence[Op | None]) -> int:
        """The last tick at which an op of ``graph`` reads ``memory``, not counting ``others``."""
        ticks = (
            self._last_tick(op, tensor)
            for extent, tensor in self._shown[memory.buffer]
            if extent.overlaps(memory)
            for op in tensor.uses
            if op in graph and op not in others and op not in self._views
            if not _only_writes(op, tensor)
        )
        return max(ticks, default=-1)

    def _last_tick(self, op: Op, tensor: Tensor) -> int:
        """The last tick at which ``op`` reads ``tensor``."""
        late = bool(op.subgraphs) and any(
            operand is tensor and is_read_throughout(op, index)
            for index, operand in enumerate(op.inputs)
        )
        span = self._clock.ops[op]
        return span.end if late else span.begin


def _only_writes(op: Op, tensor: Tensor) -> bool:
    """True if ``tensor`` is an operand of ``op`` only to say what is written."""
    is_target = op.op_type == "CopyVarUpdate" and op.operand(0) is tensor
    return is_target and op.operand(1) is not tensor
