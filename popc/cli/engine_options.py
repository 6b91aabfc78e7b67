"""Options that the verbs share that load or run an archive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from popc_runtime.errors import UsageError
from popc_runtime.process.threads import MOST_THREADS

__all__ = [
    "calls_option",
    "engine_option",
    "feed_key_option",
    "limits_option",
    "program_option",
    "threads_option",
]

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


def _functions(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> Any:
    """The functions that ``NAME=MODULE:FUNCTION`` stand for, by name."""
    return {text.partition("=")[0]: _function(text) for text in given}


def _function(text: str) -> Any:
    from popc.inputs.objects import find_object, is_place

    name, _, place = text.partition("=")
    if not (name and is_place(place)):
        raise UsageError(f"--host-call {text}: expected NAME=MODULE:FUNCTION")
    return find_object(place, f"--host-call {text}")


calls_option = click.option(
    "--host-call",
    "host_calls",
    multiple=True,
    metavar="NAME=MODULE:FUNCTION",
    callback=_functions,
    help="A Python function that the program calls on the host; repeatable.",
)


def _feed_key(_context: click.Context, _option: click.Parameter, given: str | None) -> Any:
    """The key in a file and the number of the seal: ``FILE`` or ``FILE@ID``."""
    if given is None:
        return None
    from popc.inputs.arrays import FeedKey
    from popc_runtime.data.streams.seals import read_key

    path, _, number = given.rpartition("@")
    if not (path and number.isdecimal()):
        return FeedKey(read_key(given))
    return FeedKey(read_key(path), int(number))


def feed_key_option(name: str, help_: str) -> Callable[[_F], _F]:
    """An option for the key of sealed feeds, which the command gets as a `FeedKey`."""
    return click.option(name, metavar="FILE[@ID]", callback=_feed_key, help=help_)


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
