"""Progress of a compilation, and somebody who looks on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias

from popc_runtime.display import table_html
from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    from popc.ir import Graph, Op

__all__ = [
    "UNWATCHED",
    "Made",
    "OnArtefact",
    "OnBytes",
    "OnGraph",
    "OnProgress",
    "ProgressEvent",
    "Snapshot",
    "Stage",
    "Stopped",
    "Watch",
    "no_bytes",
    "show_progress",
]


class Stage(StrEnum):
    """The stages of a compilation, in order.

    ``CONVERT`` is for models of other frameworks, ``TRAIN`` for models that are trained.
    """

    CONVERT = "convert"
    IMPORT = "import"
    TRAIN = "train"
    TRANSFORM = "transform"
    SCHEDULE = "schedule"
    PLAN = "plan"
    LOWER = "lower"
    PACK = "pack"


class Snapshot(StrEnum):
    """Moments at which the graph can be looked at, in order.  The names are PopART's."""

    FWD0 = "fwd0"  # as it was imported
    FWD1 = "fwd1"  # cleaned up, formulas recognised
    BWD0 = "bwd0"  # with the backward pass and the updates of weights; when training only
    PRE_ALIAS = "pre_alias"  # everything fused
    MAIN_LOOPS = "main_loops"  # within the loops over batches and micro-batches
    FINAL = "final"  # in the order in which it runs


@frozen
class ProgressEvent:
    """One stage began, went on or ended.

    Attributes:
        stage: Which.
        seconds: How long it took; ``None`` before it has ended.
        summary: What it produced, in a few words; "" when it begins; of a long one that goes on,
            how far it is, how fast, and how long it will take.
        since: Seconds since it began.
    """

    stage: Stage
    seconds: float | None = None
    summary: str = ""
    since: float = 0.0

    def __str__(self) -> str:
        time = "   ..." if self.seconds is None else f" {self.seconds:7.2f} s"
        return f"{self.stage:<10}{time}  {self.summary}".rstrip()


OnProgress: TypeAlias = Callable[[ProgressEvent], None]

# Told how many of how many bytes a stage has done.
OnBytes: TypeAlias = Callable[[int, int], None]
_INTERVAL: Final = 0.2  # seconds between two looks at a stage that goes on

# Receives the text form of what a stage made: (stage, text).
OnArtefact: TypeAlias = Callable[[Stage, str], None]

# Receives a snapshot of the graph: (its name, graph, order of its ops if that is known).  The graph
# is edited later on.
OnGraph: TypeAlias = "Callable[[Snapshot, Graph, Sequence[Op] | None], None]"

# A stage says what it has made: in a few words, and how to print it if anyone wants to read it.
Made: TypeAlias = Callable[[str, Callable[[], str]], None]


class Stopped(Exception):
    """A watch has stopped a compilation behind the stage that it was to stop at."""


@frozen
class Watch:
    """Tells of the progress of stages and of what they made.

    Attributes:
        on_progress: Told when a stage begins and ends; may raise to cancel.
        on_artefact: Told the text form of what each stage made.
        on_graph: Shown each snapshot of the graph, with the order of its ops where it is known.
        stop_after: The stage to stop at, by raising `Stopped`; ``None`` for none.
    """

    on_progress: OnProgress | None = None
    on_artefact: OnArtefact | None = None
    on_graph: OnGraph | None = None
    stop_after: Stage | None = None

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[Made]:
        """Time the block, which says once what it has made.

        Raises:
            Stopped: this was the last stage that is wanted.
        """
        self._tell(ProgressEvent(stage))
        results: list[tuple[str, Callable[[], str]]] = []
        start = perf_counter()
        yield lambda summary, text: results.append((summary, text))
        ((summary, text),) = results
        self._tell(ProgressEvent(stage, perf_counter() - start, summary))
        if self.on_artefact is not None:
            self.on_artefact(stage, text())
        if stage is self.stop_after:
            raise Stopped

    def counter(self, stage: Stage) -> OnBytes:
        """The function that a stage tells how many of how many bytes are done."""
        if self.on_progress is None:
            return no_bytes
        return _Counter(stage, self.on_progress)

    def speaker(self, stage: Stage) -> Callable[[str], None]:
        """The function that a stage which goes on tells what it does, in a few words."""
        return _Speaker(stage, self._tell)

    def show(self, snapshot: Snapshot, graph: Graph, order: Sequence[Op] | None = None) -> None:
        """Show a snapshot of the graph."""
        if self.on_graph is not None:
            self.on_graph(snapshot, graph, order)

    def _tell(self, event: ProgressEvent) -> None:
        if self.on_progress is not None:
            self.on_progress(event)


class _Counter:
    """Tells how far a stage is, some times a second."""

    def __init__(self, stage: Stage, tell: OnProgress) -> None:
        self._stage = stage
        self._tell = tell
        self._start = self._last = perf_counter()

    def __call__(self, done: int, total: int) -> None:
        now = perf_counter()
        if now - self._last < _INTERVAL or not 0 < done < total:
            return
        self._last = now
        since = now - self._start
        rate = done / since
        text = (
            f"{_size(done)} of {_size(total)}, {_size(rate)}/s, {(total - done) / rate:.0f} s left"
        )
        self._tell(ProgressEvent(self._stage, None, text, since))


class _Speaker:
    """Passes on what a stage says, some times a second."""

    def __init__(self, stage: Stage, tell: OnProgress) -> None:
        self._stage = stage
        self._tell = tell
        self._start = self._last = perf_counter()

    def __call__(self, text: str) -> None:
        now = perf_counter()
        if text and now - self._last >= _INTERVAL:
            self._last = now
            self._tell(ProgressEvent(self._stage, None, text, now - self._start))


def _size(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def no_bytes(done: int, total: int) -> None:
    """Nobody wants to know."""
    del done, total


UNWATCHED = Watch()


def show_progress() -> OnProgress:
    """A value for ``on_progress`` that shows the stages: a table in a notebook, else lines.

    popc.compile("model.onnx", on_progress=popc.show_progress())
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is None or not hasattr(shell, "kernel"):  # an interactive terminal has none
        return _print_line
    from IPython.display import display

    table = _Table()
    handle = display(table, display_id=True)

    def show(event: ProgressEvent) -> None:
        table.take(event)
        handle.update(table)

    return show


def _print_line(event: ProgressEvent) -> None:
    if event.seconds is not None:
        sys.stderr.write(f"{event}\n")


class _Table:
    """The stages so far, as notebooks and as plain text show them."""

    def __init__(self) -> None:
        self._events: dict[Stage, ProgressEvent] = {}

    def take(self, event: ProgressEvent) -> None:
        """Note that a stage has begun or ended."""
        self._events[event.stage] = event

    def __repr__(self) -> str:
        return "\n".join(map(str, self._events.values()))

    def _repr_html_(self) -> str:
        rows = [
            (
                event.stage,
                "..." if event.seconds is None else f"{event.seconds:.2f} s",
                event.summary,
            )
            for event in self._events.values()
        ]
        return table_html("popc.compile", ("stage", "time", "result"), rows)
