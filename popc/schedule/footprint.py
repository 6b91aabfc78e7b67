"""The memory that the ops of a graph need, as far as that is known before their order is.

The measure follows the memory planner: views need nothing, a result may take over the memory of an
operand that dies, a variable's new value is computed in the variable's memory, operands of a Concat
are computed where the result wants them, sizes are rounded up to allocation units.  It leaves out
what the planner can do only at the cost of something else: the gaps between buffers, and that the
whole result of a Concat is reserved from its first operand on.

What counts: the results of the ops in question, the inputs of the top graph and the states of a
loop.  Constants, variables, and what load time computes for later runs have memory of their own for
good.  Captures are the business of the op that holds the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from popc.ir import Graph, Op, Tensor, TensorKind
from popc.ops import OPS
from popc.ops.aliases import Aliases
from popc.ops.constraints import Precedence
from popc.ops.control import loop_body, loop_header, loop_states
from popc.ops.overwriting import overwritable
from popc.ops.rows import is_row_of_operands
from popc.schedule.problem import Takeover
from popc.schedule.reach import find_followed
from popc.schedule.settled import find_settled
from popc_runtime.ground.frozen import mutable

__all__ = ["ALIGNMENT", "Footprint", "Part", "Succession", "aligned", "find_footprint"]

# What memory is allocated in multiples of: a cache line, and the widest vector register.
ALIGNMENT: Final = 64


# Of Concats of Concats: behind so many reads that were moved from part to whole, the rest is left
# as it is, and counts as copied.
_MOST_MOVED: Final = 1 << 22
_CONCAT: Final = frozenset({"Concat"})


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to whole allocation units."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class Part(NamedTuple):
    """Ops that are ordered together: all of a graph, or those that run at load time, or on a run.

    Attributes:
        inputs: Graph inputs with memory of their own.
        at_load: Whether results that others need are kept for good, outside the arena.
        called: Whether whoever calls the graph has memory for its results.
    """

    graph: Graph
    ops: tuple[Op, ...]
    inputs: tuple[Tensor, ...] = ()
    at_load: bool = False
    called: bool = False


@mutable
class Footprint:
    """The memory side of a `Problem`; ops are numbered as in the part."""

    weights: list[int] = field(default_factory=list[int])
    frees: list[int] = field(default_factory=list[int])
    freed_with: list[int] = field(default_factory=list[int])
    stays: list[bool] = field(default_factory=list[bool])
    reads: list[dict[int, None]] = field(default_factory=list[dict[int, None]])
    makes: list[list[int]] = field(default_factory=list[list[int]])
    rise: list[int] = field(default_factory=list[int])
    takes: list[list[Takeover]] = field(default_factory=list[list[Takeover]])
    initial: list[int] = field(default_factory=list[int])

    def add_buffer(self, nbytes: int) -> int:
        """The number of a new buffer."""
        number = len(self.weights)
        self.weights.append(nbytes)
        self.frees.append(nbytes)
        self.freed_with.append(number)
        self.stays.append(False)
        return number


class Succession(NamedTuple):
    """Nodes in an order that is allowed, and of each node those that wait for it, as numbers.

    The ops have the first numbers, as in the part; barriers may stand behind them.
    """

    order: list[int]
    successors: list[list[int]]


def find_footprint(
    part: Part,
    aliases: Aliases,
    precedence: Precedence,
    links: Succession,
    inner_peak: Callable[[Op], int],
    *,
    inplace: bool = True,
) -> Footprint:
    """The memory that the ops of ``part`` need.

    ``links`` are those of ``precedence``.  ``inner_peak`` says how much the graphs nested in an op
    need at most; if not ``inplace``, nothing is taken over.
    """
    settled = find_settled(part.ops, aliases, precedence) if inplace else frozenset[Tensor]()
    finder = _Finder(part, aliases, settled)
    finder.place(inner_peak)
    finder.keep()
    finder.read()
    if not inplace:
        return finder.found
    for number, op in enumerate(part.ops):
        if op not in aliases.views:
            finder.found.takes[number] = finder.takeovers(number, op)
    finder.drop_impossible(links)
    finder.join()
    return finder.found


class _Finder:
    def __init__(self, part: Part, aliases: Aliases, settled: frozenset[Tensor]) -> None:
        self.part = part
        self.aliases = aliases
        self.numbers: Mapping[Op, int] = {op: number for number, op in enumerate(part.ops)}
        self.buffers: dict[Tensor, int] = {}  # by the tensor that owns the memory
        self.readers: dict[int, dict[int, None]] = {}
        self.lying: list[list[int | None]] = []  # of each op, the buffers that operands lie in
        self.moved = 0  # reads that have become reads of a Concat's result
        self.settled = settled
        self.lasting = _lasting(part, aliases)
        count = len(part.ops)
        self.found = Footprint(
            reads=[{} for _ in range(count)],
            makes=[[] for _ in range(count)],
            rise=[0] * count,
            takes=[[] for _ in range(count)],
        )

    # -- which buffers there are -----------------------------------------------------------------

    def place(self, inner_peak: Callable[[Op], int]) -> None:
        """Give inputs and results their buffers."""
        found = self.found
        for tensor in self.part.inputs:
            if tensor.kind is not TensorKind.VARIABLE:
                found.initial.append(self._allocate(tensor))
        for number, op in enumerate(self.part.ops):
            if op in self.aliases.views:
                continue
            found.makes[number] = [self._allocate(tensor) for tensor in op.outputs]
            found.rise[number] = sum(found.weights[buffer] for buffer in found.makes[number])
            if op.subgraphs:
                found.rise[number] += inner_peak(op) - self._counted_inside(op)

    def _counted_inside(self, op: Op) -> int:
        """Bytes in both the results of ``op`` and the peak of its graphs, less a loop's header."""
        body = loop_body(op)
        if body is None:
            return 0
        results = [state.result for state in loop_states(op)]
        states = [
            aligned(result.type.nbytes) for result in results if result not in self.aliases.remote
        ]
        return sum(states) - sum(aligned(tensor.type.nbytes) for tensor in loop_header(body))

    def _allocate(self, tensor: Tensor) -> int:
        free = tensor in self.settled or tensor in self.lasting or tensor in self.aliases.remote
        buffer = self.found.add_buffer(0 if free else aligned(tensor.type.nbytes))
        self.buffers[tensor] = buffer
        self.readers[buffer] = {}
        return buffer

    def keep(self) -> None:
        """Graph outputs never die, whatever they lie in."""
        for tensor in self.part.graph.outputs:
            buffer = self.buffer(tensor)
            if buffer is not None:
                self.found.stays[buffer] = True

    def read(self) -> None:
        """Note who reads what; views do not read."""
        places, buffers, readers = self.aliases.places, self.buffers, self.readers
        for number, op in enumerate(self.part.ops):
            lying: list[int | None] = []
            if op not in self.aliases.views:
                reads = self.found.reads[number]
                for tensor in op.inputs:
                    buffer = None if tensor is None else buffers.get(places[tensor].root)
                    lying.append(buffer)
                    if buffer is not None:
                        reads[buffer] = readers[buffer][number] = None
            self.lying.append(lying)

    def buffer(self, tensor: Tensor) -> int | None:
        """The buffer that ``tensor`` lies in, if it counts."""
        return self.buffers.get(self.aliases.places[tensor].root)

    # -- what is taken over ----------------------------------------------------------------------

    def takeovers(self, number: int, op: Op) -> list[Takeover]:
        """The memory that op ``number`` saves if operands die in its step."""
        weights, lying = self.found.weights, self.lying[number]
        if op.subgraphs and loop_body(op) is not None:
            pairs = [(state.operand, state.result) for state in loop_states(op)]
            return [
                Takeover(weights[buffer], (buffer,))
                for index, result in pairs
                if (buffer := self._takeable(op, lying, index, result, ())) is not None
            ]
        if not op.outputs or op.output in self.settled:
            return []
        buffers: list[int] = []
        wanted = overwritable(op)
        if not wanted:
            return []
        in_step = OPS[op.op_type].inplace
        for index in wanted:
            if index < len(lying):
                buffer = self._takeable(op, lying, index, op.output, in_step)
                if buffer is not None and buffer not in buffers:
                    buffers.append(buffer)
                    if self._dies_by(buffer):
                        break  # the first that dies is taken
        return [Takeover(weights[buffers[0]], tuple(buffers))] if buffers else []

    def _dies_by(self, buffer: int) -> bool:
        """True if the only op that reads ``buffer`` is the last that needs it."""
        return len(self.readers[buffer]) == 1 and not self.found.stays[buffer]

    def _takeable(
        self,
        op: Op,
        lying: Sequence[int | None],
        index: int,
        result: Tensor,
        inplace: Sequence[int],
    ) -> int | None:
        """The buffer of operand ``index`` if ``result`` may be written over it, once it is dead.

        ``lying`` are the buffers of all operands.
        """
        operand, buffer = op.inputs[index], lying[index]
        if operand is None or buffer is None or not self.found.weights[buffer]:
            return None
        places = self.aliases.places
        if operand.type != result.type or not places[operand].is_whole(operand):
            return None
        for other, tensor in enumerate(op.inputs):
            if other == index or tensor is None or lying[other] != buffer:
                continue
            same = places[tensor].is_whole(tensor) and tensor.type == operand.type
            if other not in inplace or not same:
                return None
        return buffer

    def drop_impossible(self, links: Succession) -> None:
        """An operand does not die in an op that another of its readers has to wait for."""
        takes, stays, readers = self.found.takes, self.found.stays, self.readers
        asked: dict[int, list[int]] = {}
        changed: dict[int, None] = {}
        for number, those in enumerate(takes):
            for take in those:
                for buffer in take.buffers:
                    if stays[buffer]:
                        changed[number] = None
                    elif len(readers[buffer]) > 1:
                        asked.setdefault(number, []).append(buffer)
        followed = find_followed(links.order, links.successors, readers, asked)
        for number in changed | dict.fromkeys(number for number, _ in followed):
            possible: list[Takeover] = []
            for nbytes, buffers in takes[number]:
                left = [b for b in buffers if not stays[b] and (number, b) not in followed]
                if left:
                    possible.append(Takeover(nbytes, tuple(left)))
            takes[number] = possible

    # -- Concats ---------------------------------------------------------------------------------

    def join(self) -> None:
        """Let operands of Concats lie in the result, or be taken over by it if they die."""
        if not self.part.graph.may_have(_CONCAT):
            return
        parts: set[int] = set()
        takers = self._takers()
        for op in self.part.graph.topological():
            if op not in self.numbers or op in self.aliases.views or op.op_type != "Concat":
                continue
            number, buffer = self.numbers[op], self.buffers[op.output]
            if not is_row_of_operands(op) or not self.found.weights[buffer]:
                continue
            operands = [b for b in self._whole_operands(op) if b not in parts]
            if buffer in takers or not (op.output.uses or self.found.stays[buffer]):
                inside: dict[int, None] = {}
            else:
                inside = dict.fromkeys(b for b in operands if b not in takers)
            for operand in operands:
                if operand not in inside and not self.found.stays[operand]:
                    nbytes = self.found.frees[operand]
                    self.found.takes[number].append(Takeover(nbytes, (operand,)))
            self._put_inside(number, buffer, inside)
            parts.update(inside)
            if self.moved > _MOST_MOVED:
                break
        self._find_leaders()

    def _takers(self) -> set[int]:
        """Buffers that some op may write its result over."""
        return {b for takes in self.found.takes for take in takes for b in take.buffers}

    def _whole_operands(self, op: Op) -> list[int]:
        """Buffers that results of this part fill and that ``op`` reads once."""
        found: dict[int, int] = {}
        for tensor in op.present_inputs:
            place, buffer = self.aliases.places[tensor], self.buffer(tensor)
            if buffer is None or place.root.producer is None or not place.is_whole(tensor):
                continue
            found[buffer] = found.get(buffer, 0) + 1
        frees = self.found.frees
        return [buffer for buffer, count in found.items() if count == 1 and frees[buffer]]

    def _put_inside(self, number: int, buffer: int, inside: Collection[int]) -> None:
        """Let the buffers ``inside`` be parts of ``buffer``, which node ``number`` makes."""
        found = self.found
        if not inside:
            return
        parts = sum(found.frees[part] for part in inside)
        whole = max(found.weights[buffer], parts)
        found.rise[number] += whole - parts - found.weights[buffer]
        found.weights[buffer], found.frees[buffer] = whole - parts, whole
        for part in inside:
            found.frees[part] = 0
            found.freed_with[part] = buffer
            found.stays[buffer] = found.stays[buffer] or found.stays[part]
            readers = self.readers.pop(part)
            self.moved += len(readers)
            for reader in readers:
                del found.reads[reader][part]
                if reader != number:
                    found.reads[reader][buffer] = None
                    self.readers[buffer][reader] = None

    def _find_leaders(self) -> None:
        """Let what lies in a buffer that itself lies in another be freed with the outermost."""
        leaders = self.found.freed_with
        for buffer in range(len(leaders)):
            path = [buffer]
            while leaders[path[-1]] != path[-1]:
                path.append(leaders[path[-1]])
            for inner in path:
                leaders[inner] = path[-1]


def _lasting(part: Part, aliases: Aliases) -> set[Tensor]:
    """Tensors outside the arena: what load time computes for others, and what a call returns."""
    if part.called:
        return {aliases.places[tensor].root for tensor in part.graph.outputs}
    if not part.at_load:
        return set()
    own = set(part.ops)
    return {
        aliases.places[tensor].root
        for op in part.ops
        for tensor in op.outputs
        if part.graph.is_output(tensor) or any(user not in own for user in tensor.uses)
    }
