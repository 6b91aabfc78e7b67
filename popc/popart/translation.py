"""Errors of popc as PopART's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from popc.popart.errors import (
    OutOfMemoryError,
    OutOfMemoryException,
    popart_exception,
    popart_runtime_error,
)
from popc.popart.phrases import leading_phrase
from popc_runtime.errors import DoesNotFitError, PopcError

__all__ = ["popart_errors"]


@contextmanager
def popart_errors(*, runtime: bool = False) -> Iterator[None]:
    """Let errors of popc within the block be PopART's; ``runtime`` says which of its classes.

    Their hints are left out: they name options of popc, which programs for PopART do not set.

    Raises:
        OutOfMemoryException: a program does not fit.
        popart_exception: anything else that popc refuses.
    """
    try:
        yield
    except DoesNotFitError as error:
        raise OutOfMemoryException(OutOfMemoryError(_text(error))) from error
    except PopcError as error:
        if isinstance(error.__cause__, popart_exception):  # of a StepIO, within a step
            raise error.__cause__ from None
        kind = popart_runtime_error if runtime else popart_exception
        raise kind(_text(error)) from error


def _text(error: PopcError) -> str:
    """The message, after the words that PopART has for it, and with all details."""
    text = "\n".join((error.message, *(f"  {line}" for line in error.details)))
    phrase = leading_phrase(text)
    return f"{phrase} {text}" if phrase else text
