"""Options that the verbs share that load or run an archive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from popc_runtime.process.threads import MOST_THREADS

__all__ = ["engine_option", "limits_option", "program_option", "threads_option"]

_F = TypeVar("_F", bound=Callable[..., Any])


def threads_option(work: str) -> Callable[[_F], _F]:
    """The option ``--threads``; ``work`` is what they share."""
    return click.option(
        "--threads",
        type=click.IntRange(min=1, max=MOST_THREADS),
        help=f"Threads that share one {work}; by default, one per available processor.",
    )


limits_option = click.option(
    "--limits",
    type=click.Choice(["default", "strict"]),
    default="default",
    show_default=True,
    help="How much an archive may make this process do and allocate; strict for strangers' ones.",
)

program_option = click.option(
    "--program",
    metavar="NAME",
    default="",
    help="Of an archive with several programs, the one to look at (popc inspect lists them).",
)

engine_option = click.option(
    "--engine",
    type=click.Choice(["auto", "native", "numpy"]),
    default="auto",
    show_default=True,
    help="Engine to use: native kernels, numpy, or native kernels where available.",
)
