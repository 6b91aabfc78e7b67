"""Spans of OpenTelemetry, where its interface is installed; else nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

try:
    from opentelemetry import propagate, trace
except ImportError:
    trace = None

__all__ = ["span"]


@contextmanager
def span(name: str, headers: Mapping[str, str], **facts: Any) -> Iterator[dict[str, Any]]:
    """The block is a span, under that of the client if ``headers`` tell it.

    What is put into the dict becomes attributes as well.
    """
    later: dict[str, Any] = {}
    if trace is None:
        yield later
        return
    tracer = trace.get_tracer("popc.serving")
    with tracer.start_as_current_span(
        name, context=propagate.extract(dict(headers)), kind=trace.SpanKind.SERVER, attributes=facts
    ) as current:
        try:
            yield later
        finally:
            current.set_attributes(later)
