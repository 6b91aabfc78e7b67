"""The origin of an archive: what the model says of itself, and what was given for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from popc.frontend import LoadedModel
from popc.request import CompileRequest
from popc_runtime.format.digests import sha256

__all__ = ["provenance_of"]

_LONGEST: Final = 1000  # characters; some models carry whole vocabularies
_MOST_VALUES: Final = 16  # of a bound array; a longer one would fill the listing, and is hashed


def provenance_of(request: CompileRequest, loaded: LoadedModel) -> dict[str, str]:
    """Facts by name, as the manifest has them.

    Beside those of `LoadedModel.provenance`: ``shape.x``, ``dim.N`` and ``bind.x`` are what was
    given, ``meta.key`` what its user notes.
    """
    facts = {**loaded.provenance, **dict(_given(request))}
    return {name: _cut(value) for name, value in facts.items()}


def _given(request: CompileRequest) -> Iterator[tuple[str, str]]:
    for name, shape in request.shapes.items():
        yield f"shape.{name}", _text(shape)
    for name, size in request.dims.items():
        yield f"dim.{name}", _text(size)
    for name, value in request.bind.items():
        yield f"bind.{name}", _bound(value)
    for name, note in request.meta.items():
        yield f"meta.{name}", note


def _bound(value: Any) -> str:
    """A bound value: its elements, or if they are many its type and their hash."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_bound(item)}" for name, item in value.items())
    if isinstance(value, list | tuple) and any(np.ndim(item) for item in value):
        return "; ".join(map(_bound, value))
    array = np.asarray(value)
    if array.size <= _MOST_VALUES:
        return _text(array.tolist())
    digest: str = sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return f"{array.dtype}[{_text(array.shape)}] sha256 {digest}"


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _cut(text: str) -> str:
    more = len(text) - _LONGEST
    return text if more <= 0 else f"{text[:_LONGEST]}... ({more:,} characters more)"
