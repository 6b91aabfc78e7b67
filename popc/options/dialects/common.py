"""Fates of settings that several systems have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from popc.options.dialects.dialect import HostTable, Nothing

__all__ = ["CACHED", "NO_POPLAR", "for_inference", "for_training"]

_Settings: TypeAlias = Callable[[HostTable], Mapping[str, object] | str]

NO_POPLAR: Final = Nothing("there is no Poplar underneath")
CACHED: Final = Nothing(
    "popc.load(model, options=..., cache=FOLDER) keeps programs in a folder: see docs/caching.md"
)


def for_training(make: _Settings) -> _Settings:
    """Settings by ``make`` in programs that train; in others, the reason why there are none."""
    reason = "it is for programs that train, and this one does not"
    return lambda table: make(table) if table.trains else reason


def for_inference(make: _Settings) -> _Settings:
    """Settings by ``make`` in programs for inference; in others, the reason for none."""
    reason = "it is for inference, and this program trains"
    return lambda table: reason if table.trains else make(table)
