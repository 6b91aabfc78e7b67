"""Models from files or bytes, and the check that ONNX itself makes of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from popc.frontend import LoadedModel
from popc.popart.dtypes import element_type
from popc.popart.errors import popart_exception
from popc.popart.inputs import InputShapeInfo
from popc_runtime.process.paths import read_regular

__all__ = ["LABELS_OUTSIDE", "check_model", "load_model", "read_for_session", "repack"]

# An attribute of losses, which popc takes for an error of the data otherwise.
LABELS_OUTSIDE: Final = "__labels_outside"
# A longer text is the model itself and no name of a file.
_LONGEST_NAME: Final = 10_000
_SHOWN: Final = 100  # bytes of it in a message
_MOST_CHECKED: Final = 1 << 28  # bytes of weights that the checker is given
_T: Final = onnx.TensorProto
# Types whose elements PopART copies, packed, into a field of wider numbers.
_PACKED: Final = {
    **dict.fromkeys((_T.INT8, _T.UINT8, _T.BOOL), 1),
    **dict.fromkeys((_T.INT16, _T.UINT16, _T.FLOAT16), 2),
    _T.UINT32: 4,
}


def load_model(modelProtoOrFilename: bytes | str) -> tuple[onnx.ModelProto, str]:
    """A model and the folder of its file ("" if it was given as bytes).

    Raises:
        popart_exception: it is neither a file that holds a model nor a model.
    """
    path = _path(modelProtoOrFilename)
    model = onnx.ModelProto()
    if path is not None:
        try:
            model.ParseFromString(read_regular(path, 1 << 31))
        except (DecodeError, OSError) as error:
            raise popart_exception(f"Failed to parse ModelProto from file {path}") from error
        repack(model)
        return model, str(path.absolute().parent)
    data = _bytes(modelProtoOrFilename)
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise _no_model(data) from error
    if not model.HasField("graph"):
        raise _no_model(data)
    repack(model)
    return model, ""


def _path(source: bytes | str) -> Path | None:
    if len(source) >= _LONGEST_NAME:
        return None
    try:
        path = Path(source.decode() if isinstance(source, bytes) else source)
        return path if path.is_file() else None
    except (OSError, UnicodeDecodeError, ValueError):
        return None


def _bytes(source: bytes | str) -> bytes:
    return source if isinstance(source, bytes) else source.encode("utf-8", "surrogateescape")


def _no_model(data: bytes) -> popart_exception:
    shown = data[:_SHOWN].decode("latin-1").encode("unicode_escape").decode()
    return popart_exception(f"Failed to load a ModelProto from the string '{shown}'")


def repack(model: onnx.ModelProto) -> None:
    """Give weights that PopART has packed into wider numbers the bytes that they are."""
    for tensor in model.graph.initializer:
        width = _PACKED.get(tensor.data_type)
        wide = tensor.data_type == _T.UINT32
        numbers = tensor.uint64_data if wide else tensor.int32_data
        count = int(np.prod(tensor.dims, dtype=np.int64))
        if width is None or count < 2 or len(numbers) >= count:
            continue
        step = 8 if wide else 4
        if len(numbers) == -(-count * width // step):
            data = np.array(numbers, "<u8" if wide else "<i4").tobytes()[: count * width]
            tensor.ClearField("uint64_data" if wide else "int32_data")
            tensor.raw_data = data


def read_for_session(
    modelProtoOrFilename: bytes | str, shapes: InputShapeInfo | None = None
) -> LoadedModel:
    """A model for `frontend.load_model`, with the files of its external data found.

    Locations are relative to the current folder, as in PopART, else to the folder of the model.
    Inputs have the types of ``shapes``, where it has any.

    Raises:
        popart_exception: there is no such model, or no such data.
    """
    model, folder = load_model(modelProtoOrFilename)
    _set_types(model, shapes or InputShapeInfo())
    if not model.graph.output and model.graph.node:
        # Anchors take the place of outputs, but a model without any is none to ONNX.
        model.graph.output.add(name=model.graph.node[-1].output[0])
    _allow_any_labels(model.graph)
    weights = [
        initializer
        for initializer in model.graph.initializer
        if initializer.data_location == _T.EXTERNAL
    ]
    paths = {id(initializer): _data_file(initializer, folder) for initializer in weights}
    root = os.path.commonpath([str(path.parent) for path in paths.values()]) if paths else folder
    for weight in weights:
        for item in weight.external_data:
            if item.key == "location":
                item.value = paths[id(weight)].relative_to(root).as_posix()
    return LoadedModel(model, root, sha256="")


def _allow_any_labels(graph: onnx.GraphProto) -> None:
    """Let labels that name no class have probability 0, as they have in PopART."""
    for node in graph.node:
        if node.op_type == "Nll" and all(known.name != LABELS_OUTSIDE for known in node.attribute):
            node.attribute.append(onnx.helper.make_attribute(LABELS_OUTSIDE, 1))
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _allow_any_labels(attribute.g)


def _set_types(model: onnx.ModelProto, shapes: InputShapeInfo) -> None:
    """Give inputs the types that a session was told.

    Raises:
        popart_exception: inputs are repeated, or leave dimensions open about which nothing is told.
    """
    seen: set[str] = set()
    weights = {weight.name for weight in model.graph.initializer}
    for info in model.graph.input:
        name = info.name
        if name in seen:
            raise popart_exception(f"Invalid ONNX Model : repeated name: ({name}) in input list")
        seen.add(name)
        if shapes.has(name):
            known = shapes.get(name)
            number = element_type(known.dataType()).onnx
            info.CopyFrom(onnx.helper.make_tensor_value_info(name, number, known.shape()))
        elif name not in weights:
            _require_shape(info)


def _require_shape(info: onnx.ValueInfoProto) -> None:
    name, kind = info.name, info.type.tensor_type
    if not kind.HasField("shape"):
        raise popart_exception(
            f"Could not find tensor {name} in InputShapeInfo, but no shape is specified in the "
            f"onnx model"
        )
    sizes = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim]
    if any(size < 0 for size in sizes):
        shown = " ".join(dim.dim_param or str(dim.dim_value) for dim in kind.shape.dim)
        raise popart_exception(
            f"Input tensor '{name}' must be specified in InputShapeInfo, as it has shape [{shown}]"
        )


def _data_file(weight: onnx.TensorProto, folder: str) -> Path:
    """The file that holds the data of a weight.

    Raises:
        popart_exception: there is none, or its place in it is none.
    """
    entries = {item.key: item.value for item in weight.external_data}
    location = entries.get("location", "")
    if not location:
        raise popart_exception(f"No location for the external data of tensor '{weight.name}'")
    for key, least in (("length", 1), ("offset", 0)):
        text = entries.get(key, str(least))
        if not text.lstrip("-").isdecimal() or int(text) < least:
            raise popart_exception(
                f"Invalid {key} {text} of the external data of tensor '{weight.name}'"
            )
    for path in (Path(location), Path(folder) / location):
        if path.is_file():
            return path.resolve()
    raise popart_exception(
        f"Unrecognised file name '{location}' of the external data of tensor '{weight.name}'"
    )


def check_model(model: onnx.ModelProto) -> None:
    """Let ONNX's checker look at a model; at large or external weights it does not look.

    Raises:
        RuntimeError: the model is not valid; the text is the checker's.
    """
    weights = model.graph.initializer
    nbytes = sum(len(tensor.raw_data) if tensor.HasField("raw_data") else 0 for tensor in weights)
    external = any(tensor.data_location == _T.EXTERNAL for tensor in weights)
    try:
        onnx.checker.check_model(_skeleton(model) if external or nbytes > _MOST_CHECKED else model)
    except onnx.checker.ValidationError as error:
        raise RuntimeError(str(error)) from error


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with inputs for its weights."""
    copy = onnx.ModelProto(ir_version=model.ir_version)
    copy.opset_import.extend(model.opset_import)
    copy.functions.extend(model.functions)
    graph, source = copy.graph, model.graph
    graph.name = source.name
    graph.input.extend(source.input)
    graph.output.extend(source.output)
    graph.node.extend(source.node)
    known = {info.name for info in source.input}
    for tensor in source.initializer:
        if tensor.name not in known:
            graph.input.append(
                onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    return copy
