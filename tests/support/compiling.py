"""Programs between the model and the archive, made with all checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Unpack

from popc.compiler import Compiled, Planned, compile_program, plan_program
from popc.frontend import Bindings, ModelSource
from popc.request import CompileKeywords, CompileRequest

__all__ = ["CHECKED", "bindings_of", "compiled_model", "planned_model"]

# Of programs whose results count: with all checks, but without long searches for a better order and
# for smaller archives, which have tests of their own.
CHECKED: Final[Mapping[str, Any]] = {
    "compression": "fast",
    "scheduler_work_limit": 100,
    "verify_ir": True,
}


def planned_model(
    model: ModelSource,
    settings: Mapping[str, Any] | None = None,
    **keywords: Unpack[CompileKeywords],
) -> Planned:
    """The model with an order and a memory plan; ``settings`` are options."""
    request = _request(model, settings, keywords)
    return plan_program(request, request.load())


def compiled_model(
    model: ModelSource,
    settings: Mapping[str, Any] | None = None,
    **keywords: Unpack[CompileKeywords],
) -> Compiled:
    """The model as instructions; ``settings`` are options."""
    request = _request(model, settings, keywords)
    return compile_program(request, request.load())


def bindings_of(model: ModelSource, **keywords: Unpack[CompileKeywords]) -> Bindings:
    """Everything that is fixed about a model."""
    request = CompileRequest.of(model, **keywords)
    return request.bindings(request.load())


def _request(
    model: ModelSource, settings: Mapping[str, Any] | None, keywords: CompileKeywords
) -> CompileRequest:
    options = {"verify_ir": True, **(settings or {})}
    merged: CompileKeywords = {**keywords, "options": options}
    return CompileRequest.of(model, **merged)
