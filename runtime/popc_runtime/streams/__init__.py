"""What a host can connect to the streams of a program."""

from popc_runtime.streams.samples import StreamType, check_sample
from popc_runtime.streams.sinks import Sink, SinkLike, make_sink
from popc_runtime.streams.sources import Source, SourceLike, make_source, prefetch

__all__ = [
    "Sink",
    "SinkLike",
    "Source",
    "SourceLike",
    "StreamType",
    "check_sample",
    "make_sink",
    "make_source",
    "prefetch",
]
