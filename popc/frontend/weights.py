"""Weights in and out of ONNX models: what trained models are exported with and continued from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from popc.frontend import messages as onnx
from popc.frontend.load import LoadedModel, load_model
from popc.frontend.tensors import decode_tensor, is_supported, onnx_type_of
from popc.frontend.walk import nested_graphs
from popc.ir import TensorType
from popc_runtime.errors import CorruptArchiveError, ModelError
from popc_runtime.format import Array

__all__ = ["fill_weights", "read_weights", "stored_values", "strip_weights"]


def strip_weights(loaded: LoadedModel, names: Collection[str]) -> bytes:
    """The model without the data of the initializers in ``names``; it refers to no other file.

    Raises:
        ModelError: an external file is missing, or the rest is too large for one message.
    """
    model = onnx.ModelProto()
    model.CopyFrom(loaded.proto)
    for name, tensor in _weights(model.graph):
        if name in names:
            _set_data(tensor, b"")
        elif tensor.data_location == onnx.TensorProto.EXTERNAL:
            _, data = decode_tensor(tensor, loaded.base_dir)
            _set_data(tensor, _bytes_of(data))
    try:
        return bytes(model.SerializeToString(deterministic=True))
    except ValueError as error:
        raise ModelError(
            "the model without its trained weights is larger than 2 GB and cannot be kept"
        ) from error


def fill_weights(
    skeleton: bytes,
    values: Mapping[str, tuple[TensorType, Array]],
    extra: Mapping[str, tuple[TensorType, Array]],
) -> onnx.ModelProto:
    """The model with data for what `strip_weights` left out, and further initializers ``extra``.

    Raises:
        CorruptArchiveError: ``skeleton``, which comes from an archive, is no model.
        ModelError: a value is missing or has another type.
    """
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(skeleton)
    except DecodeError as error:
        raise CorruptArchiveError(
            "the model in the archive cannot be read", hint="compile the model again"
        ) from error
    for name, tensor in _weights(model.graph):
        if name in values:
            type_, data = values[name]
            if tuple(tensor.dims) != type_.shape or tensor.data_type != onnx_type_of(type_.dtype):
                wanted = f"{list(tensor.dims)} of ONNX type {tensor.data_type}"
                raise ModelError(f"weight {name!r} is {type_}, but the model has {wanted}")
            _set_data(tensor, _bytes_of(data))
    for name, (type_, data) in extra.items():
        added = model.graph.initializer.add()
        added.name, added.data_type = name, onnx_type_of(type_.dtype)
        added.dims.extend(type_.shape)
        added.raw_data = _bytes_of(data)
    return model


def read_weights(source: str) -> dict[str, tuple[TensorType, Array]]:
    """Types and data of a model's initializers by name, stored as `DType.storage` says.

    Raises:
        ModelError: it is not an ONNX model, or not sound.
        ResourceError: it cannot be read.
    """
    loaded = load_model(source)
    return {
        name: decode_tensor(tensor, loaded.base_dir)
        for name, tensor in _weights(loaded.proto.graph)
        if is_supported(tensor.data_type)
    }


def stored_values(
    loaded: LoadedModel, names: Collection[str]
) -> dict[str, tuple[TensorType, Array]]:
    """Types and data of those initializers of the main graph that have one of ``names``.

    Raises:
        ModelError: external data is missing.
    """
    return {
        tensor.name: decode_tensor(tensor, loaded.base_dir)
        for tensor in loaded.proto.graph.initializer
        if tensor.name in names and is_supported(tensor.data_type)
    }


def _weights(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TensorProto]]:
    """The initializers and the tensors of Constant nodes by name, also those of subgraphs."""
    yield from ((tensor.name, tensor) for tensor in graph.initializer)
    for node in graph.node:
        if node.op_type == "Constant":
            held = (attribute.t for attribute in node.attribute if attribute.HasField("t"))
            yield from ((node.output[0], tensor) for tensor in held)
        for nested in nested_graphs(node):
            yield from _weights(nested)


def _set_data(tensor: onnx.TensorProto, data: bytes) -> None:
    kept = (tensor.name, tensor.data_type, tuple(tensor.dims), tensor.doc_string)
    tensor.Clear()
    tensor.name, tensor.data_type, dims, tensor.doc_string = kept
    tensor.dims.extend(dims)
    tensor.raw_data = data


def _bytes_of(data: Array) -> bytes:
    return data.astype(data.dtype.newbyteorder("<"), copy=False).tobytes()
