"""The definition of a pass: a named edit of a graph with a contract that is checked around it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import ClassVar, Protocol, Self, TypeAlias

from popc.ir import Graph, Op
from popc.transforms.context import PassContext
from popc_runtime.ground.frozen import frozen

__all__ = [
    "Pass",
    "PassOutcome",
    "PassReport",
    "RewritePass",
    "State",
    "disguised",
    "run_to_fixed_point",
    "state_of",
]

State: TypeAlias = "list[object]"

_MAX_ROUNDS = 20  # passes that undo each other would go on for ever


@frozen
class PassOutcome:
    """The changes of a run of a pass: how often, and what it counts beside that, by name.

    ``notes`` are what the user should know.
    """

    changes: int
    effects: Mapping[str, int] = field(default_factory=dict[str, int])
    notes: tuple[str, ...] = ()

    def __add__(self, other: PassOutcome) -> PassOutcome:
        names = dict.fromkeys([*self.effects, *other.effects])
        effects = {name: self.effects.get(name, 0) + other.effects.get(name, 0) for name in names}
        return PassOutcome(self.changes + other.changes, effects, self.notes + other.notes)


@frozen
class PassReport:
    """The record of one run of a pass."""

    name: str
    changes: int
    effects: Mapping[str, int] = field(default_factory=dict[str, int])
    notes: tuple[str, ...] = ()


class Pass(ABC):
    """An edit of the whole program: ``run`` sees the top graph.

    Valid graph in, valid graph out.  A subclass is a frozen dataclass whose fields are the pass's
    parameters; its docstring shows the IR before and after.  ``optional`` passes only make the
    program better, and a user may disable them; ``excludable`` ones leave an op alone if its
    settings say so.  ``level`` is the lowest level of patterns at which the pass runs; "" if it
    runs at all of them.
    """

    name: ClassVar[str]
    optional: ClassVar[bool] = True
    excludable: ClassVar[bool] = False
    level: ClassVar[str] = ""

    @classmethod
    def of(cls, context: PassContext) -> Self:
        """The pass that ``context`` asks for; if it asks for nothing, one that changes nothing."""
        del context
        return cls()

    @abstractmethod
    def run(self, graph: Graph) -> int | PassOutcome:
        """Edit ``graph``; the number of changes made (0: nothing at all), or more about them."""

    def problems(self, graph: Graph) -> Sequence[str]:
        """The problems of a graph that this pass has edited: looked for naively."""
        del graph
        return ()

    def __call__(
        self, graph: Graph, *, check: bool = False, before: State | None = None
    ) -> PassReport:
        """Run, and with ``check`` verify the graph afterwards.

        ``before`` is the `state_of` the graph, where somebody knows it.

        Raises:
            AssertionError: the pass has broken the graph or its own terms, or the graph has changed
                although the pass says that it has not; names the pass.
        """
        if check and before is None:
            before = state_of(graph)
        try:
            found = self.run(graph)
        except AssertionError as error:
            raise AssertionError(f"pass {self.name}: {error}") from error
        outcome = PassOutcome(found) if isinstance(found, int) else found
        if check and (outcome.changes or state_of(graph) != before):
            from popc.ir import verify
            from popc.ops.check_order import find_stuck

            problems = [*verify(graph), *find_stuck(graph), *self.problems(graph)]
            if problems:
                raise AssertionError(f"pass {self.name} broke the graph: {'; '.join(problems)}")
            if not outcome.changes:
                raise AssertionError(f"pass {self.name} changed the graph, but reports no change")
        return PassReport(self.name, outcome.changes, outcome.effects, outcome.notes)


def state_of(graph: Graph) -> State:
    """All that passes may change of a graph and those nested in it, to be compared."""
    return [
        (
            [(*nested.inputs,), (*nested.outputs,), (*nested.output_names,), (*nested.ordering,)],
            [
                (t, t.name, t.type, t.kind, t.off_chip, t.rows, t.producer, dict(t.uses))
                for t in nested.tensors.values()
            ],
            [
                (op, op.op_type, (*op.inputs,), (*op.outputs,), dict(op.attributes), op.settings)
                for op in nested.ops
            ],
            [dict(op.subgraphs) for op in nested.ops],
        )
        for nested in graph.walk()
    ]


class RewritePass(Pass):
    """A local edit that is tried on every op of every graph, nested ones first.

    Subclasses implement `rewrite`, which may edit the graph around ``op``.  It is asked about ops
    of the types ``rewrites``; if there are none, about all.  If it ``needs`` types, nothing is
    looked at in a program without ops of these.
    """

    excludable: ClassVar[bool] = True
    level: ClassVar[str] = "default"
    rewrites: ClassVar[frozenset[str]] = frozenset()
    needs: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Edit around ``op`` if it matches; whether anything changed."""

    def run(self, graph: Graph) -> int:
        """Apply `rewrite` once to every op, in topological order, but to none that excludes it."""
        changes, types = 0, self.rewrites
        for wanted in filter(None, (types, self.needs)):
            if not any(nested.may_have(wanted) for nested in graph.walk()):
                return 0
        with disguised(graph, self.name) as excluded:
            for nested in reversed(list(graph.walk())):
                for op in nested.topological():
                    if types and op.op_type not in types:
                        continue
                    if changes and op not in nested:  # an earlier rewrite has removed it
                        continue
                    if not excluded or op not in excluded:
                        changes += self.rewrite(nested, op)
        return changes


@contextmanager
def disguised(graph: Graph, *names: str) -> Iterator[frozenset[Op]]:
    """Let no op that excludes one of ``names`` be recognised for what it is; these ops."""
    excluding = frozenset(names)
    asking = [op for part in graph.walk() for op in part.ops if op.settings.exclude_patterns]
    types = {
        op: op.op_type for op in asking if not excluding.isdisjoint(op.settings.exclude_patterns)
    }
    for op, op_type in types.items():
        op.op_type = f"excluded {op_type}"
    try:
        yield frozenset(types)
    finally:
        for op, op_type in types.items():
            op.op_type = op_type


class _Runs(Protocol):
    """A pass, or what runs one."""

    def __call__(self, graph: Graph, *, check: bool = False) -> PassReport: ...


def run_to_fixed_point(
    passes: Sequence[_Runs], graph: Graph, *, check: bool = False
) -> list[PassReport]:
    """Run ``passes`` in order, again and again until a whole round changes nothing.

    Raises:
        AssertionError: they do not settle; names the passes that still change something.
    """
    reports: list[PassReport] = []
    for _ in range(_MAX_ROUNDS):
        current = [pass_(graph, check=check) for pass_ in passes]
        reports.extend(current)
        if not any(report.changes for report in current):
            return reports
    restless = ", ".join(report.name for report in current if report.changes)
    raise AssertionError(f"passes do not settle after {_MAX_ROUNDS} rounds: {restless}")
