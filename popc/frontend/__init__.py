"""ONNX file -> graph.  The only importer of onnx."""

from popc.frontend.describe import UnsupportedOp, describe_model, find_unsupported
from popc.frontend.load import LoadedModel, expose_tensors, load_model
from popc.frontend.model import Bindings, ImportedModel, import_model

__all__ = [
    "Bindings",
    "ImportedModel",
    "LoadedModel",
    "UnsupportedOp",
    "describe_model",
    "expose_tensors",
    "find_unsupported",
    "import_model",
    "load_model",
]
