"""The server, and tensors, as metadata describes them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any, Final

from popc_runtime.format import TensorSpec
from popc_runtime.serving.tensors import datatype_of

__all__ = ["EXTENSIONS", "SERVER", "server_version", "tensor_facts"]

SERVER: Final = "popc"
EXTENSIONS: Final = ["binary_tensor_data", "model_repository"]


@cache
def server_version() -> str:
    """The version of the runtime."""
    return version("popc-runtime")


def tensor_facts(spec: TensorSpec) -> dict[str, Any]:
    """Name, datatype and shape; -1 is any size that there is."""
    return {"name": spec.name, "datatype": datatype_of(spec), "shape": list(spec.shape)}
