"""Methods of sessions that programs for PopART's other interfaces call, and those about files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from popc.popart.calls import native
from popc.popart.device_info import DeviceInfo
from popc.popart.errors import popart_exception
from popc.popart.session_core import SessionCore
from popc.popart.session_setup import Setup
from popc.popart.translation import popart_errors

__all__ = ["Ir", "SessionSupport"]


class Ir:
    """A model that a session has compiled, for `InferenceSession.fromIr`."""

    __slots__ = ("_setup",)

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    def on(self, device: DeviceInfo, name: str) -> Setup:
        """The model for a session of its own; compiled again only if ``device`` is of another kind.

        Raises:
            popart_exception: the model was compiled to be trained.
        """
        if self._setup.optimizer is not None:
            raise popart_exception("The Ir of a TrainingSession cannot be used for inference")
        return self._setup.on_device(device, name)


class SessionSupport(SessionCore):
    """The methods of both kinds of sessions that have nothing to do with running."""

    def getIr(self) -> Ir:
        """The model as this session has compiled it."""
        return Ir(self._setup)

    # -- weights ---------------------------------------------------------------------------------

    def copyDeviceWeightsToHost(self) -> None:
        """Fetch all variables, and make them the values of the host.

        Raises:
            popart_runtime_error: the device is not prepared.
        """
        self.weightsToHost()
        self._weights.keep_fetched()
        self._in_sync = True

    def markHostWeightsInSync(self) -> None:
        """Say that the host has the values of the device."""
        self._in_sync = True

    def markHostWeightsOutOfSync(self) -> None:
        """Say that the device has other values than the host."""
        self._in_sync = False

    def areHostWeightsInSync(self) -> bool:
        """True if the host has the values of the device, as far as has been said."""
        return self._in_sync

    def setEngineIsLoaded(self, isLoaded: bool) -> None:
        """Say whether the program is on its device; if not, the next use of it loads it."""
        self._is_loaded = isLoaded

    @native
    def _setDeviceInfo(self, deviceInfo: DeviceInfo, /) -> None:
        """Run on another device of the same kind from now on."""
        self._setup.device = deviceInfo
        self._is_loaded = False

    # -- files -----------------------------------------------------------------------------------

    @native
    def updateExternallySavedTensorLocations(self, from_: str, to: str, /) -> None:
        """Copy external data of weights to a new file, which `modelToHost` writes to from now on.

        Raises:
            popart_runtime_error: the new file exists, or the old one does not, or no weight is in
                it.
        """
        self._weights.move_external(from_, to)

    @native
    def saveVariables(self, path: str) -> None:
        """Write all variables of the device to a file in the safetensors format.

        Raises:
            popart_runtime_error: the device is not prepared.
            popart_exception: the file cannot be written.
        """
        executable = self._prepared("saveVariables")
        target = Path(path).expanduser()
        target.parent.mkdir(parents=True, exist_ok=True)
        with popart_errors():
            executable.state.save_checkpoint(target)

    def connectStreamToCallback(
        self, streamHandle: str, callback: Callable[[Any], object], index: int, /
    ) -> None:
        """Let the host take part in a reduction; popc reduces on the device, without streams.

        Raises:
            popart_runtime_error: the program is not loaded.
            popart_exception: there is no such stream.
        """
        del callback, index
        self._prepared("connectStreamToCallback")
        raise popart_exception(
            f"There is no stream {streamHandle}: gradients and weights are reduced on the device"
        )
