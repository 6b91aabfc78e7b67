"""What a host can connect to the streams of a program."""

from popc_runtime.streams.prefetch import prefetch
from popc_runtime.streams.samples import StreamType, check_sample, joined_mismatches
from popc_runtime.streams.sinks import Sink, SinkLike, make_sink
from popc_runtime.streams.sources import Source, SourceLike, is_at_hand, make_source

__all__ = [
    "Sink",
    "SinkLike",
    "Source",
    "SourceLike",
    "StreamType",
    "check_sample",
    "is_at_hand",
    "joined_mismatches",
    "make_sink",
    "make_source",
    "prefetch",
]
