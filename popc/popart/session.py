"""PopART's sessions: a program with its device, its weights and its runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from popc.popart.calls import native
from popc.popart.dataflow import DataFlow
from popc.popart.device_info import DeviceInfo
from popc.popart.enums import (
    IrSerializationFormat,
)
from popc.popart.errors import (
    OutOfMemoryException,
    popart_exception,
    popart_runtime_error,
)
from popc.popart.inputs import InputShapeInfo
from popc.popart.logger import log, log_once
from popc.popart.optimizer_replacement import require_replacement
from popc.popart.optimizers import Optimizer
from popc.popart.option_enums import SyntheticDataMode
from popc.popart.options import SessionOptions
from popc.popart.patterns import Patterns
from popc.popart.rng_state import rng_state_of, state_of_rng
from popc.popart.session_setup import Setup
from popc.popart.session_support import Ir, SessionSupport
from popc.popart.translation import popart_errors
from popc.trained.optimizer import update_optimizer
from popc_runtime.errors import UsageError

__all__ = ["InferenceSession", "OutOfMemoryException", "TrainingSession"]


class _Session(SessionSupport):
    """The interface that both kinds of sessions have in common."""

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
        """The state of the device's random numbers.

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
        self._setup.device.taken_over_by(self)

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
        """The costs of a run, as text; its steps too, if ``reportOptions`` asks for them.

        Raises:
            popart_runtime_error: the device is not prepared, or the program was loaded.
        """
        del resetProfile
        self._require_report()
        with popart_errors(runtime=True):
            return self._setup.summary()

    def getReport(self) -> dict[str, Any]:
        """The costs of a run, as data: of every op, and of every tile of every IPU.

        It takes the place of the object of Graphcore's library for profiles.

        Raises:
            popart_runtime_error: the device is not prepared, or the program was loaded.
        """
        self._require_report()
        with popart_errors(runtime=True):
            return self._setup.costs().to_dict(full=True)

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
        if not (savePopartMetadata and saveVariables):
            log_once("session", "An executable always has its metadata, and its variables")
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

    def getTensorIds(self) -> set[str]:
        """The names of all tensors."""
        return self._ids()

    getAllTensorIds = getTensorIds  # PopART's inference sessions call it so


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

    def checkInplacingAmbiguity(self) -> None:
        """Check that no order of ops decides about results; popc's planner takes care of that."""

    @classmethod
    def fromIr(cls, ir: Ir, deviceInfo: DeviceInfo, name: str = "fromIr") -> InferenceSession:
        """A session of the model that another one has compiled, with weights of its own.

        Raises:
            popart_exception: the other session trains, or there is no device.
        """
        if deviceInfo is None:
            raise popart_exception("Must pass a valid deviceInfo to InferenceSession")
        session = cls.__new__(cls)
        with popart_errors():
            session._begin(ir.on(deviceInfo, name))
        return session


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
