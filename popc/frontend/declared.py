"""Inputs as models declare them."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from popc.frontend import messages as onnx
from popc.frontend.tensors import dtype_name
from popc.ir import Graph
from popc_runtime.errors import UsageError
from popc_runtime.ground.frozen import frozen

__all__ = [
    "DeclaredInput",
    "Dim",
    "OpenDim",
    "OpenDimensionsError",
    "OpenInput",
    "misdeclared_outputs",
    "symbol_of",
]

# A fixed size, the name of a symbolic one, or None where nothing is known.
Dim: TypeAlias = "int | str | None"

# What exporters write where they know nothing: no two of these are the same dimension.
_PLACEHOLDER: Final = re.compile(r"\?|-1|[Nn]one|unk__\d+|unknown|\s*")


@frozen
class OpenDim:
    """A dimension without a size: the one of this name, or else of this axis of this input."""

    symbol: str
    input: str = ""
    axis: int = 0


@frozen
class OpenInput:
    """An input with open dimensions; the others have sizes."""

    name: str
    dims: tuple[int | OpenDim, ...]


class OpenDimensionsError(UsageError):
    """Nothing is wrong but that ``inputs`` have open dimensions."""

    inputs: tuple[OpenInput, ...] = ()


@frozen
class DeclaredInput:
    """An input as the model declares it; ``dims`` is ``None`` if it has no shape there."""

    name: str
    kind: str  # "tensor", "sequence" or "optional"
    type: onnx.TypeProto
    dims: tuple[Dim, ...] | None

    @classmethod
    def of(cls, info: onnx.ValueInfoProto) -> DeclaredInput:
        """The input that ``info`` declares."""
        kind = (info.type.WhichOneof("value") or "tensor_type").removesuffix("_type")
        dims = _dims(info.type.tensor_type) if kind == "tensor" else None
        return cls(info.name, kind, info.type, dims)

    def __str__(self) -> str:
        shape = "" if self.dims is None else f"[{','.join(str(d or '?') for d in self.dims)}]"
        return f"{dtype_name(self.type.tensor_type.elem_type)}{shape}"


def symbol_of(dim: onnx.TensorShapeProto.Dimension) -> str:
    """The name of an open dimension; "" if it is fixed, or has none but a placeholder."""
    name: str = dim.dim_param
    return "" if _PLACEHOLDER.fullmatch(name) else name


def misdeclared_outputs(model: onnx.GraphProto, graph: Graph) -> list[str]:
    """Notes about outputs that have another type than the model declares."""
    found = dict(zip(graph.output_names, graph.outputs, strict=True))
    notes: list[str] = []
    for info in model.output:
        tensor = found.get(info.name)
        declared = DeclaredInput.of(info)
        if tensor is None or declared.kind != "tensor":
            continue
        kind = info.type.tensor_type.elem_type
        is_text = kind == onnx.TensorProto.STRING  # whose elements are places of labels
        other_kind = kind != 0 and not is_text and dtype_name(kind) != tensor.type.dtype.value
        if other_kind or _contradicts(declared.dims, tensor.type.shape):
            notes.append(
                f"the model declares output {info.name!r} as {declared}, but computes {tensor.type}"
            )
    return notes


def _contradicts(declared: tuple[Dim, ...] | None, shape: tuple[int, ...]) -> bool:
    if declared is None:
        return False
    return len(declared) != len(shape) or any(
        isinstance(dim, int) and dim != size for dim, size in zip(declared, shape, strict=True)
    )


def _dims(type_: onnx.TypeProto.Tensor) -> tuple[Dim, ...] | None:
    if not type_.HasField("shape"):
        return None
    return tuple(_dim(dim) for dim in type_.shape.dim)


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value") and dim.dim_value >= 0:
        return dim.dim_value
    return symbol_of(dim) or None
