"""Data sets: written into files for streams, and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from popc.inputs.arrays import FeedKey
from popc.inputs.objects import find_object, is_place
from popc_runtime.data.streams.files import RAW_SUFFIXES
from popc_runtime.data.streams.seals import SealWriter, seal_of
from popc_runtime.errors import ResourceError, UsageError
from popc_runtime.format import Array
from popc_runtime.ground.frozen import frozen
from popc_runtime.process.files import new_file, refuse_to_replace

__all__ = ["Epoch", "Written", "find_dataset", "measure_epochs", "write_feed"]

# Told how many of how many elements are done.
OnCount: TypeAlias = Callable[[int, int], None]


@frozen
class Written:
    """A file of samples: ``part`` is its place or name in the elements, "" if it is all of them."""

    path: Path
    part: str
    dtype: str
    shape: tuple[int, ...]
    count: int


@frozen
class Epoch:
    """The figures of an epoch, by the names of TensorFlow's dataset_benchmark, and latencies."""

    elements_processed: int
    total_bytes_processed: int
    time_elapsed: float
    elements_per_second: float
    bandwidth: float  # GB/s
    latency_seconds: Mapping[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def find_dataset(source: str) -> Callable[[], Iterator[Any]]:
    """A function that gives the elements of ``MODULE:NAME``, from the first on, at every call.

    It names an iterable, or a function without arguments that returns one; or ``source`` is a .npy
    file with samples along its first axis.

    Raises:
        ResourceError: the file cannot be read.
        UsageError: Python finds no such thing, or it is no data set.
    """
    if source.endswith(".npy"):
        return lambda: iter(_mapped(source))
    if not is_place(source):
        raise UsageError(f"{source}: expected MODULE:NAME, or a .npy file")
    found = find_object(source, source)
    if not (callable(found) or isinstance(found, Iterable)):
        raise UsageError(f"{source} is of type {type(found).__name__}, which gives no elements")
    return lambda: iter(found() if callable(found) else found)


def _mapped(path: str) -> Array:
    try:
        array: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise ResourceError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise ResourceError(f"{path} is not a .npy file with an array of numbers") from error
    if not array.ndim:
        raise ResourceError(f"{path} holds a single number, no samples")
    return array


def _parts(element: Any) -> dict[str, Array]:
    """The arrays of an element by place or name; "" for one that is alone."""
    if isinstance(element, Mapping):
        return {str(name): np.asarray(value) for name, value in element.items()}
    if isinstance(element, tuple):
        return {str(place): np.asarray(value) for place, value in enumerate(element)}
    return {"": np.asarray(element)}


# -- files -----------------------------------------------------------------------------------------


def write_feed(
    elements: Iterable[Any],
    target: Path,
    count: int | None = None,
    *,
    seal: FeedKey | None = None,
    force: bool = False,
    on_count: OnCount | None = None,
) -> list[Written]:
    """Write elements into a file of samples: .bin and .raw hold nothing else, .npy says what it is.

    Elements that are tuples or mappings make a file for each part, with its place in front of the
    suffix: ``my_dataset.0.bin``.

    Args:
        elements: What is written: arrays, tuples of such, or mappings.
        target: The file.
        count: How many there must be; by default all.
        seal: Seal each file.
        force: Replace files that exist.
        on_count: Told how many have been written.

    Raises:
        ResourceError: a file exists or cannot be written.
        UsageError: elements differ, are no numbers, or are too few; the suffix is unknown.
    """
    if target.suffix not in (*RAW_SUFFIXES, ".npy"):
        raise UsageError(
            f"{target}: a feed is a file {', '.join(RAW_SUFFIXES)} (raw elements) or .npy"
        )
    files: dict[str, _FeedFile] = {}
    done = 0
    with ExitStack() as stack:
        for element in islice(elements, count):
            parts = _parts(element)
            if not files:
                files = _opened(parts, target, seal, stack, force=force)
            if parts.keys() != files.keys():
                raise UsageError(
                    f"element {done} has the parts {', '.join(parts)}, others {', '.join(files)}"
                )
            for name, value in parts.items():
                files[name].add(value, done)
            done += 1
            if on_count is not None and count:
                on_count(done, count)
        if done == 0 or done < (count or 0):
            wanted = f"ended after {done:,} of {count:,}" if count else "has no"
            raise UsageError(f"the data set {wanted} elements")
        for file in files.values():
            file.finish()
    return [
        Written(file.path, name, str(file.dtype), file.shape, done) for name, file in files.items()
    ]


def _opened(
    parts: Mapping[str, Array], target: Path, seal: FeedKey | None, stack: ExitStack, *, force: bool
) -> dict[str, _FeedFile]:
    files: dict[str, _FeedFile] = {}
    for place, (name, value) in enumerate(parts.items()):
        path = target.with_suffix(f".{place}{target.suffix}") if name else target
        if value.dtype.kind not in "biuf":
            raise UsageError(f"part {name!r} holds {value.dtype}, no numbers")
        sealed = seal_of(path)
        refuse_to_replace(path, force=force)
        if seal is None and sealed.exists():
            raise ResourceError(
                f"{sealed} is the seal of an earlier file", hint="remove it, or seal with --key"
            )
        seals = stack.enter_context(new_file(sealed)) if seal is not None else None
        files[name] = _FeedFile(path, value, stack.enter_context(new_file(path)), seal, seals)
    return files


class _FeedFile:
    """A file that is being written; ``path``, ``dtype`` and ``shape`` say what it holds."""

    def __init__(
        self,
        path: Path,
        first: Array,
        file: BinaryIO,
        seal: FeedKey | None,
        sealed: BinaryIO | None,
    ) -> None:
        self.path = path
        self.dtype = first.dtype.newbyteorder("<")
        self.shape = first.shape
        self._file = file
        self._sealed = sealed
        self._writer = (
            None if seal is None else SealWriter(seal.key, seal.id, first.dtype.name, first.shape)
        )
        self._count = 0
        self._head()

    def _head(self) -> None:
        """The head of a .npy file, which leaves room for any number of samples."""
        if self.path.suffix == ".npy":
            facts = {
                "descr": np.lib.format.dtype_to_descr(self.dtype),
                "fortran_order": False,
                "shape": (self._count, *self.shape),
            }
            np.lib.format.write_array_header_1_0(self._file, facts)

    def add(self, value: Array, place: int) -> None:
        """Write the next sample."""
        if value.dtype.newbyteorder("<") != self.dtype or value.shape != self.shape:
            raise UsageError(
                f"element {place} is {value.dtype}{list(value.shape)}, but those before are "
                f"{self.dtype}{list(self.shape)}",
                hint="samples of a stream have one type and shape",
            )
        stored = np.ascontiguousarray(value).astype(self.dtype, copy=False)
        self._file.write(stored.tobytes())
        if self._writer is not None:
            self._writer.add(stored)
        self._count += 1

    def finish(self) -> None:
        """Say how many there are."""
        if self.path.suffix == ".npy":
            self._file.seek(0)
            self._head()
        if self._writer is not None and self._sealed is not None:
            self._writer.write(self._sealed)


# -- figures ---------------------------------------------------------------------------------------


def measure_epochs(
    dataset: Callable[[], Iterator[Any]],
    epochs: int,
    elements: int,
    *,
    copies: bool = True,
    on_count: OnCount | None = None,
) -> Iterator[Epoch]:
    """The figures of each epoch; data sets that end begin anew.

    Args:
        dataset: Gives all elements, from the first on; see `find_dataset`.
        epochs: How many.
        elements: How many elements an epoch takes.
        copies: Whether each is copied, as on the way to a device.
        on_count: Told how many elements of all epochs are done.

    Raises:
        UsageError: the data set has no elements.
    """
    source = _endless(dataset)
    for epoch in range(epochs):
        size, latencies = 0, []
        start = last = perf_counter()
        for done in range(elements):
            for array in _parts(next(source)).values():
                size += array.nbytes
                if copies:
                    np.array(array)
            now = perf_counter()
            latencies.append(now - last)
            last = now
            if on_count is not None:
                on_count(epoch * elements + done + 1, epochs * elements)
        seconds = max(perf_counter() - start, 1e-9)
        rate, bandwidth = elements / seconds, size / seconds / 1e9
        yield Epoch(elements, size, seconds, rate, bandwidth, _quantiles(latencies))


def _endless(dataset: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    while True:
        count = 0
        for element in dataset():
            count += 1
            yield element
        if not count:
            raise UsageError(
                "the data set has no elements, or can be gone through only once",
                hint="name a function that makes it anew, or measure fewer elements",
            )


def _quantiles(latencies: list[float]) -> dict[str, float]:
    found = np.percentile(latencies, (50, 90, 99, 100))
    return dict(zip(("p50", "p90", "p99", "max"), map(float, found), strict=True))
