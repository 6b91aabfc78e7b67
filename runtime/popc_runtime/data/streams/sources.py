"""Sources that feed an input stream.  A source gives one sample per call."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from popc_runtime.data.streams.files import open_samples
from popc_runtime.data.streams.samples import StreamType, check_sample, timed_out
from popc_runtime.data.streams.seals import SealedFeed
from popc_runtime.errors import StreamUnderrunError, UsageError
from popc_runtime.format import Array

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Source", "SourceLike", "is_at_hand", "make_source"]

SourceLike: TypeAlias = (
    "npt.ArrayLike | Iterable[npt.ArrayLike] | Callable[..., npt.ArrayLike | None]"
    " | queue.Queue[Any] | str | os.PathLike[str] | SealedFeed"
)


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


class _CallSource:
    """Samples from a function of their number.

    If it has a parameter ``prefetch``, it is told whether it is asked ahead of the program, and may
    return ``None`` then: it has nothing yet, and is asked again when the program waits for it.
    """

    def __init__(self, stream: StreamType, function: Callable[..., Any]) -> None:
        self._stream = stream
        self._function = function
        self._is_told = _has_parameter(function, "prefetch")
        self._count = 0

    def next(self) -> Array:
        value = self._call(prefetch=False)
        if value is None:
            raise StreamUnderrunError(
                f"stream {self._stream.name!r} has no sample {self._count}: its source returned "
                "None",
                subject=self._stream.name,
                hint="return a sample; None is allowed only when it is called with prefetch=True",
            )
        return self._checked(value)

    def ahead(self) -> Array | None:
        """The next sample, unless there is none yet."""
        value = self._call(prefetch=True)
        return None if value is None and self._is_told else self._checked(value)

    def _call(self, *, prefetch: bool) -> Any:
        if self._is_told:
            return self._function(self._count, prefetch=prefetch)
        return self._function(self._count)

    def _checked(self, value: Any) -> Array:
        self._count += 1
        return check_sample(value, self._stream, self._stream.shape)

    def close(self) -> None:
        """The function belongs to the caller."""


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
            raise timed_out(self._stream, self._timeout, "no sample arrived") from None
        return check_sample(value, self._stream, self._stream.shape)

    def ahead(self) -> Array | None:
        """The next sample, if it is there: who waited ahead would go on after the program's end."""
        try:
            value = self._samples.get_nowait()
        except queue.Empty:
            return None
        return check_sample(value, self._stream, self._stream.shape)

    def close(self) -> None:
        """The queue belongs to the caller."""


def is_at_hand(source: object) -> bool:
    """True if reading samples ahead gains nothing: they lie in memory, a file or a queue."""
    kinds = (queue.Queue, str, os.PathLike, np.ndarray, list, tuple, SealedFeed)
    return isinstance(source, kinds) or hasattr(source, "__array__")


def make_source(
    stream: StreamType, source: SourceLike, *, repeat: bool = False, timeout: float | None = None
) -> Source:
    """A `Source` for whatever the caller has.

    An array (or a file, see `open_samples`) holds the samples along its first axis; an iterable
    yields them; a callable gets the number of the sample and returns it (one that has a parameter
    ``prefetch`` may return ``None`` when it is asked ahead of time); from a queue they are taken,
    waiting up to ``timeout`` seconds each (``None``: for ever).  A `SealedFeed` verifies the
    samples of a file.  ``repeat`` starts an array or a file over when it ends.

    Raises:
        InputMismatchError: an array's samples have another dtype or shape.
        UsageError: the source is none of these, or cannot be repeated.
    """
    if isinstance(source, queue.Queue):
        _refuse_repeat(stream, repeat=repeat)
        return _QueueSource(stream, source, timeout)
    if isinstance(source, SealedFeed):
        return _IteratorSource(stream, source.samples(stream, repeat=repeat))
    if isinstance(source, (str, os.PathLike)):
        source = open_samples(stream, Path(source))
    if isinstance(source, np.ndarray) or hasattr(source, "__array__"):
        return _IteratorSource(stream, _rows(stream, np.asarray(source), repeat=repeat))
    _refuse_repeat(stream, repeat=repeat)
    if callable(source):
        return _CallSource(stream, source)
    if isinstance(source, Iterable):
        return _IteratorSource(stream, iter(source))
    raise UsageError(
        f"stream {stream.name!r}: cannot read samples from {type(source).__name__}",
        hint="use an array, an iterable, a callable, a queue or the path of a .npy or .bin file",
    )


def _has_parameter(function: Callable[..., Any], name: str) -> bool:
    from inspect import signature  # slow to import, and only needed here

    try:
        return name in signature(function).parameters
    except (TypeError, ValueError):  # some functions written in C do not tell
        return False


def _refuse_repeat(stream: StreamType, *, repeat: bool) -> None:
    if repeat:
        raise UsageError(f"stream {stream.name!r}: only arrays and files can be repeated")


def _rows(stream: StreamType, array: Array, *, repeat: bool) -> Iterator[npt.ArrayLike]:
    if array.shape[1:] != stream.shape or array.ndim == 0:
        check_sample(array, stream, (len(array) if array.ndim else 1, *stream.shape))

    def rows() -> Iterator[npt.ArrayLike]:
        yield from array
        while repeat and len(array):
            yield from array

    return rows()
