"""The order of the stages.  This page is the table of contents of the compiler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TypeAlias

from popc.frontend import Bindings, ImportedModel, LoadedModel, import_model
from popc.ir import Graph, Op, Tensor, format_graph
from popc.lowering import lower
from popc.memory import MemoryPlan, check_plan, format_plan, plan_memory
from popc.options import Options
from popc.placement import start_placement
from popc.progress import Checkpoint, OnProgress, ProgressEvent, Stage
from popc.schedule import Schedule, build_schedule, check_schedule, format_schedule
from popc.training import TrainingSettings, add_training, rewrite_before_training
from popc.transforms import (
    PassReport,
    check_replicas,
    cut_before_gradients,
    prepare_for_training,
    set_variable_groups,
    transform,
)
from popc_runtime.errors import DoesNotFitError
from popc_runtime.format import (
    DEFAULT_LIMITS,
    ProgramImage,
    TrainingSpec,
    format_program,
    instructions_of,
)

__all__ = ["Compilation", "OnArtefact", "OnGraph", "run_stages"]

# Receives the text form of what a stage made: (stage, text).
OnArtefact: TypeAlias = Callable[[Stage, str], None]

# Receives the graph at a checkpoint: (checkpoint, graph, order of its ops if that is known).  The
# graph is edited later on.
OnGraph: TypeAlias = Callable[[Checkpoint, Graph, Sequence[Op] | None], None]


@dataclass(slots=True)
class Compilation:
    """What the stages have made so far; later fields stay ``None`` with ``stop_after``."""

    model: ImportedModel | None = None
    training: TrainingSpec | None = None
    passes: list[PassReport] = field(default_factory=list[PassReport])
    schedule: Schedule | None = None
    plan: MemoryPlan | None = None
    image: ProgramImage | None = None
    seconds: dict[Stage, float] = field(default_factory=dict[Stage, float])

    @property
    def graph(self) -> Graph:
        """The graph in its current state."""
        assert self.model is not None, "nothing has been imported"
        return self.model.graph


def run_stages(
    loaded: LoadedModel,
    bindings: Bindings,
    options: Options,
    *,
    training: TrainingSettings | None = None,
    stop_after: Stage = Stage.LOWER,
    on_progress: OnProgress | None = None,
    on_artefact: OnArtefact | None = None,
    on_graph: OnGraph | None = None,
) -> Compilation:
    """Take a model through the stages, up to and including ``stop_after``.

    Raises:
        ModelError, OptionError: see the stages.
        DoesNotFitError: the program needs more memory than a runtime can address.
        AssertionError: with ``verify_ir``, a stage made something that its checker refuses.
    """
    done = Compilation()
    watch = _Watch(done, on_progress, on_artefact)
    show = on_graph or _look_away
    for stage, make in _Stages(loaded, bindings, options, training, done, show).in_order():
        with watch.stage(stage) as report:
            report(*make())
        if stage is stop_after:
            break
    return done


def _look_away(checkpoint: Checkpoint, graph: Graph, order: Sequence[Op] | None) -> None:
    del checkpoint, graph, order


# What a stage has made: in a few words, and as text if anyone wants it.
_Made: TypeAlias = tuple[str, Callable[[], str]]


class _Stages:
    """What each stage does; every method writes to ``done`` and reads what earlier ones wrote."""

    def __init__(
        self,
        loaded: LoadedModel,
        bindings: Bindings,
        options: Options,
        training: TrainingSettings | None,
        done: Compilation,
        show: OnGraph,
    ) -> None:
        self.loaded = loaded
        self.bindings = bindings
        self.options = options
        self.training = training
        self.done = done
        self.show = show
        self.latest: Schedule | None = None
        self.orders_hold = False  # whether ``latest`` is that of the graph as it is

    def in_order(self) -> list[tuple[Stage, Callable[[], _Made]]]:
        """The stages that there are."""
        train = [(Stage.TRAIN, self._train)] if self.training is not None else []
        return [
            (Stage.IMPORT, self._import),
            *train,
            (Stage.TRANSFORM, self._transform),
            (Stage.SCHEDULE, self._schedule),
            (Stage.PLAN, self._plan),
            (Stage.LOWER, self._lower),
        ]

    def _import(self) -> _Made:
        self.done.model = import_model(self.loaded, self.bindings)
        set_variable_groups(self.done.graph, self.options)
        start_placement(self.done.graph, self.options, trains=self.training is not None)
        self._show(Checkpoint.FWD0)
        return self._graph_text()

    def _train(self) -> _Made:
        assert self.done.model is not None
        assert self.training is not None
        model = rewrite_before_training(
            self.done.model, lambda graph: prepare_for_training(graph, self.options)
        )
        self._show(Checkpoint.FWD1)
        self.done.model, self.done.training = add_training(
            model, self.training, self.options, self._cut_before_gradients
        )
        self._show(Checkpoint.BWD0)
        return self._graph_text()

    def _cut_before_gradients(self, graph: Graph, barriers: Collection[Tensor]) -> None:
        self.done.passes += cut_before_gradients(graph, self.options, barriers).reports

    def _transform(self) -> _Made:
        assert self.done.model is not None
        found = transform(self.done.graph, self.options, self._orders, self._show_transformed)
        self.done.passes += found.reports
        self.orders_hold = found.orders_hold
        notes = [note for report in self.done.passes for note in report.notes]
        self.done.model = replace(self.done.model, notes=(*self.done.model.notes, *notes))
        check_replicas(self.done.graph, self.options.replicated_graph_count)
        return self._graph_text()

    def _show_transformed(self, checkpoint: Checkpoint) -> None:
        if self.training is None or checkpoint is not Checkpoint.FWD1:  # it has been shown
            self._show(checkpoint)

    def _show(self, checkpoint: Checkpoint, order: Sequence[Op] | None = None) -> None:
        self.show(checkpoint, self.done.graph, order)

    def _graph_text(self) -> _Made:
        graph = self.done.graph
        return f"{_op_count(graph):,} ops", lambda: format_graph(graph)

    def _orders(self, graph: Graph) -> Mapping[Graph, Sequence[Op]]:
        self.latest = build_schedule(graph, self.options, inplace=self.options.enable_inplace)
        return self.latest.orders

    def _schedule(self) -> _Made:
        graph = self.done.graph
        if not self.orders_hold:
            self._orders(graph)
        assert self.latest is not None
        schedule = self.done.schedule = self.latest
        if self.options.verify_ir:
            _require_none("schedule", check_schedule(graph, schedule))
        self._show(Checkpoint.FINAL, schedule.orders[graph])
        return f"{len(schedule.load):,} at load time", lambda: format_schedule(schedule)

    def _plan(self) -> _Made:
        graph, schedule = self.done.graph, self.done.schedule
        assert schedule is not None
        plan = self.done.plan = plan_memory(
            graph,
            schedule,
            inplace=self.options.enable_inplace,
            channels_last=self._wants_channels_last(),
        )
        if self.options.verify_ir:
            _require_none("memory plan", check_plan(graph, schedule, plan))
        _require_fit(plan, self.options.replicated_graph_count)
        return f"{plan.arena_bytes:,} bytes", lambda: format_plan(plan)

    def _wants_channels_last(self) -> bool:
        chosen = self.options.memory_format
        return chosen == "channels_last" or (chosen == "auto" and self.training is None)

    def _lower(self) -> _Made:
        schedule, plan = self.done.schedule, self.done.plan
        assert schedule is not None
        assert plan is not None
        image = self.done.image = lower(self.done.graph, schedule, plan)
        count = sum(len(instructions_of(block)) for block in image.programs.values())
        return f"{count:,} instructions", lambda: format_program(image)


def _require_fit(plan: MemoryPlan, replicas: int) -> None:
    """What no runtime would load is refused here, with the numbers."""
    needs = {
        "tensors": plan.arena_bytes * replicas,
        "constants": plan.constant_bytes,
        "states": plan.state_bytes * replicas,
        "streaming memory": plan.remote_bytes * replicas,
    }
    limit = DEFAULT_LIMITS.memory_bytes
    if any(size > limit for size in needs.values()):
        what = ", ".join(f"{size:,} bytes for {name}" for name, size in needs.items() if size)
        raise DoesNotFitError(
            f"the program needs {what}, but no more than {limit:,} bytes each can be addressed",
            hint="compile for smaller shapes, or fewer at a time",
        )


def _require_none(what: str, problems: Sequence[str]) -> None:
    if problems:
        raise AssertionError(f"the {what} is wrong: {'; '.join(problems)}")


def _op_count(graph: Graph) -> int:
    return sum(len(nested) for nested in graph.walk())


_Report: TypeAlias = Callable[[str, Callable[[], str]], None]


class _Watch:
    """Times stages, tells their progress, and hands out text forms if anyone wants them."""

    def __init__(
        self,
        compilation: Compilation,
        on_progress: OnProgress | None,
        on_artefact: OnArtefact | None,
    ) -> None:
        self._compilation = compilation
        self._on_progress = on_progress
        self._on_artefact = on_artefact

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[_Report]:
        """Time the block; it reports its result once, as a summary and a way to print it."""
        self._tell(ProgressEvent(stage))
        result: list[tuple[str, Callable[[], str]]] = []
        start = perf_counter()
        yield lambda summary, text: result.append((summary, text))
        elapsed = perf_counter() - start
        self._compilation.seconds[stage] = elapsed
        summary, text = result[0]
        self._tell(ProgressEvent(stage, elapsed, summary))
        if self._on_artefact is not None:
            self._on_artefact(stage, text())

    def _tell(self, event: ProgressEvent) -> None:
        if self._on_progress is not None:
            self._on_progress(event)
