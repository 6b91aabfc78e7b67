"""What a host can connect to the streams of a program."""

from __future__ import annotations

from popc_runtime.hints import TYPE_CHECKING
from popc_runtime.lazy import lazy_names
from popc_runtime.streams.samples import (
    StreamType,
    as_stored,
    check_sample,
    describe,
    joined_mismatches,
)

if TYPE_CHECKING:
    from popc_runtime.streams.sinks import Sink, SinkLike, make_sink
    from popc_runtime.streams.sources import Source, SourceLike, is_at_hand, make_source

__all__ = [
    "Sink",
    "SinkLike",
    "Source",
    "SourceLike",
    "StreamType",
    "as_stored",
    "check_sample",
    "describe",
    "is_at_hand",
    "joined_mismatches",
    "make_sink",
    "make_source",
]

# A run on arrays only checks samples.
__getattr__ = lazy_names(
    __name__,
    {
        "Sink": "popc_runtime.streams.sinks",
        "SinkLike": "popc_runtime.streams.sinks",
        "Source": "popc_runtime.streams.sources",
        "SourceLike": "popc_runtime.streams.sources",
        "is_at_hand": "popc_runtime.streams.sources",
        "make_sink": "popc_runtime.streams.sinks",
        "make_source": "popc_runtime.streams.sources",
    },
)
