"""Fixtures of passes as text: tests/transforms/fixtures/NAME.txt, for local rules in rules/.

    == a title, and what it is about
    fold_limit_bytes = 0            options, in TOML
    graph main(%x: float32[2]) {
      ...
    }
    -- becomes
    graph main(%x: float32[2]) {
      ...
    }
    == a near miss
    graph main(%x: float32[2]) {
      ...
    }
    -- stays

The graph is in the form of `tests.support.graph_text`.  ``not compared = "REASON"`` among the
options: results differ on purpose, or take several replicas.  `pytest --update-golden` writes what
graphs become.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from popc.ir import Graph
from popc.options import Options, resolve_options
from popc.schedule import build_schedule
from popc.transforms import PIPELINE, Pass, PassContext
from popc.transforms.rules import RULES
from popc.transforms.simplify import Simplify

__all__ = ["FOLDER", "Fixture", "fixture_names", "read_fixtures", "write_fixtures"]

FOLDER: Final = Path(__file__).parent / "fixtures"
_BECOMES: Final = "-- becomes"
_STAYS: Final = "-- stays"


@dataclass(frozen=True)
class Fixture:
    """A graph, and what a pass makes of it.

    Attributes:
        name: That of the pass, or ``rules/NAME``.
        title: What it is about.
        header: Options as they are written.
        before: The graph.
        after: What it becomes; ``None``: it stays.
    """

    name: str
    title: str
    header: str
    before: str
    after: str | None

    @property
    def values(self) -> dict[str, Any]:
        """The options that are set, and why results are not compared."""
        return tomllib.loads(self.header.replace("not compared =", "not_compared ="))

    @property
    def options(self) -> Options:
        """The options."""
        given = {key: value for key, value in self.values.items() if key != "not_compared"}
        return resolve_options(values=given)

    @property
    def is_compared(self) -> bool:
        """Whether results are the same before and after."""
        return "not_compared" not in self.values

    def make(self) -> Pass:
        """The pass."""
        options = self.options
        folder, _, rule = self.name.rpartition("/")
        if folder:
            return Simplify(tuple(item for item in RULES if item.name == rule))
        made = next(
            pass_ for phase in PIPELINE for pass_ in phase.passes if pass_.name == self.name
        )
        return made.of(PassContext(options, lambda graph: _orders(graph, options)))


def _orders(graph: Graph, options: Options) -> Any:
    return build_schedule(graph, options).orders


def fixture_names() -> list[str]:
    """The names that there have to be: of all passes and of all local rules."""
    passes = {pass_.name for phase in PIPELINE for pass_ in phase.passes}
    return [*sorted(passes - {"simplify"}), *sorted(f"rules/{rule.name}" for rule in RULES)]


def read_fixtures(name: str) -> list[Fixture]:
    """The fixtures of a pass or rule."""
    path = FOLDER / f"{name}.txt"
    return list(_parse(name, path.read_text(encoding="utf-8"))) if path.exists() else []


def _parse(name: str, text: str) -> Iterator[Fixture]:
    for block in f"\n{text}".split("\n== ")[1:]:
        title, _, rest = f"{block.rstrip()}\n".partition("\n")
        becomes = f"{_BECOMES}\n" in rest
        before, _, after = rest.partition(f"{_BECOMES if becomes else _STAYS}\n")
        lines = before.splitlines(keepends=True)
        start = next(i for i, line in enumerate(lines) if line.startswith(("@", "graph ")))
        header, graph = "".join(lines[:start]), "".join(lines[start:])
        yield Fixture(name, title, header, graph, after if becomes else None)


def write_fixtures(fixtures: list[Fixture]) -> None:
    """Write the file of a pass or rule."""
    parts = [
        f"== {fixture.title}\n{fixture.header}{fixture.before}"
        + (f"{_STAYS}\n" if fixture.after is None else f"{_BECOMES}\n{fixture.after}")
        for fixture in fixtures
    ]
    path = FOLDER / f"{fixtures[0].name}.txt"
    path.write_text("".join(parts), encoding="utf-8")
