"""The precedence of ops: one function per reason, gathered into one relation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from popc.ir import Op, OrderedPair, Tensor
from popc.ir.attributes import integer
from popc.ops import OPS
from popc.ops.families import RANDOM
from popc.ops.readers import may_be_view, readers_of
from popc_runtime.ground.frozen import frozen

__all__ = [
    "CONSTRAINTS",
    "STREAM_ATTRIBUTE",
    "Barrier",
    "Constraint",
    "Edge",
    "Node",
    "Precedence",
    "VariableUpdate",
    "find_updates",
    "stream_of",
]

# The string attribute by which an I/O op names the stream that it reads or writes.
STREAM_ATTRIBUTE: Final = "stream"


@frozen
class Barrier:
    """Takes no time, and parts ops that come before it from ops that come after it."""

    name: str

    __eq__ = object.__eq__  # it is equal to itself alone
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"barrier {self.name}"


Node: TypeAlias = Op | Barrier
Edge: TypeAlias = tuple[Node, Node]  # (earlier, later)
Constraint: TypeAlias = Callable[[Sequence[Op]], Iterable[Edge]]


def data_dependencies(ops: Sequence[Op]) -> Iterator[Edge]:
    """An op runs after the producers of its operands."""
    for op in ops:
        for tensor in op.outputs:
            for user in tensor.uses:
                yield op, user


def stream_of(op: Op) -> tuple[str, bool] | None:
    """The stream that an I/O op moves data through, ``None`` for every other op.

    Its name, and True for one of an output of the program: an input may have the same name.
    """
    name = op.attributes.get(STREAM_ATTRIBUTE)
    if not isinstance(name, str):
        return None
    spec = OPS.get(op.op_type)
    if spec is None or not spec.side_effect:
        return None
    return name, op.op_type == "HostStore"


def stream_order(ops: Sequence[Op]) -> Iterator[Edge]:
    """I/O on the same stream keeps its order of insertion; different streams are independent."""
    latest: dict[tuple[str, bool], Op] = {}
    for op in ops:
        stream = stream_of(op)
        if stream is None:
            continue
        if stream in latest:
            yield latest[stream], op
        latest[stream] = op


def variables_last(ops: Sequence[Op]) -> Iterator[Edge]:
    """A variable is written when all have read it, directly or by way of what may be a view."""
    for op in ops:
        if op.op_type == "CopyVarUpdate":
            variable = op.operand(0)
            for reader in readers_of(variable):
                if not _writes(reader, variable):
                    yield reader, op


def _writes(op: Op, variable: Tensor) -> bool:
    return op.op_type == "CopyVarUpdate" and op.operand(0) is variable


def bins_in_order(ops: Sequence[Op], without: str = "") -> Iterator[Edge]:
    """Edges of each partition from the ops with one number to those with the next."""
    partitions: dict[str, dict[int, list[Op]]] = defaultdict(lambda: defaultdict(list))
    for op in ops:
        for name, number in op.settings.bins:
            if name != without:
                partitions[name][number].append(op)
    for name, bins in partitions.items():
        for before, after in pairwise(sorted(bins)):
            barrier = Barrier(f"{name} {before} | {after}")
            for op in bins[before]:
                yield op, barrier
            for op in bins[after]:
                yield barrier, op


# Edges are gathered in this order; it decides in which order ops become ready together.
CONSTRAINTS: Final[tuple[Constraint, ...]] = (
    data_dependencies,
    stream_order,
    variables_last,
)


@frozen
class Precedence:
    """The constraints among a set of ops, and barriers that stand between some of them.

    Attributes:
        successors: For each node those that wait for it, each once, in order of insertion.
        waiting: For each node the number of nodes that it waits for.
    """

    successors: dict[Node, dict[Node, None]]
    waiting: dict[Node, int]

    @classmethod
    def required(
        cls, ops: Sequence[Op], ordering: Iterable[OrderedPair[Op]] = (), *, without: str = ""
    ) -> Precedence:
        """The precedence that `CONSTRAINTS` and ``ordering`` ask of ``ops``, without other ops.

        Random numbers are drawn in one order, so that results do not depend on what is chosen
        otherwise.  Bins of the partition ``without`` do not count.
        """
        found = cls({op: {} for op in ops}, dict.fromkeys(ops, 0))
        for constraint in CONSTRAINTS:
            found.add_all(constraint(ops))
        found.add_all(bins_in_order(ops, without))
        for pair in ordering:
            found.add(pair.first, pair.second)
        if sum(map(_draws, [op for op in ops if op.subgraphs or op.op_type in RANDOM])) > 1:
            for earlier, later in pairwise(filter(_draws, found.topological())):
                found.add(earlier, later)
        return found

    @classmethod
    def among(cls, ops: Sequence[Op], ordering: Iterable[OrderedPair[Op]] = ()) -> Precedence:
        """The precedence that is `required`, and the one that saves memory.

        Readers of a variable come before what computes its new value from the old one, where that
        contradicts nothing else.
        """
        found = cls.required(ops, ordering)
        readers_of: dict[Op, dict[Op, None]] = defaultdict(dict)  # one op may update many variables
        for _, updater, readers, follows in find_updates(ops):
            if follows:
                readers_of[updater].update(dict.fromkeys(readers))
        for updater, waited_for in readers_of.items():
            followers = found.followers(updater)
            for reader in waited_for:
                if reader not in followers:
                    found.add(reader, updater)
        return found

    def topological(self) -> list[Node]:
        """The nodes in an order that the constraints allow; shorter if they have a cycle."""
        waiting = dict(self.waiting)
        order = [node for node, count in waiting.items() if count == 0]
        for node in order:  # grows while it is walked
            for later in self.successors[node]:
                waiting[later] -= 1
                if waiting[later] == 0:
                    order.append(later)
        return order

    def add(self, earlier: Node, later: Node) -> None:
        """Let ``later`` wait for ``earlier``, unless one of them is an op that is left out."""
        followers = self.successors.get(earlier)
        if followers is None or later not in self.waiting:
            for node in (earlier, later):
                if isinstance(node, Barrier):
                    self.successors.setdefault(node, {})
                    self.waiting.setdefault(node, 0)
            followers = self.successors.get(earlier)
            if followers is None or later not in self.waiting:
                return
        if later not in followers:
            followers[later] = None
            self.waiting[later] += 1

    def add_all(self, edges: Iterable[Edge]) -> None:
        """`add` each of ``edges``; those between ops that are here, as most are, without a call."""
        successors, waiting = self.successors, self.waiting
        for earlier, later in edges:
            if later in waiting and earlier in successors:
                followers = successors[earlier]
                if later not in followers:
                    followers[later] = None
                    waiting[later] += 1
            else:
                self.add(earlier, later)

    def remove(self, earlier: Node, later: Node) -> None:
        """Let ``later`` no longer wait for ``earlier``, for which it does."""
        del self.successors[earlier][later]
        self.waiting[later] -= 1

    def followers(self, node: Node) -> set[Node]:
        """``node`` and all that have to wait for it."""
        found = {node}
        pending = [node]
        while pending:
            for later in self.successors.get(pending.pop(), ()):
                if later not in found:
                    found.add(later)
                    pending.append(later)
        return found


def _draws(node: Node) -> bool:
    """True if ``node`` draws from the random numbers that all ops share."""
    if isinstance(node, Barrier):
        return False
    if node.subgraphs:
        return any(_draws(op) for graph in node.subgraphs.values() for op in graph.ops)
    own = "seed" in node.attributes or "sequence" in node.attributes
    return node.op_type in RANDOM and not own


class VariableUpdate(NamedTuple):
    """``copier`` gives a variable the value that ``updater`` computes.

    Attributes:
        readers: The others that read the old value.
        follows: Whether the new value is computed directly from the old one.
    """

    copier: Op
    updater: Op
    readers: list[Op]
    follows: bool


def find_updates(ops: Sequence[Op]) -> Iterator[VariableUpdate]:
    """New values of variables, or of parts of them.

    If all readers of the old value come first, the new one can be computed in its memory.
    """
    for op in ops:
        updater = _computing(op.operand(1)) if op.op_type == "CopyVarUpdate" else None
        if updater is None:
            continue
        names = list(_names_of(op.operand(0), _written_part(op)))
        readers = dict.fromkeys(user for name in names for user in name.uses)
        others = [
            reader
            for reader in readers
            if reader is not updater and not _writes(reader, op.operand(0))
        ]
        yield VariableUpdate(op, updater, others, any(name in updater.inputs for name in names))


def _computing(tensor: Tensor) -> Op | None:
    """The op that computes ``tensor``, or what it may be a view of."""
    op = tensor.producer
    while op is not None and (spec := OPS.get(op.op_type)) is not None and spec.view is not None:
        op = op.operand(0).producer
    return op


def _written_part(op: Op) -> tuple[int, int]:
    """From and to which element a CopyVarUpdate writes its variable."""
    start = integer(op.attributes, "start", 0)
    return start, start + op.operand(1).type.size


def _names_of(variable: Tensor, part: tuple[int, int]) -> Iterator[Tensor]:
    """``variable``, and results that may be views of ``part`` of it."""
    pending = [(variable, True)]
    for tensor, in_order in pending:  # grows while it is walked
        yield tensor
        for op in tensor.uses:
            if in_order and op.op_type == "Slice" and _misses(op, part):
                continue
            if may_be_view(op):
                still = in_order and op.op_type == "Reshape"
                pending.extend((output, still) for output in op.outputs)


def _misses(op: Op, part: tuple[int, int]) -> bool:
    """True if a Slice of a row of elements has none of ``part``."""
    starts, sizes = op.attributes["starts"], op.attributes["sizes"]
    if not isinstance(starts, tuple) or not isinstance(sizes, tuple) or len(starts) != 2:
        return False
    if op.operand(0).type.shape[0] != 1 or op.attributes["steps"] != (1, 1):
        return False
    first, size = int(starts[1]), int(sizes[1])
    return first >= part[1] or first + size <= part[0]
