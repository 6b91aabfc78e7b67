"""Options about batch serialization."""

from __future__ import annotations

from dataclasses import dataclass

from popc.options.streaming_options import StreamingOptions

__all__ = ["BatchOptions"]


@dataclass(frozen=True, slots=True)
class BatchOptions(StreamingOptions):
    """How a batch is cut into parts that run one after another."""
