"""PopART's enumerations: its values, in its order.

They behave as its native ones: ``int(X.A)``, ``X(number)``, ``X.A.name`` and ``X.__members__``; a
member is equal to no number and to no member of another enumeration.
"""

from __future__ import annotations

from enum import Enum

__all__ = [
    "AnchorReturnTypeId",
    "CollectiveOperator",
    "CommGroupType",
    "DataType",
    "DeviceConnectionType",
    "DeviceSelectionCriterion",
    "DeviceType",
    "ExchangeStrategy",
    "InitType",
    "IrSerializationFormat",
    "NativeEnum",
    "RecomputeType",
    "RecoveryAction",
    "ReductionType",
    "ReplicatedStreamMode",
    "ReplicatedTensorSharding",
    "ScatterReduction",
    "SyncPattern",
    "TensorRemapType",
    "TensorStorage",
    "TileSet",
    "VariableRetrievalMode",
]


class NativeEnum(Enum):
    """An enumeration whose members are also numbers where a number is asked for."""

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)


class AnchorReturnTypeId(NativeEnum):
    """The part of an anchored tensor that is returned."""

    Final = 0
    EveryN = 1
    All = 2
    Sum = 3


class CommGroupType(NativeEnum):
    """The forms of groups of replicas."""

    All = 0
    Consecutive = 1
    Orthogonal = 2
    Ungrouped = 3


class DataType(NativeEnum):
    """Element types, in PopART's numbering, which is not ONNX's."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    UINT32 = 8
    UINT64 = 9
    BOOL = 10
    FLOAT = 11
    FLOAT16 = 12
    BFLOAT16 = 13
    FLOAT8_143 = 2
    FLOAT8_152 = 3
    DOUBLE = 14
    COMPLEX64 = 15
    COMPLEX128 = 16
    STRING = 17
    UNDEFINED = 18


class DeviceConnectionType(NativeEnum):
    """The time when a device is attached to."""

    Always = 0
    OnDemand = 1
    Never = 2


class DeviceSelectionCriterion(NativeEnum):
    """The choice of a device among several."""

    First = 0
    Random = 1


class DeviceType(NativeEnum):
    """Kinds of devices."""

    IpuModel = 0
    Cpu = 1
    Ipu = 2
    OfflineIpu = 3
    Sim = 4

    def __str__(self) -> str:
        return ("ipu-model", "cpu", "ipu", "offline-ipu", "sim")[self.value]


class ExchangeStrategy(NativeEnum):
    """The time when data of a stream are transferred."""

    JustInTime = 0
    OverlapInnerLoop = 1
    OverlapLoops = 2
    OverlapStep = 3


class InitType(NativeEnum):
    """The content of a new tensor."""

    NoInit = 0
    Zero = 1


class IrSerializationFormat(NativeEnum):
    """Formats of a serialised IR."""

    JSON = 0


class RecomputeType(NativeEnum):
    """The decision if one op is computed once more."""

    Undefined = 0
    Checkpoint = 1
    Recompute = 2
    Recomputed = 3


class RecoveryAction(NativeEnum):
    """The action that makes a machine work again."""

    IPU_RESET = 0
    LINK_RESET = 1
    PARTITION_RESET = 2
    FULL_RESET = 3


class ReductionType(NativeEnum):
    """The reduction of a loss."""

    Mean = 1
    NoReduction = 2
    Sum = 0


class ReplicatedStreamMode(NativeEnum):
    """The choice if replicas get different data."""

    Replicate = 1
    Broadcast = 0


class ReplicatedTensorSharding(NativeEnum):
    """The choice if a tensor is divided among replicas."""

    Off = 0
    On = 1


class ScatterReduction(NativeEnum):
    """The combination of values at one index."""

    Sum = 0
    Max = 1
    Min = 2
    Mul = 3
    NoReduction = 4


class SyncPattern(NativeEnum):
    """The way in which devices wait for each other."""

    Full = 0
    SinglePipeline = 1
    ReplicaAndLadder = 2

    def __str__(self) -> str:
        return ("full", "singlePipeline", "replicaAndLadder")[self.value]


class TensorRemapType(NativeEnum):
    """The places where a tensor is laid out anew."""

    FwdBwdReverse = 0
    FwdBwd = 1
    Fwd = 2


class TensorStorage(NativeEnum):
    """The place where a tensor is kept."""

    OnChip = 0
    OffChip = 1


class TileSet(NativeEnum):
    """The tiles that do the work."""

    Compute = 0
    IO = 1


class VariableRetrievalMode(NativeEnum):
    """The values read back of a variable that replicas hold."""

    OnePerGroup = 0
    AllReduceReplicas = 1
    AllReplicas = 2


class CollectiveOperator(NativeEnum):
    """The operation that replicas compute together."""

    Add = 0
    Mean = 1
    Mul = 2
    Min = 3
    Max = 4
    LogicalAnd = 5
    LogicalOr = 6
    SquareAdd = 7
    Local = 8
