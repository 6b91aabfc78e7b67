"""Options that every verb shares that runs an archive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

__all__ = ["engine_option", "threads_option"]

_F = TypeVar("_F", bound=Callable[..., Any])

_MOST_THREADS: Final = 1 << 16  # more than any machine has processors: a typing mistake


def threads_option(work: str) -> Callable[[_F], _F]:
    """The option ``--threads``; ``work`` is what they share."""
    return click.option(
        "--threads",
        type=click.IntRange(min=1, max=_MOST_THREADS),
        help=f"Threads that work on one {work}; the processors available if not given.",
    )


engine_option = click.option(
    "--engine",
    type=click.Choice(["auto", "native", "numpy"]),
    default="auto",
    show_default=True,
    help="What computes: native kernels, numpy, or native kernels where there are any.",
)
