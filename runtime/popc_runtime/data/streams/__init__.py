"""Sources and sinks that a host can connect to the streams of a program."""

from __future__ import annotations

from popc_runtime.data.streams.samples import (
    MOVE_IT,
    StreamType,
    as_stored,
    check_sample,
    describe,
    is_foreign,
    joined_mismatches,
)
from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc_runtime.data.streams.sinks import Sink, SinkLike, make_sink
    from popc_runtime.data.streams.sources import Source, SourceLike, is_at_hand, make_source

__all__ = [
    "MOVE_IT",
    "Sink",
    "SinkLike",
    "Source",
    "SourceLike",
    "StreamType",
    "as_stored",
    "check_sample",
    "describe",
    "is_at_hand",
    "is_foreign",
    "joined_mismatches",
    "make_sink",
    "make_source",
]

# A run on arrays only checks samples.
__getattr__ = lazy_names(
    __name__,
    {
        "Sink": "popc_runtime.data.streams.sinks",
        "SinkLike": "popc_runtime.data.streams.sinks",
        "Source": "popc_runtime.data.streams.sources",
        "SourceLike": "popc_runtime.data.streams.sources",
        "is_at_hand": "popc_runtime.data.streams.sources",
        "make_sink": "popc_runtime.data.streams.sinks",
        "make_source": "popc_runtime.data.streams.sources",
    },
)
