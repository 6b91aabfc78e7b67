"""Optimizers, options, patterns and devices."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from popc import popart
from popc.options.dialects.popart import OPTIONS as MAPPED
from popc.options.dialects.popart_patterns import BUILT_IN
from popc.options.dialects.popart_patterns import PATTERNS as SWITCHED
from popc.popart import (
    SGD,
    Adam,
    Adaptive,
    AdaptiveMode,
    ClipNormSettings,
    ConstSGD,
    DeviceConnectionType,
    DeviceManager,
    OptimizerValue,
    Patterns,
    PatternsLevel,
    SessionOptions,
    popart_exception,
    popart_runtime_error,
)
from popc.popart.optimizer_replacement import require_replacement
from popc.popart.options_table import OPTIONS, Treatment
from popc.popart.patterns import PATTERNS

# -- optimizers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "getter", "value"),
    [
        (SGD({}), "learningRates", 0.1),
        (SGD({"defaultMomentum": (0.5, False)}), "momentums", 0.5),
        (SGD({}), "velocityScalings", 1.0),
        (ConstSGD(0.2, 0.3), "weightDecays", 0.3),
        (Adam({}), "beta1s", 0.9),
        (Adam({}), "beta2s", 0.999),
        (Adam({"maxWeightNorm": (3, True)}), "maxWeightNorms", 3.0),
        (Adaptive({}), "alphas", 0.99),
        (Adaptive({}), "epss", 1e-6),
    ],
)
def test_defaults_in_single_precision(optimizer: Any, getter: str, value: float) -> None:
    default = getattr(optimizer, getter)().getDefault()
    assert default.val() == float(np.float32(value))
    assert optimizer.getLossScalingVal() == 1.0


def test_values_of_single_weights() -> None:
    optimizer = SGD({"defaultLearningRate": (0.5, False), "defaultMomentum": (0.25, True)})
    optimizer.insertSpecific("w", {"learningRate": (0.125, True)})
    rates = optimizer.learningRates()
    assert rates.get("w") == OptimizerValue(0.125, True)  # noqa: FBT003 - PopART's order
    assert rates.get("v") == rates.getDefault() == OptimizerValue((0.5, False))
    assert optimizer.momentums().get("w").val() == 0.25
    with pytest.raises(popart_exception, match="Attempt to insert specific value"):
        optimizer.insertSpecific("w", {})


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: SGD({1: (1, True)}), popart_exception, "A key in the optimizer map input must be"),
        (lambda: SGD({"lossScaling": 1}), popart_exception, "must be a py::tuple"),
        (lambda: SGD({"lossScaling": ("a", True)}), RuntimeError, "Unable to cast"),
        (lambda: SGD({"rate": (1, True)}), popart_exception, "Invalid SGD key, rate, the allowed"),
        (lambda: SGD({"lossScaling": (0, True)}), popart_exception, "Loss scaling cannot be 0"),
        (
            lambda: ConstSGD(0.0),
            popart_exception,
            "Constant, zero learning rate in SGD",
        ),
        (lambda: ConstSGD(-1), popart_exception, r"Negative learning rate \(-1\) in SGD"),
        (
            lambda: Adam({"defaultEps": (0, True)}),
            popart_exception,
            r"Non-positive eps \(0\) in Adam is not supported",
        ),
        (
            lambda: Adaptive({}, AdaptiveMode.AdaGrad, rmsprop_tf_variant=True),
            popart_exception,
            "AdaGrad",
        ),
        (
            lambda: SGD({}).insertSpecific("w", {"beta1": (1, True)}),
            popart_exception,
            "Invalid key beta1 in SGD::insertSpecific. Permitted keys are",
        ),
        (lambda: SGD([]), TypeError, "incompatible constructor arguments"),
    ],
)
def test_optimizers_that_are_refused(make: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        make()


_RATE = "defaultLearningRate"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (SGD({_RATE: (0.1, False)}), SGD({_RATE: (0.2, False)}), ""),
        (ConstSGD(0.1), ConstSGD(0.2), "Values are constant but do not match"),
        (ConstSGD(0.1), SGD({_RATE: (0.1, False)}), "Can not replace a constant value with a non"),
        (ConstSGD(0.1), Adam({}), "Can not replace optimizer of type SGD with new optimizer of"),
        (
            ConstSGD(0.1),
            ConstSGD(0.1, clip_norm_settings=[ClipNormSettings.clipAllWeights(1)]),
            "Clip norm settings do not match",
        ),
        (
            SGD({"defaultDampening": (0.1, True)}),
            SGD({"defaultDampening": (0.2, True)}),
            "Problem with dampenings",
        ),
        (Adaptive({}), Adaptive({}, AdaptiveMode.AdaDelta), "Adaptive modes do not match"),
    ],
)
def test_replacements(old: Any, new: Any, message: str) -> None:
    if not message:
        require_replacement(old, new)
        return
    with pytest.raises(popart_runtime_error, match=f"not a valid replacement. .*{message}"):
        require_replacement(old, new)


# -- options ---------------------------------------------------------------------------------------


def test_every_mapped_option_is_one_of_popc() -> None:
    records = {name.partition(".")[0] for name in MAPPED}
    switches = {"enableGradientAccumulation", "enableReplicatedGraphs"}
    for row in OPTIONS.values():
        if row.treatment is Treatment.MAPPED:
            assert row.name in records | switches
            # A reservation may follow.
            assert row.why.startswith(MAPPED.get(row.name, row.why))
        assert row.why


def test_defaults_ask_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POPART_CACHE_DIR", "POPXL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    options = SessionOptions()
    assert options.changed() == {}
    options.require_supported()
    monkeypatch.setenv("POPART_CACHE_DIR", "somewhere")
    assert (SessionOptions().enableEngineCaching, SessionOptions().cachePath) == (True, "somewhere")


def test_containers_and_records_are_live() -> None:
    options = SessionOptions()
    options.engineOptions["a"] = "1"
    options.engineOptions.update(b="2")
    del options.engineOptions["a"]
    options.batchSerializationSettings.factor = 4
    options.dotChecks.add("Final")
    options.bufferingDepthMap = {"x": 2}
    kept = copy.deepcopy(options)
    options.engineOptions["c"] = "3"
    assert dict(kept.engineOptions) == dict(kept._engineOptions) == {"b": "2"}
    assert (kept.batchSerializationSettings.factor, kept.dotChecks) == (4, {"Final"})
    assert kept.prefetchBufferingDepthMap == {"x": 2}
    assert set(kept.changed()) == {
        *("batchSerializationSettings", "bufferingDepthMap", "dotChecks", "engineOptions"),
    }


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("nothing", 1, AttributeError),
        ("accumulationFactor", 1.5, TypeError),
        ("defaultBufferingDepth", -1, TypeError),
        ("enableOutlining", "yes", TypeError),
        ("virtualGraphMode", 1, TypeError),
        ("dotChecks", ["Final"], TypeError),
        ("engineOptions", {"a": 1}, TypeError),
    ],
)
def test_values_that_are_refused(name: str, value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=name):
        setattr(SessionOptions(), name, value)


def test_numbers_are_converted() -> None:
    options = SessionOptions()
    options.accumulationFactor = True
    options.outlineThreshold = 2
    setattr(options, "enablePipelining", np.int64(1))  # noqa: B010 - its type is not a bool
    setattr(options, "numIOTiles", popart.NumIOTiles(32))  # noqa: B010 - nor this an int
    assert (options.accumulationFactor, options.outlineThreshold) == (1, 2.0)
    assert (options.enablePipelining, options.numIOTiles) == (True, 32)


def test_what_popc_cannot_do_is_refused_at_once() -> None:
    options = SessionOptions()
    options.customCodelets = ["a.cpp"]
    options.createImplicitPipeliningFwdOnlyProgram = True
    with pytest.raises(popart_exception, match=r"createImplicit.* \(.*customCodelets \("):
        options.require_supported()


def test_replication_over_processes() -> None:
    options = SessionOptions()
    options.replicatedGraphCount = 4
    assert options.getGlobalReplicationFactor() == 1
    options.enableReplicatedGraphs = True
    assert options.getGlobalReplicationFactor() == 4


# -- patterns --------------------------------------------------------------------------------------


def test_every_pattern_is_known_to_popc() -> None:
    assert set(PATTERNS) <= {*SWITCHED, *BUILT_IN}


def test_levels_of_patterns() -> None:
    by_name = {level: Patterns(level) for level in PatternsLevel}
    assert by_name[PatternsLevel.All].isPatternEnabled("SplitGather")
    assert not by_name[PatternsLevel.Default].isPatternEnabled("SplitGather")
    assert by_name[PatternsLevel.Default].InPlace
    assert not by_name[PatternsLevel.Minimal].InPlace
    assert not by_name[PatternsLevel.Minimal].OpToIdentity
    assert by_name[PatternsLevel.Minimal].MatMulOp
    with pytest.raises(popart_exception, match="Pattern 'AbsGradOp' must be enabled"):
        by_name[PatternsLevel.NoPatterns].require_mandatory()
    by_name[PatternsLevel.NoPatterns].enableRuntimeAsserts(False).require_mandatory()  # noqa: FBT003


def test_patterns_by_name() -> None:
    patterns = Patterns(["PreUniRepl", "InPlace"])
    assert (patterns.PreUniRepl, patterns.PostNRepl, patterns.InPlace) == (True, False, True)
    assert repr(patterns) == "PreUniRepl "
    patterns.SoftMaxGradDirect = True
    assert patterns.isPatternEnabled("SoftmaxGradDirect")
    before = patterns.enablePattern("SoftmaxGradDirect", False)  # noqa: FBT003 - PopART's order
    patterns.InPlace = False
    assert before.InPlace
    with pytest.raises(AttributeError, match="SplitGather"):
        patterns.SplitGather = True


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Patterns(["X"]), "Unknown pattern X"),
        (lambda: Patterns(["Inplace"]), "Unknown pattern Inplace, did you mean InPlace?"),
        (lambda: Patterns().isPatternEnabled("InPlace"), "Unknown pattern InPlace."),
        (lambda: Patterns().enablePattern("CosGradOp", False), "'CosGradOp' is mandatory and"),  # noqa: FBT003
        (lambda: setattr(Patterns(), "MatMulOp", False), "'MatMulOp' is mandatory"),
    ],
)
def test_patterns_that_are_refused(call: Any, message: str) -> None:
    with pytest.raises(popart_exception, match=message):
        call()


# -- devices ---------------------------------------------------------------------------------------


def test_emulated_hardware_runs_out() -> None:
    manager = DeviceManager()
    assert [len(manager.enumerateDevices(numIpus=size)) for size in (1, 2, 4, 8, 16, 3)] == [
        *(16, 8, 4, 2, 1, 0),
    ]
    with manager.acquireAvailableDevice(16) as everything:
        assert everything.isAttached
        assert len(everything.driverIds) == 16
        assert manager.tryAcquireAvailableDevice(1) is None
        assert manager.tryAcquireDeviceById(3) is None
        later = manager.acquireAvailableDevice(2, connectionType=DeviceConnectionType.OnDemand)
        assert not later.attach()
    assert later.attach()
    later.detach()


def test_a_device_that_nobody_holds_is_free() -> None:
    manager = DeviceManager()
    device = manager.acquireDeviceById(5)
    assert (device.id, device.numIpus, device.version.count(".")) == (5, 1, 2)
    assert manager.tryAcquireDeviceById(5) is None
    del device
    again = manager.acquireDeviceById(5)
    again.detach()
    assert again.version == "<unknown-ipu-unattached>"


@pytest.mark.parametrize(
    ("make", "text", "kind", "version", "ipus", "tiles", "exports"),
    [
        (lambda m: m.createCpuDevice(), "cpu", "Always", "<unknown-cpu>", 1, 1, False),
        (
            lambda m: m.createIpuModelDevice({"numIPUs": 2, "compileIPUCode": True}),
            *("ipu-model", "Always", "ipu2", 2, 4, False),
        ),
        (
            lambda m: m.createSimDevice({"tilesPerIPU": "8"}),
            *("sim", "Always", "<unknown-sim>", 1, 8, False),
        ),
        (
            lambda m: m.createOfflineIPUDevice({"ipuVersion": "ipu21"}),
            *("offline-ipu", "Never", "<offline-ipu>", 1, 1472, True),
        ),
    ],
)
def test_other_devices(
    make: Any,
    text: str,
    kind: str,
    version: str,
    ipus: int,
    tiles: int,
    exports: bool,  # noqa: FBT001
) -> None:
    device = make(DeviceManager())
    assert (str(device.type), device.connectionType.name, device.version) == (text, kind, version)
    assert (device.numIpus, device.tilesPerIPU, device.tilesPerIpu) == (ipus, tiles, tiles)
    assert device.supportsOfflineCompilation is exports
    assert repr(device).startswith(f"Device Type:{text} Connection Type:{kind} Id:0 Version:")
    with device:
        pass


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.acquireAvailableDevice(3), "You have attempted to acquire 3 IPUs"),
        (lambda m: m.acquireAvailableDevice(256), "Failed to acquire device with 256 IPUs"),
        (
            lambda m: m.acquireAvailableDevice(connectionType=DeviceConnectionType.Never),
            "connectionType is DeviceConnectionType::Never",
        ),
        (lambda m: m.createIpuModelDevice({"x": 1}), "Invalid option `x' passed to"),
        (lambda m: m.createOfflineIPUDevice({}).attach(), "Cannot attach to offline device"),
    ],
)
def test_devices_that_cannot_be_had(call: Any, message: str) -> None:
    with pytest.raises(popart_exception, match=message):
        call(DeviceManager())


def test_ids_of_no_device() -> None:
    with pytest.raises(popart.poplar_exception, match="No such device set id: '999'"):
        DeviceManager().acquireDeviceById(999)
