"""PopART's sessions: a program with its device, its weights and its runs."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from popc.popart.calls import call_form, native
from popc.popart.dataflow import DataFlow
from popc.popart.device_info import DeviceInfo
from popc.popart.enums import (
    DeviceConnectionType,
    IrSerializationFormat,
)
from popc.popart.errors import (
    OutOfMemoryException,
    popart_exception,
    popart_runtime_error,
)
from popc.popart.host_weights import HostWeights
from popc.popart.inputs import InputShapeInfo
from popc.popart.loading import load_model
from popc.popart.logger import log
from popc.popart.optimizer_replacement import require_replacement
from popc.popart.optimizers import Optimizer
from popc.popart.option_enums import SyntheticDataMode
from popc.popart.options import SessionOptions
from popc.popart.patterns import Patterns
from popc.popart.rng_state import rng_state_of, state_of_rng
from popc.popart.session_setup import Setup
from popc.popart.stepio import IStepIO, PyStepIO, PyWeightsIO
from popc.popart.tensorinfo import _TensorInfoCore
from popc.popart.translation import popart_errors
from popc.trained.optimizer import update_optimizer
from popc_runtime import Executable
from popc_runtime.errors import UsageError

__all__ = ["InferenceSession", "OutOfMemoryException", "TrainingSession"]

_NOT_PREPARED: Final = (
    "Devicex::prepare() must be called before Devicex::run(const IStepIO &) is called."
)


class _Session:
    """What both kinds of sessions have in common."""

    _TRAINS: ClassVar[bool] = False

    _setup: Setup
    _weights: HostWeights

    def _begin(self, setup: Setup) -> None:
        """Compile as far as no device is needed.

        Raises:
            popart_exception: what is wrong with the model or with settings; see `Setup`.
        """
        self._setup = setup
        self._executable: Executable | None = None
        self._is_prepared = self._sent = self._has_run = False
        self._rng: tuple[int, ...] = ()  # as they were set, until they are used
        self._checked = False
        self._seed = time.time_ns() & 0xFFFFFFFFFFFFFFFF
        setup.transform()
        self._weights = HostWeights(setup.model, setup.base, setup.unused_weights)

    # -- what it is made of ----------------------------------------------------------------------

    @property
    def dataFlow(self) -> DataFlow:
        """Batches per step, and the tensors that are returned."""
        return self._setup.flow

    @property
    def replicationFactor(self) -> int:
        """The number of replicas."""
        return self._setup.sizes.replicas

    @property
    def accumulationFactor(self) -> int:
        """The micro-batches of an update."""
        return self._setup.sizes.accumulation

    def _getDataFlow(self) -> DataFlow:
        return self._setup.flow

    def _replicationFactor(self) -> int:
        return self._setup.sizes.replicas

    def _accumulationFactor(self) -> int:
        return self._setup.sizes.accumulation

    @native
    def getInfo(self, id: str, /) -> _TensorInfoCore:  # noqa: A002
        """The type of a tensor.

        Raises:
            popart_exception: there is no such tensor.
        """
        return self._setup.info(id)

    def _ids(self) -> set[str]:
        return self._setup.ids()

    def initAnchorArrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """Arrays for the values of all anchors of a step, not initialised."""
        flow, sizes = self._setup.flow, self._setup.sizes
        return {
            name: sizes.anchor_array(flow.art(name), self._setup.info(name))
            for name in flow.anchors()
        }

    # -- the device ------------------------------------------------------------------------------

    def prepareDevice(self, loadEngine: bool = True) -> None:
        """Compile, and load the program unless ``loadEngine`` is off.

        Raises:
            OutOfMemoryException: the program does not fit.
            popart_exception: the device cannot be attached to.
        """
        options = self._setup.options
        with popart_errors():
            executable = self._setup.executable(self._seed)
        if not options.compileEngine:
            return
        self._executable = executable
        self._weights.connect(executable)
        self._is_prepared = True
        if loadEngine:
            self.loadEngineAndConnectStreams()

    def loadEngineAndConnectStreams(self) -> None:
        """Attach to the device.

        Raises:
            popart_runtime_error: nothing has been compiled, or there is no such device to attach.
        """
        device = self._setup.device
        if self._executable is None:
            raise popart_runtime_error(
                "Trying to load an engine but no compiled engine. Did you forget to call "
                "prepareDevice()?"
            )
        if device.connectionType is DeviceConnectionType.Never:
            return
        if not device.isAttached and not device.tryAttachUntilTimeout():
            raise popart_runtime_error("Failed to attach to device")

    def _prepared(self, what: str) -> Executable:
        if not self._is_prepared or self._executable is None:
            raise popart_runtime_error(f"Must call prepareDevice before {what}.")
        return self._executable

    # -- weights ---------------------------------------------------------------------------------

    def weightsFromHost(self) -> None:
        """Send all variables to the device.

        Raises:
            popart_runtime_error: the device is not prepared.
        """
        executable = self._prepared("weightsFromHost")
        if self._setup.options.syntheticDataMode is SyntheticDataMode.Off:
            with popart_errors(runtime=True):
                self._weights.send(executable)
        self._sent = True

    def weightsToHost(self) -> None:
        """Fetch all variables from the device.

        Raises:
            popart_runtime_error: the device is not prepared.
        """
        executable = self._prepared("weightsToHost")
        if self._setup.options.syntheticDataMode is SyntheticDataMode.Off:
            self._weights.fetch(executable)

    @native
    def readWeights(self, weightsIo: PyWeightsIO, /) -> None:
        """Copy what `weightsToHost` has fetched into arrays.

        Raises:
            popart_runtime_error: the device is not prepared, or an array has another size.
        """
        self._prepared("readWeights")
        self._weights.read(weightsIo)

    @native
    def writeWeights(self, weightsIo: PyWeightsIO, /) -> None:
        """Take values that the next `weightsFromHost` sends.

        Raises:
            popart_runtime_error: the weights are constants.
            popart_exception: an array has another shape or size.
        """
        self._require_variables("writeWeights")
        self._weights.write(weightsIo)

    def _require_variables(self, what: str) -> None:
        if not self._TRAINS and self._setup.options.constantWeights:
            raise popart_runtime_error(
                f"Cannot call {what} when constantWeights is set. Set "
                f"SessionOptions.constantWeights to false to change weights"
            )

    @native
    def modelToHost(self, fn: str, /) -> None:
        """Write the model with the weights of the device, and the state of the optimizer.

        Raises:
            popart_runtime_error: the device is not prepared.
            popart_exception: the file cannot be written.
        """
        self._prepared("modelToHost")
        self.weightsToHost()
        self._weights.save_model(fn)
        self._weights.keep_fetched()

    @native
    def resetHostWeights(
        self,
        modelProtoOrFilename: bytes | str,
        ignoreWeightsInModelWithoutCorrespondingHostWeight: bool = False,
    ) -> None:
        """Take the weights of a model; the next `weightsFromHost` sends them.

        Raises:
            popart_runtime_error: weights are constants, unknown or of another type.
            popart_exception: there is no such model.
        """
        self._require_variables("resetHostWeights")
        model, folder = load_model(modelProtoOrFilename)
        ignored = ignoreWeightsInModelWithoutCorrespondingHostWeight
        self._weights.reset(model, folder, ignore_unknown=ignored)
        self._sent = False

    # -- runs ------------------------------------------------------------------------------------

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Run a step.

        Forms: ``(stepio, debugName="")``, ``(programHandle, stepio, debugName="")``.

        Raises:
            popart_runtime_error: the session is not ready, or arrays do not fit.
            popart_exception: there is no such program.
        """
        call_form("run", (_Session._run, _Session._run_named), self, args, kwargs)

    def _run_named(self, programHandle: str, stepio: IStepIO, debugName: str = "") -> None:
        del stepio, debugName
        raise popart_exception(f"[Devicex::run] Program {programHandle} not found.")

    def _run(self, stepio: IStepIO, debugName: str = "") -> None:
        del debugName
        setup = self._setup
        if setup.device.connectionType is DeviceConnectionType.Never:
            raise popart_runtime_error("Offline IPU device is not configured for execution")
        if self._TRAINS and self._weights.names and not self._sent:
            raise popart_runtime_error(
                "Must call weightsFromHost before run as the model has initializers and the "
                "session has been created in training mode"
            )
        if not self._is_prepared or self._executable is None:
            raise popart_runtime_error(_NOT_PREPARED)
        if stepio.asserts and not self._checked:
            self._checked = True
            if isinstance(stepio, PyStepIO):
                setup.check_counts(stepio)
        self._rng = ()
        self._step(self._executable, stepio)
        self._has_run = True

    def _step(self, executable: Executable, stepio: IStepIO) -> None:
        setup = self._setup
        infos = {spec.name: setup.info(spec.name) for spec in executable.inputs}

        def samples(name: str) -> Iterator[np.ndarray[Any, Any]]:
            while True:
                yield stepio.sample(name, infos[name])

        synthetic = setup.options.syntheticDataMode is not SyntheticDataMode.Off
        anchors = () if synthetic else setup.flow.anchors()
        names = {spec.name: spec.name for spec in executable.outputs}
        names |= {f"{name}.2": name for name in infos}  # what is both has a number as an output
        takers = {
            spec.name: _taker(stepio, names[spec.name], setup.picked(names[spec.name]))
            for spec in executable.outputs
            if names[spec.name] in anchors
        }
        with popart_errors(runtime=True):
            executable.run_connected({name: samples(name) for name in infos}, takers)

    # -- random numbers --------------------------------------------------------------------------

    @native
    def setRandomSeed(self, seedValue: int) -> None:
        """Restart the random numbers of the device.

        Raises:
            popart_runtime_error: the device is not prepared.
        """
        if not self._is_prepared and not self._setup.is_random:
            log("session", "WARN", "Nothing is random, so that a seed has no effect")
            return
        executable = self._prepared("setRandomSeed")
        self._seed = seedValue & 0xFFFFFFFFFFFFFFFF
        self._rng = ()
        executable.set_seed(self._seed)

    def getRandomSeed(self) -> int:
        """The seed of the random numbers.

        Raises:
            popart_runtime_error: the device is not prepared.
        """
        self._prepared("getRandomSeed")
        return self._seed

    def getRNGState(self) -> list[int]:
        """Where the random numbers of the device are.

        Raises:
            popart_runtime_error: the option enableLoadAndOffloadRNGState is off.
        """
        self._require_rng("get")
        executable = self._prepared("getRNGState")
        if self._setup.options.syntheticDataMode is not SyntheticDataMode.Off:
            return []
        if self._rng:
            return list(self._rng)
        return rng_state_of(executable.state.random_state(), self._setup.rng_words)

    @native
    def setRNGState(self, rngValue: list[int]) -> None:
        """Go on with the random numbers from where `getRNGState` was called.

        Raises:
            popart_runtime_error: the option is off, or the length is another.
        """
        self._require_rng("set")
        executable = self._prepared("setRNGState")
        if self._setup.options.syntheticDataMode is not SyntheticDataMode.Off:
            return
        words = self._setup.rng_words
        if len(rngValue) != words:
            raise popart_runtime_error(
                f"Devicex::setRngStateValue received rngState of size {len(rngValue)}; was "
                f"expecting size {words}"
            )
        try:
            executable.state.set_random_state(state_of_rng(rngValue))
        except UsageError:  # as hardware does, take any words: they are a seed
            executable.set_seed(hash(tuple(rngValue)) & 0xFFFFFFFFFFFFFFFF)
        self._rng = tuple(rngValue)

    def _require_rng(self, verb: str) -> None:
        if not self._setup.options.enableLoadAndOffloadRNGState:
            raise popart_runtime_error(
                f"Trying to {verb} the RNG state, but the session option "
                f"enableLoadAndOffloadRNGState must be set to True."
            )

    # -- reports ---------------------------------------------------------------------------------

    @native
    def getCycleCount(self, id: str = "") -> int:  # noqa: A002
        """Cycles of the last run.

        Raises:
            popart_runtime_error: nothing has run, or nothing is counted.
        """
        if not self._has_run or self._executable is None:
            raise popart_runtime_error("Must call run before getCycleCount.")
        if not self._setup.options.instrumentWithHardwareCycleCounter:
            raise popart_runtime_error(
                "SessionOption 'instrumentWithHardwareCycleCounter' must be set to true to "
                "measure cycle count."
            )
        with popart_errors(runtime=True):
            return self._executable.get_cycle_count(id)

    def getSummaryReport(self, resetProfile: bool = True) -> str:
        """What a run costs, as text.

        Raises:
            popart_runtime_error: the device is not prepared, or the program was loaded.
        """
        del resetProfile
        self._require_report()
        with popart_errors(runtime=True):
            return self._setup.summary()

    def getSerializedGraph(self) -> bytes:
        """The program, as popc stores it."""
        self._require_report()
        return self._setup.archive()

    def _require_report(self) -> None:
        if not self._is_prepared:
            raise popart_runtime_error(
                "Session must have been prepared before a report can be fetched"
            )
        if self._setup.was_loaded:
            raise popart_runtime_error(
                "Unable to get reports when using a cached executable. Either delete the cached "
                "executable or disable engine caching."
            )

    @native
    def _serializeIr(self, format: IrSerializationFormat = IrSerializationFormat.JSON) -> str:  # noqa: A002
        """The ops in the order in which they run, as JSON."""
        del format
        if self._setup.was_loaded:
            log("session", "WARN", "A program that was loaded has no ops to be serialized")
            return ""
        with popart_errors():
            return self._setup.serialized()

    # -- files -----------------------------------------------------------------------------------

    @native
    def compileAndExport(self, filename: str) -> None:
        """Compile, and write the program to a file, or to a folder.

        Raises:
            OSError: it cannot be written there.
            popart_exception: programs for the device cannot be saved.
        """
        path = Path(filename).expanduser()
        folder = path if path.is_dir() else path.parent
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise OSError(f"Unable to write to {folder}")
        self._require_offline()
        self.prepareDevice(loadEngine=False)
        self.saveExecutable(str(path))

    def _require_offline(self) -> None:
        device = self._setup.device
        if not device.supportsOfflineCompilation:
            raise popart_exception(f"Executables for device type {device.type} cannot be saved")

    @native
    def saveExecutable(
        self, path: str, savePopartMetadata: bool = True, saveVariables: bool = True
    ) -> None:
        """Write the program to a file.

        Raises:
            popart_exception: programs for the device cannot be saved, or it is not prepared.
        """
        del savePopartMetadata, saveVariables
        self._require_offline()
        self._prepared("saveExecutable")
        target = Path(path).expanduser()
        if target.is_dir():
            target /= "executable.popef"
        target.parent.mkdir(parents=True, exist_ok=True)
        with popart_errors():
            self._setup.save(target)

    @native
    def loadExecutable(self, filename: str) -> None:
        """Take the program of a file; call `prepareDevice` next.

        Raises:
            popart_exception: there is no such file, or it is of another session.
        """
        path = Path(filename).expanduser()
        if not path.is_file():
            raise popart_exception(f"Could not open file {filename}")
        with popart_errors():
            self._setup.load(path)


