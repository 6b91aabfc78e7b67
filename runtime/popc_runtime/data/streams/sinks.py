"""Sinks that receive an output stream.  A sink takes one sample per call."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias

import numpy as np

from popc_runtime.data.streams.samples import StreamType, check_sample, timed_out
from popc_runtime.data.streams.seals import SealedFeed, seal_of
from popc_runtime.errors import ResourceError, StreamUnderrunError, UsageError
from popc_runtime.format import Array

__all__ = ["Sink", "SinkLike", "make_sink"]

SinkLike: TypeAlias = (
    "Array | list[Array] | Callable[[Array], object] | queue.Queue[Any] | str | os.PathLike[str]"
    " | SealedFeed"
)


class Sink(Protocol):
    """Takes the samples of an output stream, one after another."""

    def put(self, value: Array) -> None:
        """Take a sample; the sink may keep the array.

        Raises:
            StreamTimeoutError: there was no room in time.
        """

    def close(self) -> None:
        """Write what is buffered and release what the sink holds."""


class _FunctionSink:
    """Hands each sample to a function."""

    def __init__(self, function: Callable[[Array], object]) -> None:
        self._function = function

    def put(self, value: Array) -> None:
        self._function(value)

    def close(self) -> None:
        """Nothing to release."""


class _QueueSink:
    """Puts samples into a queue for other threads."""

    def __init__(self, stream: StreamType, target: queue.Queue[Any], timeout: float | None) -> None:
        self._stream = stream
        self._target = target
        self._timeout = timeout

    def put(self, value: Array) -> None:
        try:
            self._target.put(value, timeout=self._timeout)
        except queue.Full:
            raise timed_out(self._stream, self._timeout, "the queue stayed full") from None

    def close(self) -> None:
        """The queue belongs to the caller."""


class _ArraySink:
    """Fills an array along its first axis."""

    def __init__(self, stream: StreamType, target: Array) -> None:
        check_sample(target, stream, (len(target), *stream.shape))
        self._stream = stream
        self._target = target
        self._count = 0

    def put(self, value: Array) -> None:
        if self._count == len(self._target):
            raise StreamUnderrunError(
                f"stream {self._stream.name!r}: the array has room for only {self._count} samples",
                subject=self._stream.name,
                hint="pass a longer array or run fewer steps",
            )
        self._target[self._count] = value
        self._count += 1

    def close(self) -> None:
        """The array belongs to the caller."""


class _FileSink:
    """Collects samples and writes them as one .npy file when closed."""

    def __init__(self, stream: StreamType, path: Path) -> None:
        self._stream = stream
        self._path = path
        self._samples: list[Array] = []

    def put(self, value: Array) -> None:
        self._samples.append(value)

    def close(self) -> None:
        shape = (0, *self._stream.shape)
        stacked = (
            np.stack(self._samples)
            if self._samples
            else np.empty(shape, self._stream.dtype.storage)
        )
        self._write(self._path, lambda file: np.save(file, stacked, allow_pickle=False))

    def _write(self, path: Path, write: Callable[[BinaryIO], object]) -> None:
        """Let ``write`` fill a file.

        Raises:
            ResourceError: it cannot be written.
        """
        try:
            with path.open("wb") as file:
                write(file)
        except OSError as error:
            raise ResourceError(
                f"stream {self._stream.name!r}: cannot write {path}: {error}"
            ) from error


class _SealedSink(_FileSink):
    """The same with a seal beside it: samples are sealed when the program hands them over."""

    def __init__(self, stream: StreamType, feed: SealedFeed) -> None:
        super().__init__(stream, feed.path)
        self._seal = feed.writer(stream)

    def put(self, value: Array) -> None:
        self._seal.add(value)
        super().put(value)

    def close(self) -> None:
        super().close()
        self._write(seal_of(self._path), self._seal.write)


def make_sink(stream: StreamType, sink: SinkLike, *, timeout: float | None = None) -> Sink:
    """A `Sink` for whatever the caller has.

    A list is appended to; an array is filled along its first axis; a callable gets each
    sample; into a queue they are put, waiting up to ``timeout`` seconds each; a
    path names the .npy file that is written when the session closes, a `SealedFeed` one that is
    sealed.

    Raises:
        UsageError: the sink is none of these.
    """
    if isinstance(sink, queue.Queue):
        return _QueueSink(stream, sink, timeout)
    if isinstance(sink, SealedFeed):
        return _SealedSink(stream, sink)
    if isinstance(sink, (str, os.PathLike)):
        return _FileSink(stream, Path(sink))
    if isinstance(sink, np.ndarray):
        return _ArraySink(stream, sink)
    if isinstance(sink, list):
        return _FunctionSink(sink.append)
    if callable(sink):
        return _FunctionSink(sink)
    raise UsageError(
        f"stream {stream.name!r}: cannot write samples to {type(sink).__name__}",
        hint="use a list, an array, a callable, a queue or the path of a .npy file",
    )
