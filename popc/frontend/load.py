"""Read an ONNX model and make sure that it is one.

Memory: the bytes of the file are released once they are parsed, unless large weights stay in them;
tensors in external files are mapped, not read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]

from popc.folders import model_file
from popc.frontend import messages as onnx
from popc.frontend.conversion import NO_CONVERTER, Converter
from popc.frontend.declared import symbol_of
from popc.frontend.hosts import recognise_model
from popc.frontend.kept_weights import KeptModel, read_without_weights
from popc.frontend.names import default_domain_name
from popc.frontend.structure import assumed_opset, check_structure, sort_nodes
from popc.frontend.tensors import decode_tensor, dtype_from_onnx
from popc.frontend.texts import read_text, unpacked
from popc.frontend.walk import all_nodes, nested_graphs, node_name
from popc_runtime.errors import ModelError, ResourceError, UsageError
from popc_runtime.format import MAGIC, Array
from popc_runtime.format.digests import sha256
from popc_runtime.format.workers import begin_call
from popc_runtime.ground.frozen import frozen, replace
from popc_runtime.process.paths import read_regular, usable_path

__all__ = ["LoadedModel", "ModelSource", "expose_tensors", "load_model"]

# The path of a model, its bytes, the message itself, or what `load_model` made of one.
ModelSource: TypeAlias = (
    "str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto | LoadedModel"
)

_MOST_BYTES: Final = 4 << 30  # of a file: messages have 2 GB at most, texts are longer

# How files start that people take for ONNX models, and what they are.
_OTHER_FORMATS: Final = (
    (MAGIC, "a popc archive, which is compiled already"),
    (b"version https://git-lfs", "a Git LFS pointer: `git lfs pull` fetches the model"),
    (b"PK\x03\x04", "a zip archive (PyTorch saves such files)"),
    (b"\x89HDF", "an HDF5 file (Keras saves such files)"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"<", "an HTML or XML page"),
)


@frozen
class LoadedModel:
    """A sound ONNX model.

    Attributes:
        proto: The model; its nodes are sorted topologically.
        base_dir: The folder that external data is relative to; "" if the model is not a file.
        sha256: Of the model file (without external data), in hexadecimal.
        file: The name of that file; "" if the model is not a file.
        notes: What the user should know about the model, although it can be read.
        kept: The bytes of the file, if large weights have been left in there.
    """

    proto: onnx.ModelProto
    base_dir: str
    sha256: str
    file: str = ""
    notes: tuple[str, ...] = ()
    kept: Array | None = field(default=None, repr=False, compare=False)

    @property
    def provenance(self) -> dict[str, str]:
        """The origin of the model, as it says itself."""
        proto = self.proto
        facts = {
            "domain": proto.domain,
            "file": self.file,
            "graph": proto.graph.name,
            "ir_version": str(proto.ir_version),
            "model_version": str(proto.model_version) if proto.model_version else "",
            "opsets": ", ".join(f"{domain or 'ai.onnx'} {v}" for domain, v in self.opsets.items()),
            "producer": f"{proto.producer_name} {proto.producer_version}".strip(),
        }
        facts |= {f"metadata.{item.key}": item.value for item in proto.metadata_props}
        return {key: value for key, value in facts.items() if value}

    @property
    def opsets(self) -> dict[str, int]:
        """Opset versions by domain ("" for ai.onnx)."""
        return {default_domain_name(item.domain): item.version for item in self.proto.opset_import}

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The inputs that are not weights (before IR version 4 weights were listed too)."""
        weights = {tensor.name for tensor in self.proto.graph.initializer}
        weights.update(tensor.values.name for tensor in self.proto.graph.sparse_initializer)
        return [info for info in self.proto.graph.input if info.name not in weights]

    def external_files(self) -> dict[str, str]:
        """The paths of the files of external data, by their place in the model's folder.

        Raises:
            ModelError: one is missing, or outside of the folder.
        """
        from popc.frontend.external import external_files

        files = external_files(self.proto, self.base_dir)
        return {
            place: path for place, path in files.items() if self.kept is None or place != self.file
        }

    def leading_dims(self) -> dict[str, str]:
        """Inputs whose first dimension is open, with its name ("" if it has none)."""
        shapes = {info.name: info.type.tensor_type.shape.dim for info in self.inputs}
        return {
            name: symbol_of(shape[0])
            for name, shape in shapes.items()
            if shape and not shape[0].HasField("dim_value")
        }

    def fixed_dims(self, name: str) -> tuple[int | None, ...]:
        """The dimensions of an input; ``None`` for those that are open."""
        (info,) = (info for info in self.inputs if info.name == name)
        shape = info.type.tensor_type.shape.dim
        return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in shape)

    def places_of(self, dimension: str) -> dict[str, int]:
        """The inputs that have the symbolic dimension of this name, and its axis."""
        return {
            info.name: axis
            for info in self.inputs
            for axis, dim in enumerate(info.type.tensor_type.shape.dim)
            if dim.dim_param == dimension
        }

    def tensor_names(self) -> tuple[str, ...]:
        """Everything that can be asked for as an output: results of nodes, and the outputs."""
        names = [name for node in self.proto.graph.node for name in node.output if name]
        return tuple(dict.fromkeys([*names, *(info.name for info in self.proto.graph.output)]))

    def weight_names(self) -> tuple[str, ...]:
        """Everything that may be trained: initializers, also of nested graphs, and constants."""
        nodes = tuple(all_nodes(self.proto.graph.node))
        graphs = [self.proto.graph, *(graph for node in nodes for graph in nested_graphs(node))]
        names = [tensor.name for graph in graphs for tensor in graph.initializer]
        names += [tensor.values.name for graph in graphs for tensor in graph.sparse_initializer]
        names += [node.output[0] for node in nodes if node.op_type == "Constant"]
        return tuple(dict.fromkeys(names))

    def producer_of(self, name: str) -> str:
        """The node that computes ``name``; "" for inputs and weights."""
        nodes = (node for node in self.proto.graph.node if name in node.output)
        return next((node_name(node) for node in nodes), "")

    def as_inputs(self, values: Mapping[str, Any]) -> dict[str, Array]:
        """``values`` of tensor inputs, in the element types that the model declares."""
        return {
            info.name: np.asarray(
                values[info.name], dtype_from_onnx(info.type.tensor_type.elem_type).storage
            )
            for info in self.proto.graph.input
            if info.name in values and info.type.HasField("tensor_type")
        }


