"""What the command line adds when a program does not fit: why, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from popc.cli.command_line import compile_line
from popc.cli.console import Console
from popc.cli.model_options import ModelSettings
from popc_runtime.errors import DoesNotFitError

__all__ = ["advised"]


@contextmanager
def advised(
    console: Console,
    model: Path,
    source: Path | bytes,
    settings: ModelSettings,
    train: Path | None,
) -> Iterator[None]:
    """If what is done inside finds that the program does not fit, say what would.

    Raises:
        DoesNotFitError: with the explanation and tested advice.
    """
    try:
        yield
    except DoesNotFitError as error:
        if not error.report:  # no target can hold it
            raise
        raise _explained(console, model, source, settings, train) from error


def _explained(
    console: Console,
    model: Path,
    source: Path | bytes,
    settings: ModelSettings,
    train: Path | None,
) -> DoesNotFitError:
    from popc.advice import ask, explain_question
    from popc.cli.fit_text import explanation_lines, headline

    explanation = explain_question(
        ask(source, train=train, **settings.keywords()),
        jobs=0,
        on_finding=console.on_count("advice"),
    )
    lines = explanation_lines(
        explanation, lambda change: compile_line(model, settings, train, change)
    )
    return DoesNotFitError(
        headline(explanation.diagnosis),
        subject="target",
        details=tuple(lines),
        hint="--allow-out-of-memory writes the archive all the same",
        report=explanation.to_dict(),
    )
