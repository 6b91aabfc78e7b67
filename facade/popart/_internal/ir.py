"""The classes of PopART's internal module that programs use."""

from popc.popart.debug import DebugContext, DebugInfo, SourceLocation
from popc.popart.enums import CollectiveOperator, CommGroupType, DataType
from popc.popart.groups import CommGroup, ReplicaGrouping
from popc.popart.tensorinfo import _TensorInfoCore as TensorInfo

__all__ = [
    "CollectiveOperator",
    "CommGroup",
    "CommGroupType",
    "DataType",
    "DebugContext",
    "DebugInfo",
    "ReplicaGrouping",
    "SourceLocation",
    "TensorInfo",
]
