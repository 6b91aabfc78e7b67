"""The archive format: element types, programs and the container file."""

from __future__ import annotations

from popc_runtime.format.blobs import BlobInfo, BlobKind
from popc_runtime.format.buffers import aligned_bytes
from popc_runtime.format.codec import Codec, Compression
from popc_runtime.format.dtypes import Array, DType
from popc_runtime.format.header import FORMAT_VERSION, MAGIC, is_archive
from popc_runtime.format.host_calls import HostCallSpec, require_host_calls
from popc_runtime.format.labels import fill_labels, result_names
from popc_runtime.format.limits import (
    DEFAULT_LIMITS,
    LIMITS,
    MAX_RANK,
    MAX_REPLICAS,
    STRICT_LIMITS,
    Limits,
)
from popc_runtime.format.manifest import (
    SCHEMA_HASH,
    FloatCheck,
    Manifest,
    OptionSetting,
    OptionValue,
    Origin,
)
from popc_runtime.format.panels import (
    PANEL_ALIGNMENT,
    Panels,
    pack_panels,
    packed_bytes,
    unpack_panels,
)
from popc_runtime.format.program import (
    EVALUATION_PROGRAM,
    LOAD_PROGRAM,
    MAIN_PROGRAM,
    Attribute,
    Attributes,
    Block,
    CallBlock,
    IfBlock,
    Instruction,
    Item,
    Packing,
    ProgramImage,
    Region,
    RepeatBlock,
    Slot,
)
from popc_runtime.format.streams import (
    LabelKind,
    ReturnType,
    SequenceSpec,
    StreamDirection,
    StreamSpec,
    SyntheticData,
    TensorSpec,
)
from popc_runtime.format.text import format_attribute, format_program, instructions_of
from popc_runtime.format.validate import reach, validate_image, volume
from popc_runtime.format.variables import HyperParameter, TrainingSpec, VariableRole, VariableSpec
from popc_runtime.format.variants import FitMode, FitSpec, ProgramSpec, blob_of_program
from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc_runtime.format.decode import decode_program
    from popc_runtime.format.encode import encode_program, oldest_reader
    from popc_runtime.format.reader import ArchiveFile, probe
    from popc_runtime.format.sources import ArchiveSource
    from popc_runtime.format.writer import (
        Blob,
        KnownSizes,
        Piece,
        encode_archive,
        measure_archive,
        write_archive,
    )

__all__ = [
    "DEFAULT_LIMITS",
    "EVALUATION_PROGRAM",
    "FORMAT_VERSION",
    "LIMITS",
    "LOAD_PROGRAM",
    "MAGIC",
    "MAIN_PROGRAM",
    "MAX_RANK",
    "MAX_REPLICAS",
    "PANEL_ALIGNMENT",
    "SCHEMA_HASH",
    "STRICT_LIMITS",
    "ArchiveFile",
    "ArchiveSource",
    "Array",
    "Attribute",
    "Attributes",
    "Blob",
    "BlobInfo",
    "BlobKind",
    "Block",
    "CallBlock",
    "Codec",
    "Compression",
    "DType",
    "FitMode",
    "FitSpec",
    "FloatCheck",
    "HostCallSpec",
    "HyperParameter",
    "IfBlock",
    "Instruction",
    "Item",
    "KnownSizes",
    "LabelKind",
    "Limits",
    "Manifest",
    "OptionSetting",
    "OptionValue",
    "Origin",
    "Packing",
    "Panels",
    "Piece",
    "ProgramImage",
    "ProgramSpec",
    "Region",
    "RepeatBlock",
    "ReturnType",
    "SequenceSpec",
    "Slot",
    "StreamDirection",
    "StreamSpec",
    "SyntheticData",
    "TensorSpec",
    "TrainingSpec",
    "VariableRole",
    "VariableSpec",
    "aligned_bytes",
    "blob_of_program",
    "decode_program",
    "encode_archive",
    "encode_program",
    "fill_labels",
    "format_attribute",
    "format_program",
    "instructions_of",
    "is_archive",
    "measure_archive",
    "oldest_reader",
    "pack_panels",
    "packed_bytes",
    "probe",
    "reach",
    "require_host_calls",
    "result_names",
    "unpack_panels",
    "validate_image",
    "volume",
    "write_archive",
]

# Only the compiler writes archives: what loads them need not wait for this.
__getattr__ = lazy_names(
    __name__,
    {
        "ArchiveFile": "popc_runtime.format.reader",
        "ArchiveSource": "popc_runtime.format.sources",
        "decode_program": "popc_runtime.format.decode",
        "probe": "popc_runtime.format.reader",
        "Blob": "popc_runtime.format.writer",
        "KnownSizes": "popc_runtime.format.writer",
        "Piece": "popc_runtime.format.writer",
        "encode_archive": "popc_runtime.format.writer",
        "encode_program": "popc_runtime.format.encode",
        "measure_archive": "popc_runtime.format.writer",
        "oldest_reader": "popc_runtime.format.encode",
        "write_archive": "popc_runtime.format.writer",
    },
)
