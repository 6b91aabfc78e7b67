"""Advice that the command line adds when a program does not fit its target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from popc.cli.console import Console
from popc_runtime.errors import DoesNotFitError

if TYPE_CHECKING:
    from popc.request import CompileRequest
    from popc.study.advice import Change

__all__ = ["advised"]


@contextmanager
def advised(
    console: Console, request: CompileRequest, line: Callable[[Change], str]
) -> Iterator[None]:
    """Propose what would fit, if the work inside finds that the program does not.

    ``line`` gives the command line that compiles it with a change.

    Raises:
        DoesNotFitError: with the explanation and tested advice.
    """
    try:
        yield
    except DoesNotFitError as error:
        if not error.report:  # no target can hold it
            raise
        raise _explained(console, request, line) from error


def _explained(
    console: Console, request: CompileRequest, line: Callable[[Change], str]
) -> DoesNotFitError:
    from popc.cli.fit_text import explanation_lines, headline
    from popc.study.advice import explain_request

    explanation = explain_request(request, jobs=0, on_finding=console.on_count("advice"))
    return DoesNotFitError(
        headline(explanation.diagnosis),
        subject="target",
        details=tuple(explanation_lines(explanation, line)),
        hint="--allow-out-of-memory writes the archive anyway",
        report=explanation.to_dict(),
    )
