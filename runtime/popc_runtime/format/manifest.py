"""An archive's description of itself: the facts that do not need the program to be loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import prod

from popc_runtime.format.blobs import BlobInfo, BlobKind
from popc_runtime.format.codec import Codec
from popc_runtime.format.columns import LATER_COLUMNS, PROGRAM_COLUMNS, AttributeKind, ItemKind
from popc_runtime.format.dtypes import DType
from popc_runtime.format.header import FORMAT_VERSION
from popc_runtime.format.limits import MAX_DIMENSION, MAX_REPLICAS
from popc_runtime.format.program import (
    CallBlock,
    IfBlock,
    Instruction,
    Packing,
    ProgramImage,
    Region,
    RepeatBlock,
    Slot,
)
from popc_runtime.format.schema import definition_hash
from popc_runtime.format.serialization import Fields, Packable, corrupt, read_shape
from popc_runtime.format.variables import (
    HyperParameter,
    TrainingSpec,
    VariableRole,
    VariableSpec,
    read_training,
    read_variable,
)
from popc_runtime.ground.frozen import field, field_types, frozen
from popc_runtime.ground.hints import Final, TypeAlias

__all__ = [
    "SCHEMA_HASH",
    "FloatCheck",
    "Manifest",
    "OptionSetting",
    "OptionValue",
    "Origin",
    "ReturnType",
    "SequenceSpec",
    "StreamDirection",
    "StreamSpec",
    "SyntheticData",
    "TensorSpec",
]

OptionValue: TypeAlias = "bool | int | float | str | tuple[OptionValue, ...]"

_OPTION_DEPTH: Final = 4
_SHA256_LENGTH: Final = 64
_HEXADECIMAL: Final = "0123456789abcdef"


class Origin(StrEnum):
    """The origin of an option's value."""

    DEFAULT = "default"
    FILE = "file"
    ENV = "env"
    API = "api"
    CLI = "cli"


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


class FloatCheck(StrEnum):
    """A floating-point exception that ends a run; `popc_runtime.device.checks` defines them."""

    DIV0 = "div0"
    INVALID = "invalid"
    OVERFLOW = "overflow"


class StreamDirection(StrEnum):
    """The direction of a stream, seen from the device."""

    INPUT = "input"
    OUTPUT = "output"


@frozen
class TensorSpec:
    """A named input or output of the model; prints as ``x: float32[1,3,224,224]``."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of its elements as they are stored."""
        return prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{','.join(map(str, self.shape))}]"


