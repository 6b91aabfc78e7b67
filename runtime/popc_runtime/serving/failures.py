"""Errors as the status codes of HTTP and gRPC."""

from __future__ import annotations

from popc_runtime.errors import (
    InputMismatchError,
    NotServedError,
    OverloadedError,
    PopcError,
    RequestTooLargeError,
    RunTimeoutError,
    UsageError,
)
from popc_runtime.ground.hints import Final

__all__ = ["grpc_status", "http_status"]

_STATUS: Final = (
    (RunTimeoutError, 504, "DEADLINE_EXCEEDED"),
    (OverloadedError, 503, "RESOURCE_EXHAUSTED"),
    (RequestTooLargeError, 413, "RESOURCE_EXHAUSTED"),
    (InputMismatchError, 400, "INVALID_ARGUMENT"),
    (UsageError, 400, "INVALID_ARGUMENT"),
)


def _status(error: PopcError) -> tuple[int, str]:
    if isinstance(error, NotServedError):
        return (503, "UNAVAILABLE") if error.is_known else (404, "NOT_FOUND")
    found = ((http, grpc) for kind, http, grpc in _STATUS if isinstance(error, kind))
    return next(found, (500, "INTERNAL"))


def http_status(error: PopcError) -> int:
    """The status code of HTTP."""
    return _status(error)[0]


def grpc_status(error: PopcError) -> str:
    """The name of the status code of gRPC."""
    return _status(error)[1]
