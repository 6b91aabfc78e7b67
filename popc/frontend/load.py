"""Read an ONNX model."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from popc.frontend.importer import node_name
from popc.frontend.tensors import dtype_from_onnx
from popc_runtime.errors import ModelError
from popc_runtime.format import Array

__all__ = ["LoadedModel", "expose_tensors", "load_model"]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, the folder of its external data, and the hash of its file."""

    proto: onnx.ModelProto
    base_dir: str
    sha256: str

    @property
    def provenance(self) -> Mapping[str, str]:
        """What the model says about its origin."""
        return {
            "graph": self.proto.graph.name,
            "producer": " ".join(
                part for part in (self.proto.producer_name, self.proto.producer_version) if part
            ),
        }

    def tensor_names(self) -> tuple[str, ...]:
        """Names of the tensors that the nodes of the main graph produce, in order."""
        return tuple(
            name for node in self.proto.graph.node for name in node.output if name
        )

    def producer_of(self, name: str) -> str:
        """The node that produces a tensor of the main graph; "" if none does."""
        for node in self.proto.graph.node:
            if name in node.output:
                return node_name(node)
        return ""

    def as_inputs(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """``values`` in the element types of the model's inputs."""
        types = {info.name: info.type.tensor_type.elem_type for info in self.proto.graph.input}
        return {
            name: np.asarray(value, dtype_from_onnx(types[name]).storage)
            for name, value in values.items()
        }


def load_model(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> LoadedModel:
    """Read a model from a file, from bytes, or take the message itself.

    Raises:
        ModelError: this is not an ONNX model.
    """
    if isinstance(source, onnx.ModelProto):
        digest = hashlib.sha256(source.SerializeToString(deterministic=True)).hexdigest()
        return LoadedModel(source, "", digest)
    if isinstance(source, bytes):
        return LoadedModel(_parse(source), "", hashlib.sha256(source).hexdigest())
    path = Path(source)
    data = path.read_bytes()
    return LoadedModel(_parse(data), str(path.parent), hashlib.sha256(data).hexdigest())


def _parse(data: bytes) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:
        raise ModelError(f"this is not an ONNX model: {error}") from error
    return model


def expose_tensors(model: LoadedModel, names: Sequence[str]) -> bytes:
    """The model with the tensors ``names`` as its only outputs, serialised."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model.proto)
    kept = {info.name: info for info in copy.graph.output if info.name in names}
    del copy.graph.output[:]
    copy.graph.output.extend(kept.get(name) or onnx.ValueInfoProto(name=name) for name in names)
    return copy.SerializeToString()
