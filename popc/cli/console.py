"""Destinations of output: results go to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

import click

from popc.cli.report import Report
from popc.printable import printable
from popc.progress import OnProgress, ProgressEvent
from popc_runtime.errors import BudgetError, DoesNotFitError, PopcError, SpokenHint
from popc_runtime.ground.frozen import frozen

__all__ = ["Console"]

_PATIENCE: Final = 10.0  # seconds before a log gets a line about a stage that goes on


@frozen
class Console:
    """Output settings, from the options of the root command.

    Attributes:
        json: Print one JSON document instead of text.
        quiet: Print results only: no progress, no warnings.
        verbose: Print more, and tracebacks of internal errors.
        color: Whether to colour text on stderr.
        progress: Whether to report progress.
    """

    json: bool = False
    quiet: bool = False
    verbose: int = 0
    color: bool = False
    progress: bool = True

    def note(self, text: str) -> None:
        """Tell something that is not the result."""
        if not self.quiet:
            self._tell(text)

    def on_progress(self) -> OnProgress | None:
        """The callback for the beginning and the end of each stage; ``None`` to stay silent."""
        if self.quiet or not self.progress:
            return None
        return _show_live if sys.stderr.isatty() else _Lines()

    def on_count(self, what: str) -> Callable[[int, int], None]:
        """The callback for progress: how many of how many parts of some work are done."""
        if self.quiet or not self.progress:
            return _say_nothing
        live = sys.stderr.isatty()

        def show(done: int, total: int) -> None:
            if live:
                end = "\x1b[K" + ("\n" if done == total else "")
                click.echo(f"\r{what:<10} {done:,} of {total:,}{end}", nl=False, err=True)
            elif done == total or done % max(total // 5, 1) == 0:
                click.echo(f"{what:<10} {done:,} of {total:,}", err=True)

        return show

    def show(self, report: Report) -> None:
        """Print a result."""
        if self.json:
            document = {
                "schema": f"popc.{report.verb}/1",
                "status": "ok" if report.exit_code == 0 else "negative",
                "exit_code": report.exit_code,
                "warnings": [{"message": text} for text in report.warnings],
                **report.data,
            }
            click.echo(_dumps(document))
            return
        self.warn(report.warnings)
        if report.text:
            click.echo(_safe(report.text))

    def warn(self, texts: Iterable[str]) -> None:
        """Tell what the user should know although the work was done."""
        for text in texts:
            self.note(self._style("warning: ", "yellow") + _safe(text))

    def show_error(self, verb: str, error: PopcError) -> None:
        """Print an error: what, where, what to do."""
        if self.json:
            with suppress(OSError):  # stdout itself may be what failed
                click.echo(_dumps(_error_document(verb, error)))
                return
        self._tell(self._style("error: ", "red") + _safe(error.message))
        for line in error.details:
            self._tell(f"  {_safe(line)}".rstrip())
        if error.hint:
            self._tell(self._style("hint: ", "cyan") + _safe(_hint(error)))

    def _tell(self, text: str) -> None:
        click.echo(text, err=True, color=self.color)

    def _style(self, text: str, color: str) -> str:
        return click.style(text, fg=color, bold=True) if self.color else text


def wants_color(choice: str) -> bool:
    """True if stderr gets colours: NO_COLOR, FORCE_COLOR and TERM=dumb count as usual."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _error_document(verb: str, error: PopcError) -> dict[str, Any]:
    return {
        "schema": f"popc.{verb}/1",
        "status": "negative" if error.exit_code == 1 else "error",
        "exit_code": error.exit_code,
        "warnings": [],
        "error": {
            "code": error.code,
            "message": error.message,
            "subject": error.subject,
            "hint": _hint(error),
            "details": list(error.details),
        },
        **({"report": error.report} if isinstance(error, BudgetError | DoesNotFitError) else {}),
    }


def _hint(error: PopcError) -> str:
    """The remedy, in words of the command line."""
    return error.hint.command_line if isinstance(error.hint, SpokenHint) else error.hint


def _dumps(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False)


def _safe(text: str) -> str:
    """Text of several lines in which no name can make the terminal do anything."""
    return printable(text, keep="\n\t")


def _say_nothing(done: int, total: int) -> None:
    del done, total


class _Lines:
    """One line per finished stage, and now and then one about a stage that takes long."""

    def __init__(self) -> None:
        self._next = _PATIENCE

    def __call__(self, event: ProgressEvent) -> None:
        if event.seconds is not None:
            self._next = _PATIENCE
        elif event.since < self._next:
            return
        else:
            self._next = event.since + _PATIENCE
        click.echo(str(event), err=True)


def _show_live(event: ProgressEvent) -> None:
    """The running stage on a line that its end completes."""
    end = "" if event.seconds is None else "\n"
    click.echo(f"\r{event}\x1b[K{end}", nl=False, err=True)
