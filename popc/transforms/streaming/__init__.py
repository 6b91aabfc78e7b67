"""Streaming memory: what is kept there, and the transfers from and to it."""

from popc.transforms.streaming.merge_exchange import MergeExchange
from popc.transforms.streaming.streaming_memory import StreamingMemory

__all__ = ["MergeExchange", "StreamingMemory"]
