"""The heart of a session: its device, its weights and its runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from math import prod
from typing import Any, ClassVar, Final

import numpy as np

from popc.popart.anchor_values import Take, each_of_batch, numbered
from popc.popart.calls import call_form, native
from popc.popart.dataflow import AnchorReturnType, DataFlow
from popc.popart.distributed import common_seed
from popc.popart.enums import (
    AnchorReturnTypeId,
    DeviceConnectionType,
)
from popc.popart.errors import (
    popart_exception,
    popart_runtime_error,
)
from popc.popart.host_weights import HostWeights
from popc.popart.loading import load_model
from popc.popart.logger import log
from popc.popart.option_enums import SyntheticDataMode
from popc.popart.prefixes import COUNTER_PREFIX, SUM_PREFIX
from popc.popart.session_options import picks_samples
from popc.popart.session_setup import Setup
from popc.popart.step_checks import check_counts
from popc.popart.stepio import IStepIO, PyStepIO, PyWeightsIO
from popc.popart.tensorinfo import _TensorInfoCore
from popc.popart.translation import popart_errors
from popc_runtime import Executable

__all__ = ["SessionCore"]

_EACH: Final = (AnchorReturnTypeId.All, AnchorReturnTypeId.EveryN)
_NOT_PREPARED: Final = (
    "Devicex::prepare() must be called before Devicex::run(const IStepIO &) is called."
)


class SessionCore:
    """The state that both kinds of sessions have in common."""

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
        self._is_prepared = self._is_loaded = self._sent = self._has_run = False
        self._rng: tuple[int, ...] = ()  # as they were set, until they are used
        self._checked = self._in_sync = False
        self._seed = time.time_ns() & 0xFFFFFFFFFFFFFFFF
        if not setup.is_transformed:
            setup.transform()
        self._weights = HostWeights(
            *(setup.model, setup.base, setup.unused_weights),
            setup.shared,
            setup.sizes.replicas,
        )

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
            popart_exception: the device cannot be attached to, or the model has values for what
                begins as 0.
        """
        options = self._setup.options
        with popart_errors():
            self._seed = common_seed(options, self._seed)
            executable = self._setup.executable(self._seed)
        if not self._setup.was_loaded:
            log("session", "INFO", "Graph compiled")
        if not options.compileEngine:
            return
        self._executable = executable
        with_state = not options.disableOptimizerStateTensorStreams
        self._weights.connect(executable, self._sums(), has_state=with_state)
        self._is_prepared, self._is_loaded = True, False
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
        self._is_loaded = True
        log("session", "INFO", "Engine loaded")

    def _loaded(self, what: str) -> Executable:
        """The program on its device, onto which it is loaded now if `prepareDevice` was not to."""
        executable = self._prepared(what)
        if not self._is_loaded:
            self.loadEngineAndConnectStreams()
        return executable

    def _prepared(self, what: str) -> Executable:
        if not self._is_prepared or self._executable is None:
            raise popart_runtime_error(f"Must call prepareDevice before {what}.")
        return self._executable

    # -- weights ---------------------------------------------------------------------------------

    def _sums(self) -> dict[str, str]:
        """Tensors that add up and count gradients, if the host may see them, with dtypes."""
        setup = self._setup
        if setup.options.disableGradAccumulationTensorStreams:
            return {}
        names = sorted(
            name for name in setup.ids() if name.startswith((SUM_PREFIX, COUNTER_PREFIX))
        )
        return {name: setup.info(name).data_type_lcase() for name in names}

    def weightsFromHost(self) -> None:
        """Send all variables to the device.

        Raises:
            popart_runtime_error: the device is not prepared.
        """
        executable = self._loaded("weightsFromHost")
        if self._setup.options.syntheticDataMode is SyntheticDataMode.Off:
            with popart_errors(runtime=True):
                self._weights.send(executable)
        self._sent = True

    def weightsToHost(self) -> None:
        """Fetch all variables from the device.

        Raises:
            popart_runtime_error: the device is not prepared.
        """
        executable = self._loaded("weightsToHost")
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
        call_form("run", (SessionCore._run, SessionCore._run_named), self, args, kwargs)

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
                check_counts(setup, stepio)
        self._rng = ()
        executable = self._loaded("run")
        self._take_device(executable)
        self._step(executable, stepio)
        self._has_run = True

    def _take_device(self, executable: Executable) -> None:
        """Go on with random numbers as another session has left them, if one has run meanwhile.

        That only concerns who reads and sets their state; others have sequences of their own.
        """
        other = self._setup.device.taken_over_by(self)
        if other and self._setup.options.enableLoadAndOffloadRNGState:
            state = repr(executable.state.random_state()).encode()
            executable.set_seed(int.from_bytes(sha256(state).digest()[:8], "little"))

    def _step(self, executable: Executable, stepio: IStepIO) -> None:
        setup = self._setup
        infos = {spec.name: setup.info(spec.name) for spec in executable.inputs}
        needed = setup.needed_inputs
        prefetches = setup.options.enablePrefetchDatastreams
        stepio.begin(
            {name: executable.stream(name).samples_per_step for name in infos if prefetches}
        )

        def samples(name: str) -> Iterator[np.ndarray[Any, Any]]:
            while name in needed:
                yield stepio.sample(name, infos[name])
            yield from itertools.repeat(_nothing(infos[name]))

        synthetic = setup.options.syntheticDataMode is not SyntheticDataMode.Off
        anchors = () if synthetic else setup.flow.anchors()
        takers = {
            spec.name: self._taker(executable, stepio, spec.name, prod(spec.shape))
            for spec in executable.outputs
            if spec.name in anchors
        }
        with popart_errors(runtime=True):
            executable.run_connected({name: samples(name) for name in infos}, takers)

    def _picked(self, name: str) -> Callable[[int], bool]:
        """Says of the number of an anchor's value within a step whether it is returned."""
        kind, sizes = self._setup.flow.art(name), self._setup.sizes
        picks = picks_samples(self._setup.options, trains=self._TRAINS)
        if kind.id() is not AnchorReturnTypeId.EveryN or not picks:
            return lambda _: True
        return lambda number: (number // sizes.replicas + 1) % kind.rp() == 0

    def _taker(self, executable: Executable, stepio: IStepIO, name: str, elements: int) -> Take:
        """Takes the values of an anchor, of which the program gives so many elements in a step."""
        setup = self._setup
        sizes, kind = setup.sizes, setup.flow.art(name)
        take = numbered(partial(stepio.take, name), self._picked(name))
        wanted = sizes.anchor_count(AnchorReturnType("All"), setup.info(name))
        once = kind.id() in _EACH and sizes.accumulation > 1 and elements < wanted
        if not once:
            return take
        is_variable = any(spec.name == name for spec in executable.state.specs)
        before = executable.state.read(every_replica=True)[name] if is_variable else None
        rows = None if before is None else list(before)
        return each_of_batch(take, sizes.accumulation, sizes.replicas, rows)


def _nothing(info: _TensorInfoCore) -> np.ndarray[Any, Any]:
    """A sample of an input that nobody reads."""
    return np.zeros(info.shape(), np.dtype(info.data_type_lcase()))
