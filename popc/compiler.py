"""The order of the stages.  This page is the table of contents of the compiler."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from popc import ir, memory
from popc import schedule as scheduling  # modules, for what prints is imported if it is asked for
from popc.devices import (
    chooses_target,
    costs_on_device,
    lowest_on_device,
    settled_storage,
)
from popc.frontend import ImportedModel, LoadedModel, import_model
from popc.ir import Graph, Op, Tensor
from popc.lowering import lower
from popc.memory import MemoryPlan, plan_memory
from popc.ops.index_limits import index_limits
from popc.options import Algorithm, Options
from popc.placement import start_placement
from popc.printable import counted
from popc.progress import UNWATCHED, Made, OnBytes, Snapshot, Stage, Watch, no_bytes
from popc.request import CompileRequest
from popc.schedule import Schedule, build_schedule
from popc.training import add_state, resume_state
from popc.transforms import (
    PassReport,
    check_replicas,
    cut_before_gradients,
    prepare_for_training,
    set_variable_groups,
    transform,
)
from popc_runtime.errors import DoesNotFitError, UsageError
from popc_runtime.format import (
    DEFAULT_LIMITS,
    ProgramImage,
    TrainingSpec,
    format_program,
    instructions_of,
)
from popc_runtime.ground.frozen import frozen, replace

if TYPE_CHECKING:
    from popc.cost import CostReport

__all__ = [
    "Compiled",
    "Planned",
    "Transformed",
    "compile_program",
    "lower_program",
    "plan_program",
    "plan_transformed",
    "transform_program",
]


@frozen
class Transformed:
    """A program whose graph is not edited any more.

    Attributes:
        request: The order that it was made for.
        loaded: The model as it was read.
        model: The model as a graph, with notes for the user.
        training: The part of the manifest about training; ``None`` if the model is not trained.
        passes: Reports of all runs of all passes.
        settled: The order of the ops, if the last pass that asked for it has left it alone.
    """

    request: CompileRequest
    loaded: LoadedModel
    model: ImportedModel
    training: TrainingSpec | None
    passes: tuple[PassReport, ...]
    settled: Schedule | None

    @property
    def options(self) -> Options:
        """The effective options."""
        return self.request.options

    @property
    def graph(self) -> Graph:
        """The graph of the model."""
        return self.model.graph


@frozen
class Planned:
    """A program whose ops have an order, and whose tensors have places: it can be costed.

    ``costs`` are those on its target under its options, where they decided about the order.
    """

    program: Transformed
    schedule: Schedule
    plan: MemoryPlan
    costs: CostReport | None = None

    @property
    def options(self) -> Options:
        """The effective options."""
        return self.program.options

    @property
    def model(self) -> ImportedModel:
        """The model as a graph, with notes for the user."""
        return self.program.model

    @property
    def graph(self) -> Graph:
        """The graph of the model."""
        return self.program.graph


@frozen
class Compiled:
    """A program as instructions: it can be put into an archive."""

    planned: Planned
    image: ProgramImage

    def with_options(self, options: Options) -> Compiled:
        """The same program under other options, of those that compiling does not look at."""
        program = self.planned.program
        request = program.request.with_options(options)
        planned = replace(self.planned, program=replace(program, request=request), costs=None)
        return replace(self, planned=planned)


def compile_program(
    request: CompileRequest, loaded: LoadedModel, watch: Watch = UNWATCHED
) -> Compiled:
    """Take a model through all stages.

    Raises:
        ModelError, OptionError, UsageError: see the stages.
        DoesNotFitError: the program needs more memory than a runtime can address.
        Stopped: the watch wants no further stage.
        AssertionError: with ``verify_ir``, a stage made something that its checker refuses.
    """
    return lower_program(plan_program(request, loaded, watch), watch)


def lower_program(planned: Planned, watch: Watch = UNWATCHED) -> Compiled:
    """Make instructions of a program that has a plan."""
    with watch.stage(Stage.LOWER) as made:
        image = lower(planned.graph, planned.schedule, planned.plan)
        count = sum(len(instructions_of(block)) for block in image.programs.values())
        made(counted(count, "instruction"), lambda: format_program(image))
    return Compiled(planned, image)


def plan_program(request: CompileRequest, loaded: LoadedModel, watch: Watch = UNWATCHED) -> Planned:
    """Take a model through all stages up to the memory plan; errors are those of all stages."""
    return plan_transformed(transform_program(request, loaded, watch), watch)


def plan_transformed(program: Transformed, watch: Watch = UNWATCHED) -> Planned:
    """Order the ops of a program and find places for its tensors.

    Raises:
        DoesNotFitError, Stopped, AssertionError: see `compile_program`.
    """
    graph, options = program.graph, program.options
    with watch.stage(Stage.SCHEDULE) as made:
        schedule = program.settled or _ordered(graph, options)
        plan: MemoryPlan | None = None
        costs: CostReport | None = None
        if _compares_on_device(options):
            plan_of = partial(_plan, program)
            schedule, plan, costs = lowest_on_device(graph, schedule, options, plan_of)
        if options.verify_ir:
            from popc.schedule import check_schedule

            _require_none("schedule", check_schedule(graph, schedule))
        watch.show(Snapshot.FINAL, graph, schedule.orders[graph])
        made(f"{len(schedule.load):,} at load time", lambda: scheduling.format_schedule(schedule))
    with watch.stage(Stage.PLAN) as made:
        plan = plan or _plan(program, schedule, watch.counter(Stage.PLAN))
        if options.verify_ir:
            from popc.memory import check_plan

            _require_none("memory plan", check_plan(graph, schedule, plan))
        _require_addressable(plan, options.replicated_graph_count)
        made(f"{plan.arena_bytes:,} bytes", lambda: memory.format_plan(plan))
    return Planned(program, schedule, plan, costs)


def transform_program(
    request: CompileRequest, loaded: LoadedModel, watch: Watch = UNWATCHED
) -> Transformed:
    """Take a model through all stages that edit the graph; errors are those of these stages."""
    request = _with_settled_storage(request, loaded)
    with watch.stage(Stage.IMPORT) as made:
        model = import_model(loaded, request.bindings(loaded))
        _require_one_sample(model, request)
        set_variable_groups(model.graph, request.options)
        start_placement(model.graph, request.options, trains=request.trains)
        if not request.trains:
            model = add_state(model, request.options)
        watch.show(Snapshot.FWD0, model.graph)
        _show_graph(made, model.graph)
    training: TrainingSpec | None = None
    passes: list[PassReport] = []
    if request.training is not None:
        with watch.stage(Stage.TRAIN) as made:
            weights = {
                *loaded.weight_names(),
                *(variable.name for variable in model.graph.variables),
            }
            model, training, passes = _trained(model, request, weights, watch)
            model = resume_state(model, loaded)
            _show_graph(made, model.graph)
    model = replace(model, limits=index_limits(model.graph))
    with watch.stage(Stage.TRANSFORM) as made:
        reports, settled = _transformed(model.graph, request, watch)
        passes += reports
        notes = [note for report in passes for note in report.notes]
        model = replace(model, notes=(*model.notes, *notes))
        check_replicas(model.graph, request.options.replicated_graph_count)
        _show_graph(made, model.graph)
    return Transformed(request, loaded, model, training, tuple(passes), settled)


def _with_settled_storage(request: CompileRequest, loaded: LoadedModel) -> CompileRequest:
    """The request with a decision about all that is kept off chip when that is needed."""

    def fits(options: Options) -> bool:
        planned = plan_program(request.with_options(options), loaded)
        return costs_on_device(planned.graph, planned.schedule, planned.plan, options).fits

    options = settled_storage(request.options, fits, trains=request.trains)
    return request if options is request.options else request.with_options(options)


def _require_one_sample(model: ImportedModel, request: CompileRequest) -> None:
    """Raise UsageError if samples of outputs would lie side by side that have different sizes."""
    options = request.options
    several = {
        "batches_per_step": options.batches_per_step,
        "accumulation_factor": options.accumulation_factor,
        "replicated_graph_count": options.replicated_graph_count,
    }
    reasons = [f"{name} is {count}" for name, count in several.items() if count > 1]
    if model.sizes and (reasons or request.trains):
        name = next(iter(model.sizes))
        raise UsageError(
            f"data decides the size of output {name!r}, which needs a program of one sample, but "
            f"{' and '.join(reasons) or 'the program trains'}",
            subject=name,
            hint="run one sample at a time, or return what has a known size",
        )


def _show_graph(made: Made, graph: Graph) -> None:
    count = sum(len(nested) for nested in graph.walk())
    made(counted(count, "op"), lambda: ir.format_graph(graph))


def _trained(
    model: ImportedModel, request: CompileRequest, weights: Collection[str], watch: Watch
) -> tuple[ImportedModel, TrainingSpec, list[PassReport]]:
    """The model as a training step; ``weights`` are the names of all that could be trained."""
    from popc.training import add_training, require_weights, rewrite_before_training

    settings, options = request.training, request.options
    assert settings is not None, "only what trains comes here"
    require_weights(settings, weights)
    reports: list[PassReport] = []

    def cut(graph: Graph, barriers: Collection[Tensor]) -> None:
        reports.extend(cut_before_gradients(graph, options, barriers).reports)

    model = rewrite_before_training(model, lambda graph: prepare_for_training(graph, options))
    watch.show(Snapshot.FWD1, model.graph)
    model, spec = add_training(model, settings, options, cut)
    watch.show(Snapshot.BWD0, model.graph)
    return model, spec, reports


def _transformed(
    graph: Graph, request: CompileRequest, watch: Watch
) -> tuple[Sequence[PassReport], Schedule | None]:
    """Reports of the passes, and the order of the ops if nothing has changed since it was found."""
    schedules: list[Schedule] = []

    def orders(edited: Graph) -> Mapping[Graph, Sequence[Op]]:
        schedules.append(_ordered(edited, request.options))
        return schedules[-1].orders

    def show(snapshot: Snapshot) -> None:
        if not (request.trains and snapshot is Snapshot.FWD1):  # it has been shown
            watch.show(snapshot, graph)

    done = transform(graph, request.options, orders, show)
    return done.reports, schedules[-1] if done.orders_hold else None


def _ordered(graph: Graph, options: Options) -> Schedule:
    return build_schedule(graph, options, inplace=options.enable_inplace)


def _compares_on_device(options: Options) -> bool:
    """True if the scheduler may choose, and its choice is for a target that was chosen too."""
    is_open = options.scheduling_algorithm is Algorithm.CHOOSE_BEST
    return is_open and options.scheduler_work_limit > 0 and chooses_target(options)


def _plan(program: Transformed, schedule: Schedule, on_bytes: OnBytes = no_bytes) -> MemoryPlan:
    return plan_memory(
        program.graph,
        schedule,
        inplace=program.options.enable_inplace,
        channels_last=_wants_channels_last(program.request),
        on_bytes=on_bytes,
    )


def _wants_channels_last(request: CompileRequest) -> bool:
    """Training keeps planes, so that options that move ops elsewhere change no bit of a result."""
    chosen = request.options.memory_format
    return chosen == "channels_last" or (chosen == "auto" and not request.trains)


def _require_addressable(plan: MemoryPlan, replicas: int) -> None:
    """Refuse a program that no runtime would load, with the numbers."""
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
            hint="compile for smaller shapes, or for fewer samples at a time",
        )


def _require_none(what: str, problems: Sequence[str]) -> None:
    if problems:
        raise AssertionError(f"the {what} is wrong: {'; '.join(problems)}")
