"""What a point of the search costs: planned, lowered and packed, but neither written nor run."""

from __future__ import annotations

from popc.advice import Change, Outcome, Workshop, outcome_of, refusal_of
from popc.archive import build_archive
from popc.estimation import costs_of, encode_report
from popc.progress import Stage
from popc_runtime.format import KnownSizes

__all__ = ["measure"]

# How well weights are compressed; the same ones occur in most archives of a search.
_known: KnownSizes = {}


def measure(workshop: Workshop, change: Change) -> Outcome:
    """Cycles, bytes of tiles and bytes of the archive; or why there is no such program."""
    try:
        question = change.applied(workshop.question)
        options = question.options
        done = question.compiled(workshop.loaded, stop_after=Stage.LOWER)
        costs = costs_of(done, options)
        assert done.model is not None, "the last stage has run"
        assert done.plan is not None, "the last stage has run"
        assert done.image is not None, "the last stage has run"
        report = encode_report(costs) if options.cost_report else b""
        archive = build_archive(
            workshop.loaded, done.model, done.plan, done.image, options, done.training, report
        )
        return outcome_of(costs, archive.size(_known))
    except Exception as error:  # noqa: BLE001 - see refusal_of
        return refusal_of(error)
