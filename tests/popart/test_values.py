"""Small objects: types of tensors, data flow, groups of replicas, enumerations, names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from popc import popart
from popc.popart import (
    AnchorReturnType,
    AnchorReturnTypeId,
    BatchSerializationTransformContext,
    CommGroup,
    CommGroupType,
    DataFlow,
    DataType,
    DeviceType,
    InputSettings,
    InputShapeInfo,
    ReplicatedStreamMode,
    SyncPattern,
    TensorInfo,
    VariableRetrievalMode,
    VariableSettings,
    popart_exception,
)
from popc.popart.groups import ReplicaGrouping
from popc.popart.prefixes import reserved_prefix_of


@pytest.mark.parametrize(
    ("arguments", "kind", "shape", "nbytes"),
    [
        (("FLOAT", [2, 3]), "FLOAT", [2, 3], 24),
        (("FLOAT16", "(2,3)"), "FLOAT16", [2, 3], 12),
        (("BOOL", "()"), "BOOL", [], 1),
        ((np.float64, [2]), "DOUBLE", [2], 16),
        ((np.dtype(np.uint8), (4,)), "UINT8", [4], 4),
        ((DataType.INT64, [1]), "INT64", [1], 8),
        ((np.zeros([3, 1], np.bool_),), "BOOL", [3, 1], 3),
    ],
)
def test_types_of_tensors(arguments: Any, kind: str, shape: list[int], nbytes: int) -> None:
    info = TensorInfo(*arguments)
    assert (info.data_type(), info.shape(), info.nbytes()) == (kind, shape, nbytes)
    assert info.dataType() is DataType[kind]
    assert info == TensorInfo(kind, shape) != TensorInfo(kind, [*shape, 2])
    assert (info.rank(), info.nelms()) == (len(shape), int(np.prod(shape)))
    element = np.dtype(info.data_type_lcase())
    assert info.strides() == list(np.zeros(shape, element).strides)


@pytest.mark.parametrize(
    ("shape", "message"),
    [("(2, 3)", "s contains a space"), ("[2,3]", "invalid string for shape")],
)
def test_texts_that_are_no_shapes(shape: str, message: str) -> None:
    with pytest.raises(popart_exception, match=message):
        TensorInfo("FLOAT", shape)


def test_arrays_of_some_types_are_no_data() -> None:
    assert popart.getTensorInfo(np.zeros([2], np.int8)).data_type() == "INT8"
    with pytest.raises(popart_exception, match="No numpy type float64 registered in map"):
        popart.getTensorInfo(np.zeros([2]))


def test_enumerations_are_numbers_of_their_own() -> None:
    assert (int(DataType.FLOAT), DataType(11), DataType.FLOAT.name) == (11, DataType.FLOAT, "FLOAT")
    number: object = 11
    assert number != DataType.FLOAT
    assert list(DataType.__members__)[:4] == ["UINT8", "INT8", "UINT16", "INT16"]
    both = BatchSerializationTransformContext
    assert both["Fwd"] is both["Forward"]
    assert list(both.__members__) == ["Forward", "Backward", "Fwd", "Bwd"]
    assert [str(kind) for kind in DeviceType] == ["ipu-model", "cpu", "ipu", "offline-ipu", "sim"]
    for pattern in SyncPattern:
        assert popart.syncPatternFromString(popart.syncPatternToString(pattern)) is pattern
    with pytest.raises(popart_exception, match="Unknown syncPattern setting"):
        popart.syncPatternFromString("nothing")


def test_reserved_prefixes() -> None:
    assert popart.reservedGradientPrefix() == "Gradient___"
    assert popart.reservedDefaultScaledLearningRate0Prefix() == "scaledLearningRate0___default___"
    assert popart.reservedSpecificAdamBeta1Prefix() == "adamBeta1___specific___"
    assert sum(name.startswith("reserved") for name in popart.__all__) == 50
    assert reserved_prefix_of("my_Gradient___x") == "Gradient___"
    assert reserved_prefix_of("x") == ""


def test_versions() -> None:
    assert popart.__version__ == ".".join(map(str, popart.versionNumber()))
    assert popart.versionString() == f"{popart.__version__} ({popart.packageHash()})"


# -- data flow -------------------------------------------------------------------------------------


def test_data_flow() -> None:
    every = AnchorReturnType("everyN", 2)
    assert (every.id(), every.rp()) == (AnchorReturnTypeId.EveryN, 2)
    flow = DataFlow(4, {"b": every, "a": AnchorReturnType("Final")})
    assert (flow.anchors(), flow.nAnchors(), flow.batchesPerStep()) == (["a", "b"], 2, 4)
    assert flow.isAnchored("a")
    assert flow.art("a").id() is AnchorReturnTypeId.Final
    assert DataFlow(1, ["x", "x"]).anchors() == ["x"]
    assert DataFlow(1, {}).anchors() == []


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: AnchorReturnType("X"), popart_exception, "Invalid anchor return type ID supplied"),
        (lambda: AnchorReturnType("EveryN"), popart_exception, "Must specify return period with"),
        (lambda: AnchorReturnType("EveryN", 0), popart_exception, "must be greater than zero"),
        (lambda: AnchorReturnType("All", 2), popart_exception, "should not be supplied"),
        (lambda: AnchorReturnType("All").rp(), popart_exception, "should not be supplied"),
        (lambda: DataFlow(0, {}), popart_exception, "'Batches per step' must be greater than zero"),
        (
            lambda: DataFlow(3, {"x": AnchorReturnType("EveryN", 2)}),
            popart_exception,
            "must be a factor of the number of batches per step",
        ),
        (
            lambda: DataFlow(1, {"x": AnchorReturnType("EveryN", 2)}),
            popart_exception,
            "must be <= to the number of batches per step",
        ),
        (lambda: DataFlow(1, {}).art("x"), popart_exception, "Tensor x is not an anchor"),
        (lambda: DataFlow(1, {"x": "All"}), TypeError, "incompatible constructor arguments"),
    ],
)
def test_data_flows_that_are_none(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


def test_inputs() -> None:
    broadcast = ReplicatedStreamMode.Broadcast
    assert InputSettings(relicatedStreamMode=broadcast).replicatedStreamMode() is broadcast
    infos = InputShapeInfo()
    infos.add("x", TensorInfo("FLOAT", [2]))
    assert infos.has("x")
    assert infos.get("x").shape() == [2]
    with pytest.raises(popart_exception, match="No input shape info for Tensor"):
        infos.get("y")


# -- groups ----------------------------------------------------------------------------------------

_GROUPS = [
    (CommGroup(), [[0, 1, 2, 3, 4, 5, 6, 7]]),
    (CommGroup(CommGroupType.Consecutive, 4), [[0, 1, 2, 3], [4, 5, 6, 7]]),
    (CommGroup(CommGroupType.Orthogonal, 4), [[0, 2, 4, 6], [1, 3, 5, 7]]),
    (CommGroup(CommGroupType.Ungrouped, 0), [[replica] for replica in range(8)]),
]


@pytest.mark.parametrize(("domain", "groups"), _GROUPS)
def test_groups_of_replicas(domain: CommGroup, groups: list[list[int]]) -> None:
    settings = VariableSettings(domain)
    assert settings.groups(8) == groups
    count = len(groups)
    assert (settings.getGroupCount(8), settings.getRealGroupSize(8)) == (count, 8 // count)
    shape = [3] if count == 1 else [count, 3]
    assert settings.shapeOnHost([3], 8) == shape
    assert settings.shapeOnReplica(shape, 8, "w") == [3]
    grouping = settings.getReplicaGrouping(8)
    for group, replicas in enumerate(groups):
        assert grouping.getReplicasAt(group) == replicas
        assert [grouping.getGroupAt(replica) for replica in replicas] == [group] * len(replicas)
        assert [grouping.getIndexInGroupAt(replica) for replica in replicas] == list(
            range(len(replicas))
        )
        if count in (2, 8):
            assert settings.getGroupRepresentative(group) == replicas[0]
    every = VariableSettings(domain, VariableRetrievalMode.AllReplicas)
    assert every.numReplicasReturningVariable(8) == 8
    assert settings.numReplicasReturningVariable(8) == count


def test_groups_with_a_stride() -> None:
    grouping = ReplicaGrouping(8, 2, 2)
    assert [grouping.getReplicasAt(group) for group in range(4)] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    for wrong in ((8, 0, 2), (8, 3, 2), (0,)):
        with pytest.raises(popart_exception):
            ReplicaGrouping(*wrong)
    with pytest.raises(popart.popart_internal_exception, match="VariableSettings had 1 errors!"):
        VariableSettings(CommGroup(CommGroupType.Consecutive, 0))
