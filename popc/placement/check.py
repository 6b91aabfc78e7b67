"""Problems with the places that a user has given to ops, or that follow from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from popc.ir import Graph, Op
from popc.options import Options, VirtualGraphMode, pipeline_training_conflicts
from popc.placement.chips import ChipsOfValues
from popc.placement.timing import time_stages
from popc.placement.updates import stage_problems
from popc_runtime.errors import OptionError

__all__ = ["check_places", "check_stages", "check_updates", "stage_chips"]

_LISTED: Final = 8  # ops shown of many


def check_places(graph: Graph, options: Options, *, trains: bool) -> None:
    """Check the chips and stages that the ops of an imported model are annotated with.

    Raises:
        OptionError: lists everything that is wrong.
    """
    problems = [*_chip_problems(graph, options)]
    if options.enable_pipelining:
        problems += _annotated_stage_problems(graph)
        problems += pipeline_training_conflicts(options) if trains else ()
    _refuse(problems)


def check_stages(graph: Graph, options: Options, *, trains: bool) -> None:
    """Check the stages of a model all of whose ops have one, if they need one.

    Raises:
        OptionError: lists everything that is wrong.
    """
    if options.enable_pipelining:
        _refuse(list(_stage_problems(graph, options, trains=trains)))


def check_updates(graph: Graph) -> None:
    """Check that each micro-batch can see what the one before it has written.

    Raises:
        OptionError: lists the variables of which it cannot.
    """
    _refuse(list(stage_problems(graph)))


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        raise OptionError(
            "ops are assigned to chips or stages wrongly",
            subject="virtual_graph_mode",
            details=tuple(problems),
        )


# -- chips -----------------------------------------------------------------------------------------


def _chip_problems(graph: Graph, options: Options) -> Iterator[str]:
    if options.virtual_graph_mode is VirtualGraphMode.MANUAL:
        yield from _incomplete(
            graph,
            "virtual_graph",
            "virtual_graph_mode is manual, but {} __ipu_number: {}; give all of them one, by "
            "the attribute or by virtual_graph in [[annotate]], or set virtual_graph_mode=auto",
        )
    beyond: dict[int, list[Op]] = defaultdict(list)
    for nested in graph.walk():
        for op in nested.ops:
            chip = op.settings.virtual_graph
            if chip is not None and chip >= options.num_ipus:
                beyond[chip].append(op)
    for chip, ops in sorted(beyond.items()):
        yield (
            f"{_listed(ops)} on virtual graph {chip}, but num_ipus is {options.num_ipus}: set "
            f"num_ipus to at least {chip + 1}, or use smaller numbers"
        )
    yield from _nested_problems(graph)


def _incomplete(graph: Graph, field: str, message: str) -> Iterator[str]:
    value_chips = ChipsOfValues(graph)
    ops = [op for op in graph.ops if _needs_place(op, value_chips)]
    missing = [op for op in ops if getattr(op.settings, field) is None]
    if missing:
        who = "no op has an" if len(missing) == len(ops) else "some ops have no"
        yield message.format(who, _listed(missing))


def _needs_place(op: Op, value_chips: ChipsOfValues) -> bool:
    """True if ``op`` is more than a computation on constants alone."""
    return bool(op.inputs) and not all(
        value_chips.is_fixed(operand) for operand in op.present_inputs
    )


def _nested_problems(graph: Graph) -> Iterator[str]:
    """Ops of control flow run on one chip, with all that they hold."""
    for holder in (op for op in graph.ops if op.subgraphs):
        own = _place(holder)
        other = [
            op
            for nested in holder.subgraphs.values()
            for inner in nested.walk()
            for op in inner.ops
            if _place(op) != (None, None) and _place(op) != own
        ]
        if other:
            yield (
                f"{_listed(other)} inside {_name(holder)}, but placed elsewhere: what a "
                "control-flow op holds runs where it runs, so annotate the node itself"
            )


def _place(op: Op) -> tuple[int | None, int | None]:
    return op.settings.virtual_graph, op.settings.pipeline_stage


# -- stages ----------------------------------------------------------------------------------------


def _annotated_stage_problems(graph: Graph) -> Iterator[str]:
    if any(op.settings.pipeline_stage is not None for op in graph.ops):
        yield from _incomplete(
            graph,
            "pipeline_stage",
            "{} __pipeline_stage, while others have one: {}; give all of them one, or none, so "
            "that the stages are the virtual graphs",
        )


def _stage_problems(graph: Graph, options: Options, *, trains: bool) -> Iterator[str]:
    chips: dict[int, dict[int, list[Op]]] = defaultdict(lambda: defaultdict(list))
    for op in graph.ops:
        chip, stage = _place(op)
        if chip is not None and stage is not None and op.op_type != "CopyVarUpdate":
            chips[stage][chip].append(op)
    for stage, places in sorted(chips.items()):
        if len(places) > 1:
            where = "; ".join(f"{_listed(ops)} on {chip}" for chip, ops in sorted(places.items()))
            yield (
                f"pipeline stage {stage} is spread over several virtual graphs ({where}): give "
                "the ops of each virtual graph stages of their own"
            )
    gaps = [stage for stage in range(max(chips, default=-1) + 1) if stage not in chips]
    if gaps:
        listed = ", ".join(map(str, gaps))
        yield f"there are no ops in pipeline stage {listed}: number stages without gaps"
    yield from _backward_edges(graph)
    yield from stage_problems(graph)
    if not gaps and all(len(places) == 1 for places in chips.values()):
        ways = {stage: next(iter(places)) for stage, places in chips.items()}
        yield from _depth_problems(ways, options, trains=trains)


def _backward_edges(graph: Graph) -> Iterator[str]:
    value_chips = ChipsOfValues(graph)
    for op in graph.ops:
        for tensor in op.present_inputs:
            before = tensor.producer
            if before is None or value_chips.is_fixed(tensor):
                continue
            ours, theirs = op.settings.pipeline_stage, before.settings.pipeline_stage
            if ours is not None and theirs is not None and theirs > ours:
                yield (
                    f"{_name(op)} in pipeline stage {ours} needs {tensor.name}, which is computed "
                    f"later, in stage {theirs}: move {_name(op)} to stage {theirs} or behind it, "
                    "or give the ops stages that go with the flow of data"
                )


def _depth_problems(chips: Mapping[int, int], options: Options, *, trains: bool) -> Iterator[str]:
    last = max(chips, default=0)
    forward = len(chips)
    if len(set(chips.values())) < 2:
        yield (
            "enable_pipelining, but all ops are on one virtual graph: spread them over at least two"
        )
        return
    every = {**chips, **{2 * last - stage: chip for stage, chip in chips.items()}}
    timing = time_stages(every if trains else chips, options.pipeline_schedule, last)
    option = "accumulation_factor" if trains else "batches_per_step"
    count = getattr(options, option)
    if count < timing.depth and not (trains and count == 1):
        what = f"{forward} stages"
        if trains:
            what = f"{len(every)} stages, {forward} forward and {len(every) - forward} backward"
        yield (
            f"{option} is {count}, but a pipeline of {what} takes at least {timing.depth} to "
            f"fill: set {option} to {timing.depth} or more, or use fewer stages"
        )


def stage_chips(ops: Iterable[Op]) -> dict[int, int]:
    """The chip of each stage.

    Raises:
        AssertionError: a stage has several.
    """
    found: dict[int, int] = {}
    for op in ops:
        chip, stage = _place(op)
        if chip is not None and stage is not None:
            first = found.setdefault(stage, chip)
            assert first == chip, f"stage {stage} is on chips {first} and {chip} ({op!r})"
    return found


def _name(op: Op) -> str:
    return op.settings.origin or (op.outputs[0].name if op.outputs else op.op_type)


def _listed(ops: Sequence[Op]) -> str:
    names = list(dict.fromkeys(_name(op) for op in ops))
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
