"""The Python interface of the compiler."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, BinaryIO, Unpack

from popc.archive import Archive, Content, build_archive
from popc.collector import without_collector
from popc.compiler import Compiled, Planned, compile_program, plan_program
from popc.frontend import ModelSource
from popc.ir import dissolve
from popc.ops.shared import sharing
from popc.progress import UNWATCHED, OnProgress, Watch
from popc.reporting.estimation import (
    check_target,
    chooses_target,
    costs_of,
    cycles_of,
    encode_report,
    require_fit,
)
from popc.request import CompileKeywords, CompileRequest
from popc.requests import Requests
from popc_runtime.format import FitSpec

if TYPE_CHECKING:
    from popc.cost import CostReport

__all__ = [
    "archive_of",
    "archive_of_requests",
    "compile_request",
    "compile_requests",
    "estimate_model",
    "estimate_request",
]


def compile_request(
    request: CompileRequest, watch: Watch, against: str | os.PathLike[str] | None = None
) -> Archive:
    """Compile what is asked for; see `compile_requests`."""
    return compile_requests(Requests((request,)), watch, against)


def compile_requests(
    requests: Requests, watch: Watch, against: str | os.PathLike[str] | None = None
) -> Archive:
    """One archive for several requests, which share a model and its weights.

    Args:
        requests: What is asked for.
        watch: Told of the progress.
        against: An archive; if a program exceeds its budget, the error says what has grown.

    Raises:
        PopcError: see `popc.caching.models.compile_model`, which this is the work of.
    """
    first = requests.programs[0]
    check_target(first.options)
    with without_collector(), sharing() if len(requests.programs) > 1 else nullcontext():
        return _compile(requests, watch, against)


def _compile(requests: Requests, watch: Watch, against: str | os.PathLike[str] | None) -> Archive:
    """See `compile_requests`.  What is there meanwhile is gone when this returns."""
    loaded = requests.programs[0].load(watch)
    compiled = [compile_program(request, loaded, watch) for request in requests.programs]
    archive = archive_of_requests(requests, compiled, watch, against)
    if watch.on_graph is None:  # nobody else has seen the graphs
        for program in compiled:
            dissolve(program.planned.graph)
    return archive


def archive_of_requests(
    requests: Requests,
    compiled: Sequence[Compiled],
    watch: Watch,
    against: str | os.PathLike[str] | None = None,
) -> Archive:
    """The archive of the programs that ``requests`` ask for; see `compile_requests`."""
    fits: tuple[FitSpec, ...] = ()
    if requests.split or requests.pad:
        from popc.fitting import prove_fits

        fits = prove_fits(requests, compiled[0].planned.program.loaded)
    programs = list(compiled)
    if requests.evaluate:
        from popc.evaluation import compile_evaluation

        programs += [compile_evaluation(program, watch) for program in compiled]
    archive = archive_of(programs, fits, watch)
    for program in programs:
        if against is not None or program.planned.options.budget:
            from popc.reporting.budget import check_budget

            check_budget(program, archive, against)
    return archive


def archive_of(
    compiled: Sequence[Compiled], fits: Sequence[FitSpec] = (), watch: Watch = UNWATCHED
) -> Archive:
    """The archive of compiled programs, with the costs that their options ask for.

    Raises:
        DoesNotFitError: a target was chosen, and a program does not fit it.
        UsageError: two programs take the same.
    """
    contents: list[Content] = []
    notes: dict[str, None] = {}
    for program in compiled:
        report, warnings = _costs(program.planned)
        contents.append(Content(program, report, cycles_of(program.planned)))
        planned = program.planned
        told = (*planned.options.foreign.notes, *planned.model.notes, *warnings)
        notes |= dict.fromkeys(told)
    archive = build_archive(contents, fits, watch)
    archive.notes = tuple(notes)
    return archive


def _costs(planned: Planned) -> tuple[bytes, tuple[str, ...]]:
    """The report that the archive gets, and warnings about it.

    Raises:
        DoesNotFitError: see `require_fit`.
    """
    options = planned.options
    if not options.cost_report and not chooses_target(options):
        return b"", ()
    costs = costs_of(planned)
    warnings = require_fit(costs, options)
    return encode_report(costs) if options.cost_report or warnings else b"", warnings


def estimate_model(
    model: ModelSource | BinaryIO,
    *,
    on_progress: OnProgress | None = None,
    **keywords: Unpack[CompileKeywords],
) -> CostReport:
    """The costs of a run of a model on a target.  Exported as ``popc.estimate``.

    Arguments are those of `popc.compile`; the options ``target``, ``num_ipus``,
    ``tiles_per_ipu``, ``available_memory_proportion`` and others say on what, and how.

    Raises:
        ModelError, OptionError, UsageError: as `popc.compile`.
    """
    return estimate_request(CompileRequest.of(model, **keywords), Watch(on_progress))


def estimate_request(request: CompileRequest, watch: Watch) -> CostReport:
    """`estimate_model` for arguments that have been read."""
    check_target(request.options)
    return costs_of(plan_program(request, request.load(watch), watch))
