"""ONNX file -> graph.  The only importer of onnx."""

from typing import TYPE_CHECKING

from popc.frontend.annotations import Annotations
from popc.frontend.bindings import Bindings, TrainingBindings, bound_values
from popc.frontend.budget import ImportLimits
from popc.frontend.conversion import Converter
from popc.frontend.given import (
    given_dims,
    given_model,
    given_names,
    given_shapes,
    given_values,
)
from popc.frontend.kept import first_values
from popc.frontend.load import LoadedModel, ModelSource, expose_tensors, load_model
from popc.frontend.model import ImportedModel, import_model
from popc.frontend.names import listed
from popc.frontend.recomputation import RecomputeRequests
from popc.frontend.tensors import tensor_of_file
from popc.frontend.walk import find_attribute, nested_graphs, number_of
from popc.frontend.words import TensorLabels
from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc.frontend.describe import describe_model
    from popc.frontend.growing import GrowingModel, InferredType
    from popc.frontend.inference import evaluation_model, for_inference
    from popc.frontend.unsigned_weights import with_unsigned_weights
    from popc.frontend.unsupported import UnsupportedOp, find_unsupported, is_importable
    from popc.frontend.weights import fill_weights, read_weights, stored_values, strip_weights

__all__ = [
    "Annotations",
    "Bindings",
    "Converter",
    "GrowingModel",
    "ImportLimits",
    "ImportedModel",
    "InferredType",
    "LoadedModel",
    "ModelSource",
    "RecomputeRequests",
    "TensorLabels",
    "TrainingBindings",
    "UnsupportedOp",
    "bound_values",
    "describe_model",
    "evaluation_model",
    "expose_tensors",
    "fill_weights",
    "find_attribute",
    "find_unsupported",
    "first_values",
    "for_inference",
    "given_dims",
    "given_model",
    "given_names",
    "given_shapes",
    "given_values",
    "import_model",
    "is_importable",
    "listed",
    "load_model",
    "nested_graphs",
    "number_of",
    "read_weights",
    "stored_values",
    "strip_weights",
    "tensor_of_file",
    "with_unsigned_weights",
]

# A usual compilation needs none of these.
__getattr__ = lazy_names(
    __name__,
    {
        "GrowingModel": "popc.frontend.growing",
        "InferredType": "popc.frontend.growing",
        "UnsupportedOp": "popc.frontend.unsupported",
        "describe_model": "popc.frontend.describe",
        "evaluation_model": "popc.frontend.inference",
        "fill_weights": "popc.frontend.weights",
        "find_unsupported": "popc.frontend.unsupported",
        "for_inference": "popc.frontend.inference",
        "is_importable": "popc.frontend.unsupported",
        "read_weights": "popc.frontend.weights",
        "stored_values": "popc.frontend.weights",
        "strip_weights": "popc.frontend.weights",
        "with_unsigned_weights": "popc.frontend.unsigned_weights",
    },
)
