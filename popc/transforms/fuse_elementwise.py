"""Let chains of elementwise ops be one op, which goes through memory once.

What pays?  An op of a chain on its own reads its operands from the cache, or from memory, and
writes its result there.  As a step of one op it works on a block of a thousand elements that stays
in the first-level cache.  On one thread, chains of two to four cheap steps take 0.4 to 0.8 of the
time, chains of functions like tanh 0.9, and tensors of a few elements 0.9, for there are fewer
instructions; measured on tensors from 64 elements to a million.  So every chain is fused.

What may it cost?  Memory: operands of the first step have to wait for those of the last one.  So
a step joins only where memory does not grow, in whatever order the other ops run.  Let the fused
op run in the place of one of the steps, the *pivot*, when all its operands are there.  Up to then
it must not keep more bytes of operands than the steps keep of results, and of operands that later
ones read; from then on its result must not have more bytes than those.  Constants, variables and
inputs of a graph are there anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar, Final, Self

from popc.ir import Graph, Op, Tensor, TensorKind
from popc.ops.aliases import Place, find_aliases, may_have_aliases
from popc.ops.load import find_load_ops
from popc.transforms.base import Pass, disguised
from popc.transforms.context import PassContext
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen, mutable
from popc_runtime.kernels.parts.fused_steps import (
    MOST_INPUTS,
    MOST_STEPS,
    STEP_OPCODES,
    FusedStep,
    written,
)

__all__ = ["FuseElementwise"]

# Those that the native kernel has all steps for, but for some of integers.
_DTYPES: Final = frozenset(
    {DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.INT32, DType.INT64, DType.BOOL}
)
_OF_FLOATS: Final = ("Clip", "PRelu", "Square")
_MOST_DIMENSIONS: Final = 8  # native kernels have room for these
_ACTIVATION: Final = TensorKind.ACTIVATION


@frozen
class FuseElementwise(Pass):
    """Elementwise ops of which only the last one's result is needed become one op.

    Results are the same to the bit, for each step is rounded as before.

    Before::

        %a = Add(%x, float32(3.0))
        %b = Clip(%a) min=0.0 max=6.0
        %y = Mul(%b, %x)

    After::

        %y = FusedElementwise(%x, float32(3.0)) steps=('Add', 'Clip', 'Mul') ...
    """

    name: ClassVar[str] = "fuse_elementwise"
    excludable: ClassVar[bool] = True
    level: ClassVar[str] = "default"
    enabled: bool = True  # not where each result is looked at, or rounded, by itself

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        options = context.options
        return cls(not (options.enable_stochastic_rounding or options.enable_floating_point_checks))

    def run(self, graph: Graph) -> int:
        """Fuse what pays; the number of ops made."""
        if not self.enabled:
            return 0
        changes = 0
        with disguised(graph, self.name):
            places = find_aliases(graph).places if may_have_aliases(graph) else {}
            surroundings = _Surroundings(frozenset(find_load_ops(graph)), places)
            for nested in graph.walk():
                for group in _groups(nested, surroundings):
                    _fuse(nested, group)
                    changes += 1
        return changes


@frozen
class _Surroundings:
    """The facts about the whole program.

    Attributes:
        load: Ops that run once, and must not be done again on every run.
        places: Where results of views lie; of others it may be missing.
    """

    load: AbstractSet[Op]
    places: Mapping[Tensor, Place]

    def bytes_kept(self, tensor: Tensor) -> int:
        """The bytes that are not free while ``tensor`` is waited with."""
        place = self.places.get(tensor)
        root = tensor if place is None else place.root
        if root.kind is not _ACTIVATION or root.producer in self.load:
            return 0
        return max(root.type.nbytes, tensor.type.nbytes)


@mutable
class _Group:
    """Ops that become one: the last one first, users before producers.

    Attributes:
        ops: These.
        inputs: What they read and none of them computes.
        least: The fewest bytes that one of them leaves.
    """

    ops: list[Op]
    inputs: dict[Tensor, None]
    least: int

    @classmethod
    def of(cls, op: Op) -> Self:
        """An op alone."""
        return cls([op], dict.fromkeys(op.present_inputs), op.output.type.nbytes)

    @property
    def root(self) -> Op:
        """The op whose result is that of the group."""
        return self.ops[0]

    def add(self, op: Op) -> None:
        """Let ``op`` be the first step."""
        self.ops.append(op)
        del self.inputs[op.output]
        self.inputs |= dict.fromkeys(op.present_inputs)
        self.least = min(self.least, op.output.type.nbytes)


def _groups(graph: Graph, around: _Surroundings) -> Iterable[_Group]:
    """The groups of two ops and more, those that come last first."""
    found: dict[Op, _Group | None] = {}  # none: a group of its own, if somebody asks
    outputs = set(graph.outputs)
    for op in reversed(graph.topological()):
        if op in around.load or not _may_be_step(op):
            continue
        group = None if op.outputs[0] in outputs else _group_of_users(op, found)
        if group is not None and _may_join(graph, group, op, around):
            group.add(op)
            found[op] = group
        else:
            found[op] = None
    distinct = {id(group): group for group in found.values() if group is not None}
    return [group for group in distinct.values() if len(group.ops) > 1]


def _may_be_step(op: Op) -> bool:
    if op.op_type not in STEP_OPCODES or not op.inputs or op.settings.inplace:
        return False
    if "rounding" in op.attributes or "overflow" in op.attributes:
        return False  # steps round to nearest, and overflow to infinity
    for tensor in op.inputs:
        if tensor is None or tensor.type.dtype not in _DTYPES:
            return False
    result = op.outputs[0].type
    if result.dtype not in _DTYPES or len(result.shape) > _MOST_DIMENSIONS or not result.nbytes:
        return False
    return op.op_type not in _OF_FLOATS or result.dtype.is_float


def _group_of_users(op: Op, found: dict[Op, _Group | None]) -> _Group | None:
    """The group that everything that reads the result is in."""
    users = op.outputs[0].uses
    for user in users:
        if user not in found:
            return None
    first = next(iter(users), None)
    if first is None:
        return None
    group = found[first]
    if len(users) == 1:
        if group is None:
            group = found[first] = _Group.of(first)
        return group
    return group if all(found[user] is group for user in users) else None


def _may_join(graph: Graph, group: _Group, op: Op, around: _Surroundings) -> bool:
    """True if ``op`` can be one of the steps, and memory does not grow."""
    root = group.root
    if op.output.type.shape != root.output.type.shape or not _belong_together(op, root):
        return False
    if op in graph.ordering or len(group.ops) == MOST_STEPS:
        return False
    operands = op.present_inputs
    inputs = group.inputs.keys() | operands
    if len(inputs) > MOST_INPUTS + 1:  # and the result of `op`, which is among them
        return False
    others = inputs.difference(operands, op.outputs)
    if not any(map(around.bytes_kept, others)):
        # All comes with the first step: it is enough that each leaves as much as the result.
        result = root.output.type.nbytes
        if result <= group.least and result <= op.output.type.nbytes:
            return True
    if len(group.ops) == 1:
        return _pair_needs_no_more(op, root, around)
    return _needs_no_more([op, *reversed(group.ops)], around)


def _belong_together(op: Op, root: Op) -> bool:
    one, other = op.settings, root.settings
    return (one.place, one.bins, one.part, one.recompute, one.outline, one.schedule_priority) == (
        *(other.place, other.bins, other.part, other.recompute, other.outline),
        other.schedule_priority,
    )


def _inputs(ops: Sequence[Op]) -> list[Tensor]:
    """The tensors that ``ops``, in order, read but none of them computes."""
    inside = {op.output for op in ops}
    return [
        tensor
        for tensor in dict.fromkeys(operand for op in ops for operand in op.present_inputs)
        if tensor not in inside
    ]


# -- memory ----------------------------------------------------------------------------------------


def _needs_no_more(ops: Sequence[Op], around: _Surroundings) -> bool:
    """True if there is a pivot, for ``ops`` in order."""
    result = ops[-1].output.type.nbytes
    lowest = highest = 0  # what the pivot may be
    is_over = False  # so many operands have come that it can be no later
    for index, (arrived, kept, live) in enumerate(_traffic(ops, around)):
        if arrived or result > live:
            lowest = index if result <= live else index + 1
        if not is_over:
            highest = index
            is_over = kept > live
    return lowest <= highest


def _pair_needs_no_more(op: Op, root: Op, around: _Surroundings) -> bool:
    """The same for two ops, of which ``root`` alone reads what ``op`` computes."""
    brought = dict.fromkeys(op.inputs)
    kept = live = 0
    for tensor in brought:
        if tensor is not None:
            nbytes = around.bytes_kept(tensor)
            kept += nbytes
            live += nbytes if tensor in root.inputs else 0
    made = op.outputs[0]
    live += made.type.nbytes
    if kept <= live:
        return True  # both may run in the place of `root`
    if root.outputs[0].type.nbytes > live:
        return False
    others = [t for t in root.inputs if t is not None and t is not made and t not in brought]
    return not any(map(around.bytes_kept, others))


def _traffic(ops: Sequence[Op], around: _Surroundings) -> Iterator[tuple[int, int, int]]:
    """For each op, bytes that it alone brings, that all so far did, and that are live behind it.

    An op brings the operands that no op before it has read or computed.  Live are those that later
    ones read, what has been computed for later ones, and the result.
    """
    last = {tensor: index for index, op in enumerate(ops) for tensor in op.inputs}
    known: set[Tensor | None] = {op.output for op in ops}
    dying = [0] * (len(ops) + 1)  # bytes that nobody reads any more, by the op that read them last
    kept = live = 0
    for index, op in enumerate(ops):
        arrived = 0
        for tensor in op.present_inputs:
            if tensor not in known:
                known.add(tensor)
                nbytes = around.bytes_kept(tensor)
                dying[last[tensor]] += nbytes
                arrived += nbytes
        made = op.output.type.nbytes
        dying[last.get(op.output, len(ops))] += made
        kept += arrived
        live += arrived + made - dying[index]
        yield arrived, kept, live


# -- the op ----------------------------------------------------------------------------------------


def _fuse(graph: Graph, group: _Group) -> None:
    """Put one op in the place of the group."""
    ops = list(reversed(group.ops))
    inputs = _inputs(ops)
    numbers = {tensor: number for number, tensor in enumerate(inputs)}
    steps: list[FusedStep] = []
    for op in ops:
        operands = tuple(numbers[tensor] for tensor in op.present_inputs)
        steps.append(FusedStep(op.op_type, operands, op.output.type.dtype, op.attributes))
        numbers[op.output] = len(inputs) + len(steps) - 1
    nodes = dict.fromkeys(op.settings.origin for op in ops if op.settings.origin)
    first, *others = (op.settings for op in ops)
    settings = first.fused(*others, origin=", ".join(nodes))
    root = group.root
    name = root.output.name
    types = (root.output.type,)  # to infer it once more from all steps takes long
    new = graph.add_op("FusedElementwise", inputs, types, written(steps), settings=settings)
    graph.replace_op(root, new.outputs)
    for op in group.ops[1:]:
        graph.remove_op(op)
    graph.rename(new.output, name)
