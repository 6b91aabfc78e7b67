"""Find repeated parts, and call one graph for all occurrences of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count

from popc.ir import Graph, Op
from popc.ops import OPS
from popc.ops.aliases import find_aliases
from popc.ops.sequencer import Sequencer
from popc.transforms.base import PassOutcome
from popc.transforms.outlining.calls import gathered, restore_calls
from popc.transforms.outlining.cycles import in_step
from popc.transforms.outlining.emission import outline
from popc.transforms.outlining.selection import find_matches
from popc.transforms.outlining.sequence import Program, Sequenced
from popc.transforms.outlining.terms import Terms, has_calls

__all__ = ["outline_parts"]


def outline_parts(
    graph: Graph,
    orders: Mapping[Graph, Sequence[Op]],
    terms: Terms | None,
    shown: Collection[Op] = (),
) -> PassOutcome:
    """Outline until nothing is worth it any more; the number of calls.

    Without ``terms``, only what the model calls becomes calls.  ``orders`` say in which order ops
    are going to run; those that are ``shown`` cost nothing, as views do.
    """
    cycles = in_step(orders)
    orders = cycles.orders
    calls_some = has_calls(graph)
    if calls_some:
        orders = {nested: gathered(nested, order) for nested, order in orders.items()}
    program = Program.of(graph, orders, find_aliases(graph), cycles.models, shown)
    made: list[tuple[int, int]] = []
    if calls_some:
        _fix_orders(program, graph)
        made += restore_calls(program, graph)
    if terms is not None:
        made += _outlined(graph, program, terms)
    calls = sum(instances for _, instances in made)
    shared = sum(length * (instances - 1) for length, instances in made)
    return PassOutcome(calls, {"parts outlined": len(made), "calls": calls, "ops shared": shared})


def _outlined(graph: Graph, program: Program, terms: Terms) -> Iterator[tuple[int, int]]:
    """The number of ops and of occurrences of each part.

    Phases of a batch are kept apart at first, so that each becomes the same calls.
    """
    taken = {nested.name for nested in graph.walk()}
    names = (name for number in count(1) if (name := f"part_{number}") not in taken)
    phases = {op.settings.batch_phase for order in program.orders.values() for op in order}
    for across_phases in (False, True) if len(phases) > 1 else (False,):
        while True:
            sequence = Sequenced.of(program, across_phases=across_phases)
            matches = find_matches(program, sequence, terms)
            if not matches:
                break
            _fix_orders(program, graph)
            for match in matches:
                outline(program, match.instances, next(names))
                yield len(match.instances[0].ops), len(match.instances)
            program.renew()


def _fix_orders(program: Program, top: Graph) -> None:
    """Views take no time, and random numbers are drawn in the order in which they would be."""
    for graph, order in program.orders.items():
        ordered = dict.fromkeys(op for pair in graph.ordering for op in (pair.first, pair.second))
        for op in ordered:
            if op in program.views:
                graph.ordering.remove(op)
        draws = [op for op in order if _draws(op)]
        if len(draws) > 1:
            Sequencer(graph, top).fix(draws)


def _draws(op: Op) -> bool:
    """True if ``op`` draws from the random numbers that all ops share."""
    if op.subgraphs:
        return any(_draws(inner) for graph in op.subgraphs.values() for inner in graph.ops)
    spec = OPS.get(op.op_type)
    return spec is not None and spec.random and "seed" not in op.attributes
