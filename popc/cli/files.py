"""Files that verbs write beside the archive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from popc_runtime.errors import ResourceError

__all__ = ["output_option", "write_text"]

_F = TypeVar("_F", bound=Callable[..., Any])


def output_option(help_: str) -> Callable[[_F], _F]:
    """The option for the file that a verb writes, which must be given."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path, dir_okay=False),
        required=True,
        metavar="FILE",
        help=help_,
    )


def write_text(path: Path, text: str) -> None:
    """Write all of ``text``, or, whatever happens, nothing; pipes and devices are written to.

    Raises:
        ResourceError: it cannot be written.
    """
    from popc_runtime.process.files import new_file

    if not path.exists() or path.is_file():
        with new_file(path) as file:
            file.write(text.encode())
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ResourceError(f"cannot write {path}: {error.strerror}", subject=str(path)) from error
