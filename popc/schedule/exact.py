"""The lowest possible peak, found by a search over what may have run so far.

A state is a set of nodes that have run (with all that they wait for); how it was reached does not
matter but for the peak on the way.  States are visited in the order of this peak, of equal ones the
fullest first, so that the first full state has the lowest peak there is.

Most states need not be visited at all.  If some nodes can run now without going above the peak
that is accepted anyway, and leave no more live than there was, then nothing is lost by running
them at once: memory between steps is submodular, so that they do no more harm now than later.
That is used for single nodes, and for chains: a node, what becomes harmless by it, the next node,
and so on, until no more is live than in the beginning.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final, NamedTuple

from popc.schedule.effort import Effort
from popc.schedule.flat import find_native, first_live, flattened
from popc.schedule.problem import OrderingProblem
from popc_runtime.ground.frozen import mutable

__all__ = ["ExactResult", "search_by_definition", "search_exactly"]

_LONGEST_CHAIN: Final = 32  # nodes that a chain is followed for, so that a step stays short


class ExactResult(NamedTuple):
    """The result of a search.

    Attributes:
        order: The best order with a peak below the given bound, if one was found.
        lower: No order has a lower peak than this.
        work: The evaluations of nodes that it took.
    """

    order: tuple[int, ...] | None
    lower: int
    work: int


def search_exactly(
    problem: OrderingProblem, *, floor: int, bound: int, effort: Effort
) -> ExactResult:
    """Look for an order whose peak is below ``bound``.

    Args:
        problem: Its priorities and ties are not looked at.
        floor: A known lower bound of the peak.
        bound: What is to be undercut.
        effort: After which to give up.

    If the search ends by itself, ``lower`` is the peak of ``order``, or ``bound`` if there is none.
    """
    peak = max(floor, problem.floor)
    if peak >= bound:
        return ExactResult(None, bound, 0)
    native = find_native()
    tables = flattened(problem, range(len(problem))) if native is not None else None
    if native is None or tables is None:
        return search_by_definition(problem, peak, bound, effort)
    placed, lower, work = native.search_exactly(
        tables.columns, tables.order, first_live(problem), peak, bound, *effort
    )
    return ExactResult(tuple(tables.order[:placed]) if placed >= 0 else None, lower, work)


def search_by_definition(
    problem: OrderingProblem, peak: int, bound: int, effort: Effort
) -> ExactResult:
    """The definition of `search_exactly` in Python, for a ``peak`` below ``bound``."""
    return _Search(problem, bound, effort).run(peak)


@mutable
class _State:
    """Nodes that have run (bits), bytes live then, nodes that may run next, how it was reached."""

    done: int
    live: int
    ready: list[int]
    added: list[int]
    before: _State | None = None

    def path(self) -> tuple[int, ...]:
        """All nodes that have run, in order."""
        parts: list[list[int]] = []
        state: _State | None = self
        while state is not None:
            parts.append(state.added)
            state = state.before
        return tuple(node for part in reversed(parts) for node in part)


class _Search:
    def __init__(self, problem: OrderingProblem, bound: int, effort: Effort) -> None:
        self.problem = problem
        self.bound, self.effort = bound, effort
        self.work = 0
        self.bits = [1 << node for node in range(len(problem))]
        self.waits = [0] * len(problem)
        for node, others in enumerate(problem.successors):
            for other in others:
                self.waits[other] |= self.bits[node]
        readers = [0] * len(problem.weights)
        for node, buffers in enumerate(problem.reads):
            for buffer in buffers:
                readers[buffer] |= self.bits[node]
        weights, frees, stays = problem.weights, problem.frees, problem.stays
        self.made = [sum(weights[buffer] for buffer in made) for made in problem.makes]
        # For each node the bytes that die when all nodes of a set have run, and what is taken over.
        self.deaths = [
            [(frees[b], readers[b]) for b in read if frees[b] and not stays[b]]
            for read in problem.reads
        ]
        self.takes = [
            [(nbytes, [readers[b] for b in choices if not stays[b]]) for nbytes, choices in takes]
            for takes in problem.takes
        ]

    def run(self, peak: int) -> ExactResult:
        first = _State(0, first_live(self.problem), self.problem.sources(), [])
        self._settle(first, peak)
        heap = [(peak, 0, 0, first)]
        seen = {first.done: peak}
        count = 0
        while heap:
            peak, _, _, state = heappop(heap)
            if seen[state.done] < peak:
                continue
            if not state.ready:
                return ExactResult(state.path(), peak, self.work)
            if self.effort.is_spent(self.work):
                return ExactResult(None, peak, self.work)
            for index in range(len(state.ready)):
                reached = self._advance(state, index, peak)
                if reached is None:
                    continue
                higher, following = reached
                if seen.get(following.done, self.bound) > higher:
                    seen[following.done] = higher
                    count += 1
                    heappush(heap, (higher, -following.done.bit_count(), count, following))
        return ExactResult(None, self.bound, self.work)

    def _advance(self, state: _State, index: int, peak: int) -> tuple[int, _State] | None:
        """The peak and the state after running one ready node, unless it goes above the bound."""
        node = state.ready[index]
        peak = max(peak, self._step(state.done, state.live, node))
        if peak >= self.bound:
            return None
        following = _State(state.done, state.live, state.ready.copy(), [], state)
        self._execute(following, index, self._effect(state.done, node))
        self._settle(following, peak)
        return peak, following

    # -- one node --------------------------------------------------------------------------------

    def _effect(self, done: int, node: int) -> int:
        """By how much running ``node`` changes what is live."""
        self.work += 1
        done |= self.bits[node]
        change = self.made[node]
        for nbytes, readers in self.deaths[node]:
            if done & readers == readers:
                change -= nbytes
        return change

    def _step(self, done: int, live: int, node: int) -> int:
        """The bytes live while ``node`` runs."""
        done |= self.bits[node]
        step = live + self.problem.rise[node]
        for nbytes, choices in self.takes[node]:
            if any(done & readers == readers for readers in choices):
                step -= nbytes
        return step

    def _execute(self, state: _State, index: int, change: int) -> None:
        """Run the ready node of this index, which changes what is live by ``change``."""
        node = state.ready.pop(index)
        state.live += change
        state.done |= self.bits[node]
        state.added.append(node)
        now = [
            other for other in self.problem.successors[node] if not self.waits[other] & ~state.done
        ]
        state.ready += now

    # -- nodes that may run at once --------------------------------------------------------------

    def _settle(self, state: _State, peak: int) -> None:
        """Run all nodes and chains of nodes that do no harm."""
        while True:
            self._run_harmless(state, peak, 0)
            for index in range(len(state.ready)):
                if self._run_chain(state, index, peak):
                    break
            else:
                return

    def _run_harmless(self, state: _State, peak: int, start: int) -> None:
        """Run ready nodes from index ``start`` on that need no more and leave no more live."""
        index, unchanged = start, 0
        while unchanged < len(state.ready) - start:
            if index >= len(state.ready):
                index = start
            node = state.ready[index]
            change = self._effect(state.done, node)
            if change <= 0 and self._step(state.done, state.live, node) <= peak:
                self._execute(state, index, change)
                unchanged = 0
            else:
                index += 1
                unchanged += 1

    def _run_chain(self, state: _State, index: int, peak: int) -> bool:
        """Run a chain that begins with a ready node, if one leaves no more live than now.

        Each node after the first waits for the one before, or for one that became harmless by it;
        so whatever part of the chain has run, no less is live than in its end.
        """
        goal, node = state.live, state.ready[index]
        ready = len(state.ready) - 1
        trial = _State(state.done, state.live, state.ready.copy(), [])
        for _ in range(_LONGEST_CHAIN):
            if self._step(trial.done, trial.live, node) > peak:
                return False
            self._execute(trial, index, self._effect(trial.done, node))
            self._run_harmless(trial, peak, ready)
            if trial.live <= goal:
                state.done, state.live, state.ready = trial.done, trial.live, trial.ready
                state.added += trial.added
                return True
            if len(trial.ready) != ready + 1:
                return False
            index, node = ready, trial.ready[ready]
        return False
