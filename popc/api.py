"""The Python interface of the compiler."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Unpack

from popc.archive import Archive, build_archive
from popc.compiler import Compiled, Planned, compile_program, plan_program
from popc.frontend import ModelSource
from popc.progress import OnProgress, Watch
from popc.reporting.budget import check_budget
from popc.reporting.estimation import (
    check_target,
    chooses_target,
    costs_of,
    cycles_of,
    encode_report,
    require_fit,
)
from popc.request import CompileKeywords, CompileRequest

if TYPE_CHECKING:
    from popc.cost import CostReport

__all__ = ["archive_of", "compile_request", "estimate_model", "estimate_request"]


def compile_request(
    request: CompileRequest, watch: Watch, against: str | os.PathLike[str] | None = None
) -> Archive:
    """Compile what is asked for.

    Args:
        request: That.
        watch: Told of the progress.
        against: An archive; if the program exceeds its budget, the error says what has grown.

    Raises:
        PopcError: see `popc.caching.models.compile_model`, which this is the work of.
    """
    check_target(request.options)
    compiled = compile_program(request, request.load(), watch)
    archive = archive_of(compiled)
    check_budget(compiled, archive, against)
    return archive


def archive_of(compiled: Compiled) -> Archive:
    """The archive of a compiled program, with the costs that its options ask for.

    Raises:
        DoesNotFitError: a target was chosen, and the program does not fit it.
    """
    planned = compiled.planned
    report, warnings = _costs(planned)
    archive = build_archive(compiled, report, cycles_of(planned))
    archive.notes = (*planned.model.notes, *warnings)
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
    model: ModelSource,
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
    return costs_of(plan_program(request, request.load(), watch))