def load_model(
    source: ModelSource,
    base_dir: str = "",
    converter: Converter = NO_CONVERTER,
    *,
    keeps_weights: bool = False,
) -> LoadedModel:
    """The model in a file, in bytes or in a message (which is not changed).

    Args:
        source: The model.
        base_dir: The folder of external data, if the model is not a file.
        converter: Makes ONNX models of files and folders of other frameworks.
        keeps_weights: Whether large weights may stay outside of the message, as external data.

    Raises:
        ModelError: it is not an ONNX model, is damaged, or is not sound.
        UsageError: ``source`` is nothing that could be a model.
        ResourceError: the file cannot be read.
    """
    if isinstance(source, LoadedModel):
        return source
    if isinstance(source, onnx.ModelProto):
        return _checked(source, _digest_of(source), base_dir, owned=False)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _checked(*_parse_and_hash(bytes(source)), base_dir, owned=True)
    if not isinstance(source, (str, os.PathLike)):
        raise UsageError(
            f"a model is not an object of type {type(source).__name__}",
            hint="pass a path, bytes, a file opened for reading bytes, or an onnx.ModelProto",
        )
    path = Path(usable_path(model_file(source)))
    foreign = recognise_model(path)
    if foreign is not None:
        path = converter.convert(foreign)
    kept = _without_weights(path) if keeps_weights else None
    proto, digest = _read(path) if kept is None else (kept.proto, kept.sha256)
    loaded = _checked(proto, digest, str(path.absolute().parent), owned=True)
    return replace(loaded, file=path.name, kept=None if kept is None else kept.content)


