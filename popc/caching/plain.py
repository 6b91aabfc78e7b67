"""Values as plain data that can be hashed.  This file imports nothing that takes time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum

from popc_runtime.format.digests import sha256
from popc_runtime.format.serialization import Packable
from popc_runtime.ground.hints import Any

__all__ = ["NotPlainError", "plain"]

_MOST: int = 1 << 63  # msgpack holds integers of 64 bits


class NotPlainError(Exception):
    """A value is of a kind whose content is not known."""


def plain(value: Any) -> Packable:
    """``value`` as maps, lists, text and numbers; arrays as their type, shape and hash.

    Raises:
        NotPlainError: it is, or holds, something else.
    """
    if isinstance(value, Enum):
        return plain(value.value)
    if value is None or isinstance(value, bool | float | str | bytes):
        return value
    if isinstance(value, int):
        return value if -_MOST <= value < _MOST else f"int {value}"
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    return _plain_object(value)


def _plain_object(value: Any) -> Packable:
    if isinstance(value, os.PathLike):
        path: str | bytes = os.fspath(value)
        return path
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)  # type: ignore[type-var]
    if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
        return _plain_array(value)
    names = getattr(type(value), "__dataclass_fields__", None)
    if names is None:
        raise NotPlainError(type(value).__name__)
    fields = {name: plain(getattr(value, name)) for name in names}
    return {"is": type(value).__name__, **fields}


def _plain_array(value: Any) -> Packable:
    import numpy as np

    array = np.asarray(value)
    if array.dtype.hasobject:
        raise NotPlainError("an array of objects")
    data = np.ascontiguousarray(array).tobytes()
    return {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": sha256(data).digest()}
