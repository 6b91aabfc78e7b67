"""Inputs, outputs and streams of a program, as manifests describe them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import prod

from popc_runtime.format.dtypes import DType
from popc_runtime.format.limits import MAX_DIMENSION
from popc_runtime.format.serialization import Fields, read_shape
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Final

__all__ = [
    "LabelKind",
    "ReturnType",
    "SequenceSpec",
    "StreamDirection",
    "StreamSpec",
    "SyntheticData",
    "TensorSpec",
    "problem_of_streams",
    "read_sequence",
    "read_stream",
    "read_tensor",
    "repeated",
]


_LARGEST_LABEL: Final = (1 << 63) - 1


class ReturnType(StrEnum):
    """The selection of values computed during one step that an output stream returns."""

    ALL = "all"  # one per batch: [batches_per_step, *shape]
    FINAL = "final"  # that of the last batch: shape
    SUM = "sum"  # the elementwise sum over the step: shape
    EVERY_N = "every_n"  # that of every n-th batch: [batches_per_step / n, *shape]


class SyntheticData(StrEnum):
    """The way in which data is made up; integers and truth values are always zeros."""

    ZEROS = "zeros"
    RANDOM_NORMAL = "random_normal"  # mean 0, deviation 1
    RANDOM_UNIFORM = "random_uniform"  # from 0 to 1


class StreamDirection(StrEnum):
    """The direction of a stream, seen from the device."""

    INPUT = "input"
    OUTPUT = "output"


class LabelKind(StrEnum):
    """The way in which the labels of a tensor are meant."""

    ELEMENTS = "elements"  # an element is the place of its label in the list, or -1 for any other
    COLUMNS = "columns"  # the last axis has a column for each label


@frozen
class TensorSpec:
    """A named input or output of the model; prints as ``x: float32[1,3,224,224]``.

    ``labels`` are what elements or columns stand for, if the model works with strings or returns
    maps; ``label_kind`` says which.  ``sizes`` is empty unless data decides the size of an axis: it
    has, for each, the name of the output stream with its size, or "".  ``shape`` is the most then.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    labels: tuple[str, ...] | tuple[int, ...] = ()
    label_kind: LabelKind | None = None
    sizes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of its elements as they are stored."""
        return prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        if not self.sizes:
            return f"{self.name}: {self.dtype}[{','.join(map(str, self.shape))}]"
        dims = zip(self.shape, self.sizes, strict=True)
        listed = ",".join(f"<={dim}" if size else str(dim) for dim, size in dims)
        return f"{self.name}: {self.dtype}[{listed}]"


@frozen
class StreamSpec:
    """A connection between host and device; an input and an output may have one name.

    ``shape`` is that of one sample.  ``samples_per_step`` is how many samples one step moves; 0
    means a single one that has no step dimension on the host (final values and sums).
    ``return_type`` is ``None`` for inputs.  ``depth`` is how many samples of an input sessions
    read ahead unless they are told otherwise.  ``synthetic`` says how data of an input is made
    up that need not be given; ``None`` for all that transfer.
    """

    name: str
    direction: StreamDirection
    dtype: DType
    shape: tuple[int, ...]
    samples_per_step: int
    return_type: ReturnType | None = None
    depth: int = 0
    synthetic: SyntheticData | None = None


@frozen
class SequenceSpec:
    """An output that is a list: ``tensors`` are the names of its elements among the outputs."""

    name: str
    tensors: tuple[str, ...]


def read_tensor(source: Fields) -> TensorSpec:
    """An input or output from the manifest."""
    # Archives of format 1.3 have no labels.
    kind = None if source.any("label_kind") is None else source.choice("label_kind", LabelKind)
    return TensorSpec(
        source.text("name"),
        source.choice("dtype", DType),
        read_shape(source),
        () if kind is None else _read_labels(source),
        kind,
        # Archives of format 1.5 have no sizes that data decides.
        () if source.any("sizes") is None else source.texts("sizes"),
    )


def _read_labels(source: Fields) -> tuple[str, ...] | tuple[int, ...]:
    """Texts, or whole numbers."""
    listed = source.any("labels")
    if isinstance(listed, list) and listed and isinstance(listed[0], int):
        return source.integers("labels", low=-_LARGEST_LABEL - 1, high=_LARGEST_LABEL)
    return source.texts("labels")


def read_stream(source: Fields) -> StreamSpec:
    """A stream from the manifest."""
    returned, made_up = source.any("return_type"), source.any("synthetic")
    return StreamSpec(
        name=source.text("name"),
        direction=source.choice("direction", StreamDirection),
        dtype=source.choice("dtype", DType),
        shape=read_shape(source),
        samples_per_step=source.integer("samples_per_step", high=MAX_DIMENSION),
        return_type=None if returned is None else source.choice("return_type", ReturnType),
        # Archives of format 1.0 have neither.
        depth=0 if source.any("depth") is None else source.integer("depth", high=MAX_DIMENSION),
        synthetic=None if made_up is None else source.choice("synthetic", SyntheticData),
    )


def read_sequence(source: Fields) -> SequenceSpec:
    """A sequence from the manifest."""
    return SequenceSpec(source.text("name"), source.texts("tensors"))


def problem_of_streams(
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    streams: Sequence[StreamSpec],
    sequences: Sequence[SequenceSpec],
) -> str:
    """The contradiction between what a program takes and returns and its streams, as a clause."""
    for what, names in (
        ("input", [tensor.name for tensor in inputs]),
        ("output", [tensor.name for tensor in outputs]),
        *_names_by_direction(streams),
        ("sequence element", [name for listed in sequences for name in listed.tensors]),
    ):
        twice = repeated(names)
        if twice is not None:
            return f"two {what}s have the name {twice!r}"
    known = {tensor.name for tensor in outputs}
    for sequence in sequences:
        missing = set(sequence.tensors).difference(known)
        if missing:
            return f"sequence {sequence.name!r} lists a missing output {min(missing)!r}"
    for stream in streams:
        if (stream.return_type is None) != (stream.direction is StreamDirection.INPUT):
            kind = f"an {stream.direction} with return type {stream.return_type}"
            return f"stream {stream.name!r} is {kind}"
    by_name = {(stream.name, stream.direction): stream for stream in streams}
    for direction, tensors in ((StreamDirection.INPUT, inputs), (StreamDirection.OUTPUT, outputs)):
        for tensor in tensors:
            problem = _problem_of_tensor(
                tensor, by_name.get((tensor.name, direction))
            ) or _problem_of_sizes(tensor, by_name)
            if problem:
                return f"{direction} {tensor.name!r} {problem}"
    return ""


def _names_by_direction(streams: Sequence[StreamSpec]) -> list[tuple[str, list[str]]]:
    """The names of the streams of inputs, and those of outputs: only there each has its own."""
    return [
        (f"{way} stream", [stream.name for stream in streams if stream.direction is way])
        for way in StreamDirection
    ]


def _problem_of_tensor(tensor: TensorSpec, stream: StreamSpec | None) -> str:
    if stream is None:
        return "has no stream"
    samples = tensor.shape[: len(tensor.shape) - len(stream.shape)]
    whole = (*samples, *stream.shape) == tensor.shape
    counted = prod(samples) == max(stream.samples_per_step, 1)
    if stream.dtype is not tensor.dtype or not whole or not counted:
        return "does not match the samples of its stream"
    columns = tensor.shape[-1] if tensor.shape else 1
    if tensor.label_kind is LabelKind.COLUMNS and len(tensor.labels) != columns:
        return f"has {len(tensor.labels)} labels for {columns} columns"
    if tensor.label_kind is LabelKind.ELEMENTS and tensor.dtype is not DType.INT64:
        return f"has labels for elements of type {tensor.dtype}"
    if tensor.label_kind is LabelKind.ELEMENTS and isinstance(next(iter(tensor.labels), ""), int):
        return "has elements that stand for numbers"
    return ""


def _problem_of_sizes(
    tensor: TensorSpec, streams: Mapping[tuple[str, StreamDirection], StreamSpec]
) -> str:
    """The contradiction between a tensor and the streams of sizes that data decides."""
    if tensor.sizes and len(tensor.sizes) != len(tensor.shape):
        return f"has {len(tensor.sizes)} sizes for {len(tensor.shape)} dimensions"
    for name in filter(None, tensor.sizes):
        stream = streams.get((name, StreamDirection.OUTPUT))
        if stream is None or stream.dtype is not DType.INT64 or stream.shape:
            return f"has a size {name!r}, of which there is no stream of numbers"
    own = streams.get((tensor.name, StreamDirection.OUTPUT))
    if any(tensor.sizes) and (own is None or own.shape != tensor.shape):
        return "has a size that data decides, but not one sample"
    return ""


def repeated(names: Iterable[str]) -> str | None:
    """The first name that occurs twice."""
    return next((name for name, count in Counter(names).items() if count > 1), None)