def _checked(proto: onnx.ModelProto, digest: str, base_dir: str, *, owned: bool) -> LoadedModel:
    check_structure(proto)
    opset = assumed_opset(proto)
    if not opset:
        return LoadedModel(sort_nodes(proto, owned=owned), base_dir, digest)
    if not owned:
        proto, given = onnx.ModelProto(), proto
        proto.CopyFrom(given)
    proto.opset_import.add(domain="", version=opset)
    note = (
        f"the model does not say which opset of ai.onnx its nodes belong to: {opset} is assumed, "
        f"the newest of IR version {proto.ir_version}"
    )
    return LoadedModel(sort_nodes(proto, owned=True), base_dir, digest, notes=(note,))


def _digest_of(proto: onnx.ModelProto) -> str:
    try:
        return _digest_of_bytes(proto.SerializeToString(deterministic=True))
    except (ValueError, EncodeError) as error:
        raise ModelError(
            "the model is larger than 2 GB, too large to pass as a message",
            hint="save it with external data and give the path of the file",
        ) from error


def _without_weights(path: Path) -> KeptModel | None:
    try:
        return read_without_weights(path)
    except OSError:
        return None  # who reads it as a whole says why


def _read(path: Path) -> tuple[onnx.ModelProto, str]:
    """The message in a file and the hash of the file; its bytes are gone when this returns."""
    try:
        data = read_regular(path, _MOST_BYTES)
    except IsADirectoryError:
        raise ModelError(f"{path} is a folder without ONNX models") from None
    except OSError as error:
        raise ResourceError(f"cannot read {path}: {error.strerror}") from error
    return _parse_and_hash(data)


def _parse_and_hash(data: bytes) -> tuple[onnx.ModelProto, str]:
    """The message in a file, and the hash of the file, which another thread computes meanwhile."""
    digest = begin_call(_digest_of_bytes, data)
    return _parse(data), digest()


def _digest_of_bytes(data: bytes) -> str:
    found: str = sha256(data).hexdigest()
    return found


def _parse(data: bytes) -> onnx.ModelProto:
    data = unpacked(data)
    if not data:
        raise ModelError("not an ONNX model: it is empty")
    described = read_text(data)
    if described is not None:
        return described
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise _not_onnx(data) from error
    if not proto.HasField("graph"):
        raise _not_onnx(data)
    return proto


def _not_onnx(data: bytes) -> ModelError:
    for start, what in _OTHER_FORMATS:
        if data.startswith(start):
            return ModelError(f"not an ONNX model: it is {what}")
    if data[4:8] == b"TFL3":
        return ModelError("not an ONNX model: it is a TensorFlow Lite file")
    if data[4:8] == b"ORTM":
        return ModelError(
            "not an ONNX model: it is in onnxruntime's own format",
            hint="compile the .onnx file that it was made from",
        )
    if _is_text(data[:1024]):
        return ModelError("not an ONNX model: it is a text file")
    if data[0] == 0x08:  # how ONNX files start: field 1, the IR version
        return ModelError(
            "the ONNX model is damaged or truncated, or its subgraphs are nested too deep",
            hint="compare its size or hash with the original",
        )
    return ModelError("not an ONNX model: it cannot be parsed as one")


def _is_text(data: bytes) -> bool:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return all(char.isprintable() or char.isspace() for char in text)


def expose_tensors(model: LoadedModel, names: Sequence[str]) -> bytes:
    """The model with the tensors ``names`` as its only outputs, external data included.

    It is for another runtime, which is to compute products of bytes exactly.

    Raises:
        ResourceError: that is too large for one message.
    """
    from popc.frontend.unsigned_weights import with_unsigned_weights

    copy = onnx.ModelProto()
    copy.CopyFrom(model.proto)
    kept = {info.name: info for info in copy.graph.output}
    outputs = [kept.get(name) or onnx.ValueInfoProto(name=name) for name in names]
    del copy.graph.output[:]
    copy.graph.output.extend(outputs)
    for tensor in copy.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            data = decode_tensor(tensor, model.base_dir)[1].tobytes()
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = data
    try:
        serialised: bytes = with_unsigned_weights(copy).SerializeToString()
    except (ValueError, EncodeError) as error:
        raise ResourceError("the model with its weights is over 2 GB, too large to copy") from error
    return serialised
