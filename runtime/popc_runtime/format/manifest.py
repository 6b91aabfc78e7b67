"""An archive's description of itself: the facts that do not need the program to be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import prod

from popc_runtime.format.blobs import BlobInfo, BlobKind
from popc_runtime.format.codec import Codec
from popc_runtime.format.columns import LATER_COLUMNS, PROGRAM_COLUMNS, AttributeKind, ItemKind
from popc_runtime.format.dtypes import DType
from popc_runtime.format.header import FORMAT_VERSION
from popc_runtime.format.host_calls import HostCallSpec, read_host_call
from popc_runtime.format.limits import MAX_REPLICAS
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
from popc_runtime.format.serialization import ATOMS, Fields, Packable, corrupt
from popc_runtime.format.streams import (
    LabelKind,
    ReturnType,
    SequenceSpec,
    StreamDirection,
    StreamSpec,
    SyntheticData,
    TensorSpec,
    problem_of_streams,
    read_sequence,
    read_stream,
    read_tensor,
    repeated,
)
from popc_runtime.format.variables import (
    HyperParameter,
    TrainingSpec,
    VariableRole,
    VariableSpec,
    read_training,
    read_variable,
)
from popc_runtime.format.variants import (
    FitMode,
    FitSpec,
    ProgramSpec,
    problem_of_programs,
    read_fit,
    read_program,
)
from popc_runtime.ground.frozen import field, field_names, frozen, replace
from popc_runtime.ground.hints import Final, TypeAlias

__all__ = [
    "SCHEMA_HASH",
    "FloatCheck",
    "Manifest",
    "OptionSetting",
    "OptionValue",
    "Origin",
]

OptionValue: TypeAlias = "bool | int | float | str | tuple[OptionValue, ...]"

_LARGEST_SEED: Final = (1 << 64) - 1
_OPTION_DEPTH: Final = 4  # of lists within lists: a bound for what a file may hold
_SHA256_LENGTH: Final = 64  # hexadecimal digits
_HEXADECIMAL: Final = "0123456789abcdef"


class Origin(StrEnum):
    """The origin of an option's value."""

    DEFAULT = "default"
    FILE = "file"
    ENV = "env"
    API = "api"
    CLI = "cli"


