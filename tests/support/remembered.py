"""What several rows of a table are compared with, computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import ParamSpec, TypeVar

import onnx

__all__ = ["remembered"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def remembered(compute: Callable[_P, _T]) -> Callable[_P, _T]:
    """``compute``, which runs once in a process for arguments that look the same.

    Models are told apart by their bytes, all else by what it is printed as; folders do not count.
    It is for what results are compared with, never for the results themselves.
    """
    known: dict[str, _T] = {}

    @wraps(compute)
    def recall(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        key = (
            f"{[*map(_look, args)]} {sorted((name, _look(item)) for name, item in kwargs.items())}"
        )
        if key not in known:
            known[key] = compute(*args, **kwargs)
        return known[key]

    return recall


def _look(argument: object) -> str:
    if isinstance(argument, onnx.ModelProto):
        return sha256(argument.SerializeToString(deterministic=True)).hexdigest()
    return "" if isinstance(argument, Path) else repr(argument)
