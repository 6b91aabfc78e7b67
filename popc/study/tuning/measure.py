"""The costs of a point of the search: planned, lowered and packed, but neither written nor run."""

from __future__ import annotations

from popc.archive import Content, build_archive
from popc.compiler import compile_program
from popc.reporting.estimation import costs_of, encode_report
from popc.study.advice import Change, Outcome, Workshop, outcome_of, refusal_of
from popc_runtime.format import KnownSizes

__all__ = ["measure"]

# How well weights are compressed; the same ones occur in most archives of a search.
_known: KnownSizes = {}


def measure(workshop: Workshop, change: Change) -> Outcome:
    """Cycles, bytes of tiles and bytes of the archive; or why there is no such program."""
    try:
        request = change.applied(workshop.request)
        compiled = compile_program(request, workshop.loaded)
        costs = costs_of(compiled.planned)
        report = encode_report(costs) if request.options.cost_report else b""
        return outcome_of(costs, build_archive([Content(compiled, report)]).size(_known))
    except Exception as error:  # noqa: BLE001 - see refusal_of
        return refusal_of(error)