class FloatCheck(StrEnum):
    """A floating-point exception that ends a run; `popc_runtime.device.checks` defines them."""

    DIV0 = "div0"
    INVALID = "invalid"
    OVERFLOW = "overflow"


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
        variants: The programs beside ``main``, whose inputs and outputs are other ones; what is
            said above of inputs, outputs, streams, sequences and memory holds for ``main``.
        fits: How inputs of shapes that no program has are cut or filled up for one.
        variables: What the host may read and write between runs.
        training: Set if the program trains.
        replicas: How many replicas of the program run together.
        identical_seeds: Whether replicas draw the same random numbers.
        seed: Of the random numbers, for those who load the archive without naming one.
        floating_point_checks: What is looked for after each instruction, unless the user of the
            archive says otherwise.
        index_limits: By integer input that is read as indices: less than this they must be.
        memory: Bytes by purpose.
        provenance: What the model says about its origin.
        operators: Operators that users define, which have to be registered before the archive is
            loaded, as ``domain.name:version``.
        host_calls: Functions that whoever loads the archive gives.
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
    variants: tuple[ProgramSpec, ...] = ()
    fits: tuple[FitSpec, ...] = ()
    variables: tuple[VariableSpec, ...] = ()
    training: TrainingSpec | None = None
    replicas: int = 1
    identical_seeds: bool = False
    seed: int = 0
    floating_point_checks: tuple[FloatCheck, ...] = ()
    index_limits: Mapping[str, int] = field(default_factory=dict[str, int])
    memory: Mapping[str, int] = field(default_factory=dict[str, int])
    provenance: Mapping[str, str] = field(default_factory=dict[str, str])
    operators: tuple[str, ...] = ()
    host_calls: tuple[HostCallSpec, ...] = ()
    format_version: tuple[int, int] = FORMAT_VERSION
    schema_hash: str = field(default_factory=lambda: SCHEMA_HASH)

    def to_dict(self) -> dict[str, Packable]:
        """The fields as maps, lists, strings and numbers."""
        return {name: _plain(getattr(self, name)) for name in field_names(type(self))}

    @classmethod
    def from_fields(cls, source: Fields) -> Manifest:
        """Read what `to_dict` wrote, checking every field.

        Raises:
            CorruptArchiveError: a field is missing, has another type or contradicts another.
        """
        major, minor = _version(source)
        manifest = cls(
            inputs=source.items("inputs", read_tensor),
            outputs=source.items("outputs", read_tensor),
            streams=source.items("streams", read_stream),
            programs=source.texts("programs"),
            options=source.items("options", _read_option),
            compiler_version=source.text("compiler_version"),
            model_sha256=source.text("model_sha256"),
            sequences=source.items("sequences", read_sequence),
            # Archives of format 1.2 have one program.
            variants=source.items("variants", read_program) if source.any("variants") else (),
            fits=source.items("fits", read_fit) if source.any("fits") else (),
            variables=source.items("variables", read_variable),
            training=read_training(source),
            replicas=source.integer("replicas", 1, MAX_REPLICAS),
            identical_seeds=source.flag("identical_seeds"),
            # Archives of earlier builds have none.
            seed=0 if source.any("seed") is None else source.integer("seed", high=_LARGEST_SEED),
            floating_point_checks=source.choices("floating_point_checks", FloatCheck),
            # Archives of earlier builds have none.
            index_limits=source.integer_map("index_limits") if source.any("index_limits") else {},
            memory=source.integer_map("memory"),
            provenance=source.text_map("provenance"),
            # Archives of format 1.3 need none.
            operators=source.texts("operators") if source.any("operators") else (),
            # Archives of earlier builds have none.
            host_calls=source.items("host_calls", read_host_call)
            if source.any("host_calls")
            else (),
            format_version=(major, minor),
            schema_hash=source.text("schema_hash"),
        )
        problem = manifest.problem()
        if problem:
            raise corrupt(problem)
        return manifest

    def of_program(self, name: str) -> Manifest:
        """The manifest of an archive that holds this program alone.

        Raises:
            KeyError: there is no such variant.
        """
        found = {variant.name: variant for variant in self.variants}[name]
        return replace(
            self,
            inputs=found.inputs,
            outputs=found.outputs,
            streams=found.streams,
            sequences=found.sequences,
            memory=found.memory,
            training=self.training if found.trains else None,
            variants=(),
            fits=(),
        )

    def problem(self) -> str:
        """The contradiction in the manifest, as a clause; empty if there is none."""
        checks = (
            ("program", self.programs),
            ("option", [option.name for option in self.options]),
            ("variable", [variable.name for variable in self.variables]),
        )
        for what, names in checks:
            twice = repeated(names)
            if twice is not None:
                return f"two {what}s have the name {twice!r}"
        if len(self.model_sha256) != _SHA256_LENGTH or self.model_sha256.strip(_HEXADECIMAL):
            return "the hash of the model is not a SHA-256"
        return (
            problem_of_streams(self.inputs, self.outputs, self.streams, self.sequences)
            or problem_of_programs(self.variants, self.programs)
            or self._problem_of_variables()
        )

    def _problem_of_variables(self) -> str:
        held = {variable.name for variable in self.variables}
        for number in self.training.hyper_parameters if self.training else ():
            if number.variable and number.variable not in held:
                return f"the optimizer refers to a missing variable {number.variable!r}"
        for variable in self.variables:
            if variable.rows and len(variable.rows) != self.replicas:
                rows = len(variable.rows)
                return f"variable {variable.name!r} has {rows} rows for {self.replicas} replicas"
            if set(variable.rows) != set(range(variable.parts)):
                return f"rows of variable {variable.name!r} are missing"
            there = prod(variable.shape) * variable.parts
            if variable.whole and (not variable.rows or prod(variable.whole) > there):
                return f"parts of variable {variable.name!r} are missing"
        return ""


_RECORDS: Final = (
    FitSpec,
    HostCallSpec,
    HyperParameter,
    OptionSetting,
    ProgramSpec,
    SequenceSpec,
    StreamSpec,
    TensorSpec,
    TrainingSpec,
    VariableSpec,
)


def _plain(value: object) -> Packable:
    """Dataclasses to maps, tuples to lists; enumerations are strings already."""
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, ATOMS):
        return value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, _RECORDS):  # there are thousands; to ask for a mapping takes long
        return {name: _plain(getattr(value, name)) for name in field_names(type(value))}
    assert isinstance(value, Mapping)
    return {str(key): _plain(item) for key, item in value.items()}


def _version(source: Fields) -> tuple[int, int]:
    numbers = source.integers("format_version", high=0xFFFF)
    if len(numbers) != 2:
        raise corrupt("its format version does not consist of two numbers")
    return numbers[0], numbers[1]


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
        *(Manifest, TensorSpec, StreamSpec, SequenceSpec, OptionSetting, ProgramSpec, FitSpec),
        *(VariableSpec, TrainingSpec, HyperParameter, HostCallSpec),
        *(
            DType,
            FitMode,
            FloatCheck,
            LabelKind,
            Origin,
            ReturnType,
            StreamDirection,
            SyntheticData,
            VariableRole,
        ),
        *(ProgramImage, Slot, Region, Packing, Instruction, RepeatBlock, IfBlock, CallBlock),
        *(AttributeKind, ItemKind),
    ),
    (*PROGRAM_COLUMNS, *LATER_COLUMNS),
)
