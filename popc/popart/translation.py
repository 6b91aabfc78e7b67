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
from popc_runtime.errors import DoesNotFitError, PopcError

__all__ = ["popart_errors"]


@contextmanager
def popart_errors(*, runtime: bool = False) -> Iterator[None]:
    """Let errors of popc within the block be PopART's; ``runtime`` says which of its classes.

    Raises:
        OutOfMemoryException: a program does not fit.
        popart_exception: anything else that popc refuses.
    """
    try:
        yield
    except DoesNotFitError as error:
        raise OutOfMemoryException(OutOfMemoryError(str(error))) from error
    except PopcError as error:
        kind = popart_runtime_error if runtime else popart_exception
        raise kind(str(error)) from error
