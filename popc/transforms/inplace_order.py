"""Decide which of several ops overwrites an operand, as the user wants it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar, Self

from popc.ir import Graph, Op, Tensor, TensorKind
from popc.ops.aliases import Aliases, find_aliases
from popc.ops.overwriting import overwritable
from popc.transforms.base import Pass
from popc.transforms.context import PassContext
from popc_runtime.errors import OptionError
from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    from popc.ops.sequencer import Sequencer

__all__ = ["InplaceOrder"]


@frozen
class InplaceOrder(Pass):
    """Let all other readers of a tensor run before the op that the user wants to overwrite it.

    The last op that reads a tensor may write its result over it, so which one does is a matter of
    order.  Of ops that have a priority for that (see `OpSettings.inplace`), the one with the
    highest becomes the last, unless another reader needs its result.

    Before::

        %a = Relu(%x)                                 priority 2 for operand 0
        %b = Neg(%x)

    After: ``%b`` is required to come before ``%a``.

    With ``check``, tensors that two ops could overwrite, and for which neither data flow nor a
    priority says which one, are an error.

    Raises:
        OptionError: lists them.
    """

    name: ClassVar[str] = "inplace_order"
    optional: ClassVar[bool] = False
    enabled: bool = True
    check: bool = False

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for."""
        options = context.options
        return cls(options.enable_inplace, options.enable_inplace_ambiguity_checking)

    def run(self, graph: Graph) -> int:
        """Require orders; for how many tensors, and how many wishes that has cost."""
        wanted = any(op.settings.inplace for nested in graph.walk() for op in nested.ops)
        if not self.enabled or not (wanted or self.check):
            return 0
        aliases = find_aliases(graph)
        from popc.ops.sequencer import Sequencer

        sequencers = {nested: Sequencer(nested, graph) for nested in graph.walk()}
        rivalries = [
            rivalry
            for nested, sequencer in sequencers.items()
            for rivalry in _rivalries(nested, aliases, sequencer)
        ]
        changes = sum(rivalry.settle() for rivalry in rivalries) if wanted else 0
        changes += sum(sequencer.given_up for sequencer in sequencers.values())
        if self.check:
            problems = [problem for rivalry in rivalries if (problem := rivalry.ambiguity())]
            if problems:
                raise OptionError(
                    "enable_inplace_ambiguity_checking: only the order of ops decides which of "
                    f"several ops overwrites an operand, in {len(problems)} places",
                    details=tuple(problems),
                    hint="give one of them inplace_op_names and inplace_op_priorities",
                )
        return changes


@frozen
class _Rivalry:
    """A tensor with memory of its own, what reads it, and who of these could overwrite it."""

    sequencer: Sequencer
    tensor: Tensor
    readers: tuple[Op, ...]
    rivals: tuple[tuple[Op, float], ...]  # with the priority that the user gave; 0: none

    def settle(self) -> bool:
        """Let all other readers run before the rival with the highest priority, if they can."""
        for op, priority in sorted(self.rivals, key=lambda rival: -rival[1]):
            if priority > 0 and self._can_be_last(op):
                for other in self.readers:
                    if other is not op:
                        self.sequencer.require(other, op)
                return True
        return False

    def ambiguity(self) -> str:
        """The rivals, if it is not settled which of them comes last; "" if it is."""
        last = [op for op, _ in self.rivals if self._can_be_last(op)]
        if len(last) < 2:
            return ""
        named = " or ".join(_named(op) for op in last)
        return f"%{self.tensor.name} ({self.tensor.type}) can be overwritten by {named}"

    def _can_be_last(self, op: Op) -> bool:
        """True if no other reader has to run after ``op``, as far as is known before scheduling."""
        return self.sequencer.has_to_follow(op).isdisjoint(self.readers)


def _named(op: Op) -> str:
    origin = f", node {op.settings.origin}" if op.settings.origin else ""
    return f"{op.op_type} (%{op.outputs[0].name}{origin})"


def _rivalries(graph: Graph, aliases: Aliases, sequencer: Sequencer) -> Iterator[_Rivalry]:
    """The tensors of ``graph`` that more than one op reads and at least one could overwrite."""
    readers: dict[Tensor, dict[Op, None]] = defaultdict(dict)
    rivals: dict[Tensor, dict[Op, float]] = defaultdict(dict)
    kept = {aliases.places[tensor].root for tensor in graph.outputs}
    for op in graph.ops:
        if op in aliases.views:
            continue
        for tensor in op.present_inputs:
            readers[aliases.places[tensor].root][op] = None
        for tensor, priority in _overwritten(op, aliases):
            rivals[tensor].setdefault(op, priority)
    for tensor, ops in rivals.items():
        own = tensor.name in graph.tensors and graph.tensors[tensor.name] is tensor
        takeable = own and tensor.kind is TensorKind.ACTIVATION and tensor not in kept
        if takeable and len(readers[tensor]) > 1:
            yield _Rivalry(sequencer, tensor, tuple(readers[tensor]), tuple(ops.items()))


def _overwritten(op: Op, aliases: Aliases) -> Iterable[tuple[Tensor, float]]:
    """The tensors that ``op`` could overwrite, with the user's priorities."""
    priorities = dict(op.settings.inplace)
    for index in overwritable(op):
        operand = op.optional(index)
        if operand is None or operand.type != op.output.type or not operand.type.nbytes:
            continue
        place = aliases.places[operand]
        if place.is_whole(operand):
            yield place.root, priorities.get(index, 0.0)