def _taker(
    stepio: IStepIO, name: str, picked: Callable[[int], bool]
) -> Callable[[np.ndarray[Any, Any]], None]:
    """Hands those values of an anchor on whose numbers within a step are picked."""
    numbers = itertools.count()

    def take(value: np.ndarray[Any, Any]) -> None:
        if picked(next(numbers)):
            stepio.take(name, value)

    return take


class InferenceSession(_Session):
    """A session that computes results."""

    @native
    def __init__(
        self,
        fnModel: bytes | str,
        dataFlow: DataFlow,
        deviceInfo: DeviceInfo | None,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "inference",
    ) -> None:
        if deviceInfo is None:
            raise popart_exception("Must pass a valid deviceInfo to InferenceSession")
        with popart_errors():
            self._begin(
                Setup.of(
                    *(fnModel, dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions, name)
                )
            )

    def getAllTensorIds(self) -> set[str]:
        """The names of all tensors."""
        return self._ids()

    def checkInplacingAmbiguity(self) -> None:
        """Check that no order of ops decides about results; popc's planner takes care of that."""


class TrainingSession(_Session):
    """A session that trains weights."""

    _TRAINS = True

    @native
    def __init__(
        self,
        fnModel: bytes | str,
        dataFlow: DataFlow,
        loss: str,
        optimizer: Optimizer,
        deviceInfo: DeviceInfo | None,
        inputShapeInfo: InputShapeInfo | None = None,
        patterns: Patterns | None = None,
        userOptions: SessionOptions | None = None,
        name: str = "training",
    ) -> None:
        if deviceInfo is None:
            raise popart_exception("Must pass a valid deviceInfo to TrainingSession")
        with popart_errors():
            setup = Setup.of(
                *(fnModel, dataFlow, deviceInfo, inputShapeInfo, patterns, userOptions, name),
                loss=loss,
                optimizer=optimizer,
            )
            self._begin(setup)

    def getTensorIds(self) -> set[str]:
        """The names of all tensors."""
        return self._ids()

    @native
    def updateOptimizerFromHost(self, optimizer: Optimizer, /) -> None:
        """Give the values that are not constant those of another optimizer.

        Raises:
            popart_runtime_error: it is no replacement, or the device is not prepared.
        """
        executable = self._prepared("updateOptimizerFromHost")
        assert self._setup.optimizer is not None
        require_replacement(self._setup.optimizer, optimizer)
        self._setup.optimizer = optimizer
        if executable.manifest.training is None:
            return
        with popart_errors(runtime=True):
            update_optimizer(executable, self._setup.optimizer_table())

    def updateEngineCache(self) -> None:
        """Look for new programs in the cache; a session looks each time that it is prepared."""

    def broadcastWeights(self, rootRank: int = 0) -> None:
        """Give all processes the same weights; there is but one."""
