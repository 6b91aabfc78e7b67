"""The intermediate representation: graphs of ops over typed tensors.  It knows no op by name."""

from typing import TYPE_CHECKING

from popc.ir.ending import dissolve
from popc.ir.graph import Graph, Op, Tensor
from popc.ir.names import free_name, names_of_graphs
from popc.ir.ordering import OrderedPair, Ordering, order_closely
from popc.ir.settings import CallSite, OpSettings, ProductCut, Recompute, StepPart
from popc.ir.types import AttributeMap, Shape, TensorKind, TensorType
from popc_runtime.format import VariableRole
from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc.ir.dot import format_dot
    from popc.ir.printer import format_graph
    from popc.ir.verifier import verify

__all__ = [
    "AttributeMap",
    "CallSite",
    "Graph",
    "Op",
    "OpSettings",
    "OrderedPair",
    "Ordering",
    "ProductCut",
    "Recompute",
    "Shape",
    "StepPart",
    "Tensor",
    "TensorKind",
    "TensorType",
    "VariableRole",
    "dissolve",
    "format_dot",
    "format_graph",
    "free_name",
    "names_of_graphs",
    "order_closely",
    "verify",
]

__getattr__ = lazy_names(
    __name__,
    {
        "format_dot": "popc.ir.dot",
        "format_graph": "popc.ir.printer",
        "verify": "popc.ir.verifier",
    },
)
