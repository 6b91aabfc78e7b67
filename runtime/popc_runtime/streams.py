"""What can feed an input stream and what can receive an output stream.

A source gives one sample (one batch of the stream's shape) per call; a sink takes one.  Both work
on host arrays; the ports of the device call them while a program runs.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from popc_runtime.errors import (
    InputMismatchError,
    ResourceError,
    StreamTimeoutError,
    StreamUnderrunError,
    UsageError,
)
from popc_runtime.format import Array, DType

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

SourceLike: TypeAlias = (
    "npt.ArrayLike | Iterable[npt.ArrayLike] | Callable[[int], npt.ArrayLike]"
    " | queue.Queue[Any] | str | os.PathLike[str]"
)
SinkLike: TypeAlias = (
    "Array | list[Array] | Callable[[Array], object] | queue.Queue[Any] | str | os.PathLike[str]"
)


class StreamType(Protocol):
    """What a sample of a stream looks like."""

    @property
    def name(self) -> str:
        """The stream's name."""

    @property
    def dtype(self) -> DType:
        """Element type."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""


class Source(Protocol):
    """Gives the samples of an input stream, one after another."""

    def next(self) -> Array:
        """The next sample, checked.

        Raises:
            StreamUnderrunError: there are no more.
            StreamTimeoutError: none arrived in time.
            InputMismatchError: the sample has another dtype or shape.
        """

    def close(self) -> None:
        """Release what the source holds."""


class Sink(Protocol):
    """Takes the samples of an output stream, one after another."""

    def put(self, value: Array) -> None:
        """Take a sample; the sink may keep the array.

        Raises:
            StreamTimeoutError: there was no room in time.
        """

    def close(self) -> None:
        """Write what is buffered and release what the sink holds."""


def describe(dtype: object, shape: Iterable[int]) -> str:
    """A tensor type as messages show it: float32[1,3,224,224]."""
    return f"{dtype}[{','.join(map(str, shape))}]"


def check_sample(
    value: npt.ArrayLike, stream: StreamType, shape: tuple[int, ...], *, cast: str = "no"
) -> Array:
    """``value`` as an array of the stream's storage dtype and of ``shape``.

    ``cast`` is numpy's casting rule: "no" refuses every other dtype, "safe" widens.

    Raises:
        InputMismatchError: another dtype or shape.
    """
    array = np.asarray(value)
    storage = stream.dtype.storage
    if array.dtype != storage:
        if array.dtype.name == stream.dtype:  # ml_dtypes.bfloat16
            array = array.view(storage)
        elif array.shape == shape and np.can_cast(array.dtype, storage, cast):  # type: ignore[arg-type]
            array = array.astype(storage)
    if array.dtype != storage or array.shape != shape:
        raise InputMismatchError(
            f"input {stream.name!r}: expected {describe(stream.dtype, shape)}, "
            f"got {describe(array.dtype, array.shape)}",
            subject=stream.name,
            hint=_advice(array, stream, shape),
        )
    return array


def _advice(array: Array, stream: StreamType, shape: tuple[int, ...]) -> str:
    parts: list[str] = []
    if array.dtype != stream.dtype.storage:
        parts.append(f"convert it with .astype({stream.dtype.value!r})")
    if array.shape != shape:
        squeezed = tuple(dim for dim in shape if dim != 1)
        if tuple(dim for dim in array.shape if dim != 1) == squeezed:
            parts.append(f"reshape it to {list(shape)} (add a batch axis?)")
        else:
            parts.append("shapes are fixed when a model is compiled: recompile with --shape")
    return " and ".join(parts)


# -- sources ---------------------------------------------------------------------------------------


class _IteratorSource:
    """Samples from an iterator."""

    def __init__(self, stream: StreamType, samples: Iterator[npt.ArrayLike]) -> None:
        self._stream = stream
        self._samples = samples
        self._count = 0

    def next(self) -> Array:
        try:
            value = next(self._samples)
        except StopIteration:
            raise StreamUnderrunError(
                f"stream {self._stream.name!r} has no sample {self._count}: its source ended",
                subject=self._stream.name,
                hint="give the source more samples or run fewer steps",
            ) from None
        self._count += 1
        return check_sample(value, self._stream, self._stream.shape)

    def close(self) -> None:
        """Close a generator; other iterators have nothing to release."""
        close = getattr(self._samples, "close", None)
        if callable(close):
            close()


class _QueueSource:
    """Samples that other threads put into a queue."""

    def __init__(
        self, stream: StreamType, samples: queue.Queue[Any], timeout: float | None
    ) -> None:
        self._stream = stream
        self._samples = samples
        self._timeout = timeout

    def next(self) -> Array:
        try:
            value = self._samples.get(timeout=self._timeout)
        except queue.Empty:
            raise _timed_out(self._stream, self._timeout, "no sample arrived") from None
        return check_sample(value, self._stream, self._stream.shape)

    def close(self) -> None:
        """The queue belongs to the caller."""


def _timed_out(stream: StreamType, timeout: float | None, what: str) -> StreamTimeoutError:
    return StreamTimeoutError(
        f"stream {stream.name!r}: {what} within {timeout} s", subject=stream.name
    )


_DONE: Final = object()


class _PrefetchSource:
    """Takes samples from another source in a thread, up to ``depth`` ahead of the program."""

    def __init__(self, source: Source, depth: int) -> None:
        self._source = source
        self._ready: queue.Queue[Array | BaseException] = queue.Queue(maxsize=depth)
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._fill, daemon=True, name="popc-prefetch")
        self._thread.start()

    def _fill(self) -> None:
        while not self._stopped.is_set():
            item: Array | BaseException
            try:
                item = self._source.next()
            except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
                item = error
            while not self._stopped.is_set():
                try:
                    self._ready.put(item, timeout=0.05)
                    break
                except queue.Full:
                    continue
            if isinstance(item, BaseException):
                return

    def next(self) -> Array:
        if self._failure is not None:
            raise self._failure
        item = self._ready.get()
        if isinstance(item, BaseException):
            self._failure = item
            raise item
        return item

    def close(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=1)
        self._source.close()


def make_source(
    stream: StreamType, source: SourceLike, *, repeat: bool = False, timeout: float | None = None
) -> Source:
    """A `Source` for whatever the caller has.

    An array (or the path of a .npy file, which is memory-mapped) holds the samples along its first
    axis; an iterable yields them; a callable gets the number of the sample and returns it; from a
    queue they are taken, waiting up to ``timeout`` seconds each (``None``: for ever).  ``repeat``
    starts an array or a file over when it ends.

    Raises:
        InputMismatchError: an array's samples have another dtype or shape.
        UsageError: the source is none of these, or cannot be repeated.
    """
    if isinstance(source, queue.Queue):
        _refuse_repeat(stream, repeat=repeat)
        return _QueueSource(stream, source, timeout)
    if isinstance(source, (str, os.PathLike)):
        source = _open_array(stream, Path(source))
    if isinstance(source, np.ndarray) or hasattr(source, "__array__"):
        return _IteratorSource(stream, _rows(stream, np.asarray(source), repeat=repeat))
    _refuse_repeat(stream, repeat=repeat)
    if callable(source):
        return _IteratorSource(stream, _calls(source))
    if isinstance(source, Iterable):
        return _IteratorSource(stream, iter(source))
    raise UsageError(
        f"stream {stream.name!r}: cannot read samples from {type(source).__name__}",
        hint="use an array, an iterable, a callable, a queue or the path of a .npy file",
    )


def prefetch(source: Source, depth: int) -> Source:
    """``source``, read by a thread up to ``depth`` samples ahead; depth 0 reads on demand."""
    return _PrefetchSource(source, depth) if depth > 0 else source


def _refuse_repeat(stream: StreamType, *, repeat: bool) -> None:
    if repeat:
        raise UsageError(f"stream {stream.name!r}: only arrays and files can be repeated")


def _open_array(stream: StreamType, path: Path) -> Array:
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ResourceError(f"stream {stream.name!r}: cannot read {path}: {error}") from error
    return array


def _rows(stream: StreamType, array: Array, *, repeat: bool) -> Iterator[npt.ArrayLike]:
    if array.shape[1:] != stream.shape or array.ndim == 0:
        check_sample(array, stream, (len(array) if array.ndim else 1, *stream.shape))

    def rows() -> Iterator[npt.ArrayLike]:
        yield from array
        while repeat and len(array):
            yield from array

    return rows()


def _calls(function: Callable[[int], npt.ArrayLike]) -> Iterator[npt.ArrayLike]:
    number = 0
    while True:
        yield function(number)
        number += 1


# -- sinks -----------------------------------------------------------------------------------------


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
            raise _timed_out(self._stream, self._timeout, "the queue stayed full") from None

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
                f"stream {self._stream.name!r}: the array has room for {self._count} samples only",
                subject=self._stream.name,
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
        try:
            with self._path.open("wb") as file:
                np.save(file, stacked, allow_pickle=False)
        except OSError as error:
            raise ResourceError(
                f"stream {self._stream.name!r}: cannot write {self._path}: {error}"
            ) from error


def make_sink(stream: StreamType, sink: SinkLike, *, timeout: float | None = None) -> Sink:
    """A `Sink` for whatever the caller has.

    A list is appended to; an array is filled along its first axis; a callable gets each
    sample; into a queue they are put, waiting up to ``timeout`` seconds each; a
    path names the .npy file that is written when the session closes.

    Raises:
        UsageError: the sink is none of these.
    """
    if isinstance(sink, queue.Queue):
        return _QueueSink(stream, sink, timeout)
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