@frozen
class StreamSpec:
    """A connection between host and device.

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


@frozen
class OptionSetting:
    """The value that an option had, and where it came from."""

    name: str
    value: OptionValue
    origin: Origin


@frozen
class Manifest:
    """Everything that can be known about an archive without loading its program.

    Attributes:
        inputs, outputs: Tensors in the order of the model.
        streams: What a session can be connected to.
        programs: Names of the programs that can be run.
        options: Effective value of every option.
        compiler_version: Version of popc that wrote the archive.
        model_sha256: Of the model file, in hexadecimal.
        sequences: Which outputs are elements of lists.
        variables: What the host may read and write between runs.
        training: Set if the program trains.
        replicas: How many replicas of the program run together.
        identical_seeds: Whether replicas draw the same random numbers.
        floating_point_checks: What is looked for after each instruction, unless the user of the
            archive says otherwise.
        memory: Bytes by purpose.
        provenance: What the model says about its origin.
        format_version, schema_hash: The format, and a hash over its definition, which tells apart
            development builds that share a version.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    streams: tuple[StreamSpec, ...]
    programs: tuple[str, ...]
    options: tuple[OptionSetting, ...]
    compiler_version: str
    model_sha256: str
    sequences: tuple[SequenceSpec, ...] = ()
    variables: tuple[VariableSpec, ...] = ()
    training: TrainingSpec | None = None
    replicas: int = 1
    identical_seeds: bool = False
    floating_point_checks: tuple[FloatCheck, ...] = ()
    memory: Mapping[str, int] = field(default_factory=dict[str, int])
    provenance: Mapping[str, str] = field(default_factory=dict[str, str])
    format_version: tuple[int, int] = FORMAT_VERSION
    schema_hash: str = field(default_factory=lambda: SCHEMA_HASH)

    def to_dict(self) -> dict[str, Packable]:
        """The fields as maps, lists, strings and numbers."""
        return {name: _plain(getattr(self, name)) for name in field_types(type(self))}

    @classmethod
    def from_fields(cls, source: Fields) -> Manifest:
        """Read what `to_dict` wrote, checking every field.

        Raises:
            CorruptArchiveError: a field is missing, has another type or contradicts another.
        """
        major, minor = _version(source)
        manifest = cls(
            inputs=source.items("inputs", _read_tensor),
            outputs=source.items("outputs", _read_tensor),
            streams=source.items("streams", _read_stream),
            programs=source.texts("programs"),
            options=source.items("options", _read_option),
            compiler_version=source.text("compiler_version"),
            model_sha256=source.text("model_sha256"),
            sequences=source.items("sequences", _read_sequence),
            variables=source.items("variables", read_variable),
            training=read_training(source),
            replicas=source.integer("replicas", 1, MAX_REPLICAS),
            identical_seeds=source.flag("identical_seeds"),
            floating_point_checks=source.choices("floating_point_checks", FloatCheck),
            memory=source.integer_map("memory"),
            provenance=source.text_map("provenance"),
            format_version=(major, minor),
            schema_hash=source.text("schema_hash"),
        )
        problem = manifest.problem()
        if problem:
            raise corrupt(problem)
        return manifest

    def problem(self) -> str:
        """The contradiction in the manifest, as a clause; empty if there is none."""
        outputs = [tensor.name for tensor in self.outputs]
        checks = (
            ("input", [tensor.name for tensor in self.inputs]),
            ("output", outputs),
            ("stream", [stream.name for stream in self.streams]),
            ("program", self.programs),
            ("option", [option.name for option in self.options]),
            ("variable", [variable.name for variable in self.variables]),
            ("sequence element", [name for listed in self.sequences for name in listed.tensors]),
        )
        for what, names in checks:
            repeated = _repeated(names)
            if repeated:
                return f"two {what}s have the name {repeated!r}"
        for sequence in self.sequences:
            missing = set(sequence.tensors).difference(outputs)
            if missing:
                return f"sequence {sequence.name!r} lists a missing output {min(missing)!r}"
        for stream in self.streams:
            if (stream.return_type is None) != (stream.direction is StreamDirection.INPUT):
                kind = f"an {stream.direction} with return type {stream.return_type}"
                return f"stream {stream.name!r} is {kind}"
        if len(self.model_sha256) != _SHA256_LENGTH or self.model_sha256.strip(_HEXADECIMAL):
            return "the hash of the model is not a SHA-256"
        return self._problem_of_streams() or self._problem_of_variables()

    def _problem_of_streams(self) -> str:
        streams = {(stream.name, stream.direction): stream for stream in self.streams}
        for direction, tensors in (
            (StreamDirection.INPUT, self.inputs),
            (StreamDirection.OUTPUT, self.outputs),
        ):
            for tensor in tensors:
                stream = streams.get((tensor.name, direction))
                if stream is None:
                    return f"{direction} {tensor.name!r} has no stream"
                samples = tensor.shape[: len(tensor.shape) - len(stream.shape)]
                whole = (*samples, *stream.shape) == tensor.shape
                counted = prod(samples) == max(stream.samples_per_step, 1)
                if stream.dtype is not tensor.dtype or not whole or not counted:
                    return f"{direction} {tensor.name!r} does not match the samples of its stream"
        return ""

    def _problem_of_variables(self) -> str:
        held = {variable.name for variable in self.variables}
        for number in self.training.hyper_parameters if self.training else ():
            if number.variable and number.variable not in held:
                return f"the optimizer refers to a missing variable {number.variable!r}"
        for variable in self.variables:
            if variable.rows and len(variable.rows) != self.replicas:
                rows = len(variable.rows)
                return f"variable {variable.name!r} has {rows} rows for {self.replicas} replicas"
            if set(variable.rows) != set(range(max(variable.rows, default=-1) + 1)):
                return f"rows of variable {variable.name!r} are missing"
            if variable.whole and prod(variable.whole) > prod(variable.shape) * self.replicas:
                return f"parts of variable {variable.name!r} are missing"
        return ""


_RECORDS: Final = (
    HyperParameter,
    OptionSetting,
    SequenceSpec,
    StreamSpec,
    TensorSpec,
    TrainingSpec,
    VariableSpec,
)


def _plain(value: object) -> Packable:
    """Dataclasses to maps, tuples to lists; enumerations are strings already."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, StrEnum):
        return value.value
    if value is None or isinstance(value, bool | int | float | str):
        return value
    assert isinstance(value, _RECORDS)
    return {name: _plain(getattr(value, name)) for name in field_types(type(value))}


def _repeated(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _version(source: Fields) -> tuple[int, int]:
    numbers = source.integers("format_version", high=0xFFFF)
    if len(numbers) != 2:
        raise corrupt("its format version does not consist of two numbers")
    return numbers[0], numbers[1]


def _read_tensor(source: Fields) -> TensorSpec:
    return TensorSpec(source.text("name"), source.choice("dtype", DType), read_shape(source))


def _read_stream(source: Fields) -> StreamSpec:
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


def _read_sequence(source: Fields) -> SequenceSpec:
    return SequenceSpec(source.text("name"), source.texts("tensors"))


def _read_option(source: Fields) -> OptionSetting:
    value = _option_value(source.any("value"), _OPTION_DEPTH)
    return OptionSetting(source.text("name"), value, source.choice("origin", Origin))


def _option_value(value: object, depth: int) -> OptionValue:
    if isinstance(value, list) and depth > 0:
        return tuple(_option_value(item, depth - 1) for item in value)
    if isinstance(value, bool | int | float | str):
        return value
    raise corrupt("the value of an option has a type that options do not have")


SCHEMA_HASH: Final[str] = definition_hash(
    (
        *(BlobInfo, BlobKind, Codec),
        *(Manifest, TensorSpec, StreamSpec, SequenceSpec, OptionSetting),
        *(VariableSpec, TrainingSpec, HyperParameter),
        *(DType, FloatCheck, Origin, ReturnType, StreamDirection, SyntheticData, VariableRole),
        *(ProgramImage, Slot, Region, Packing, Instruction, RepeatBlock, IfBlock, CallBlock),
        *(AttributeKind, ItemKind),
    ),
    (*PROGRAM_COLUMNS, *LATER_COLUMNS),
)
