"""Devices as a session sees them, and the emulated machine that some of them belong to.

The machine has sixteen IPUs of the second generation.  Sets of 1, 2, 4, 8 and 16 of them
have ids, in this order; a set can be attached to as long as none of its IPUs is attached to.
"""

from __future__ import annotations

import time
import weakref
from typing import Final, Self

from popc.popart.enums import (
    DeviceConnectionType,
    DeviceType,
    SyncPattern,
)
from popc.popart.errors import popart_exception
from popc.target import find_target
from popc_runtime.errors import PopcError
from popc_runtime.ground.frozen import frozen

__all__ = ["SETS", "VERSION", "Description", "DeviceInfo", "set_timeout", "tiles_of"]

_IPUS: Final = 16  # of the emulated machine: those of a POD16
VERSION: Final = "ipu2"
_DRIVER: Final = "1.3.0"  # of the emulated machine
_SIZES: Final = (1, 2, 4, 8, 16)  # IPUs of a set
_ATTACHED: Final[set[int]] = set()  # IPUs of the emulated machine that are in use
_TIMEOUT: Final = [0]  # seconds that attaching on demand may take


def _sets() -> dict[int, tuple[int, ...]]:
    """The IPUs of each set, by its id."""
    found: dict[int, tuple[int, ...]] = {}
    for size in _SIZES:
        for first in range(0, _IPUS, size):
            found[len(found)] = tuple(range(first, first + size))
    return found


SETS: Final = _sets()


def tiles_of(version: str) -> int:
    """The number of tiles of an IPU of a generation.

    Raises:
        popart_exception: there is no such generation.
    """
    try:
        return find_target(version).tile.count
    except PopcError as error:
        raise popart_exception(f"Unknown ipuVersion '{version}'") from error


def set_timeout(seconds: int) -> None:
    """Let devices that are made from now on be waited for."""
    _TIMEOUT[0] = seconds


@frozen
class Description:
    """The facts about a device that do not change."""

    type: DeviceType
    connection: DeviceConnectionType
    version: str
    ipus: int
    tiles: int
    id: int = 0
    pattern: SyncPattern = SyncPattern.Full


class DeviceInfo:
    """A device that a session can use; as a context manager it is detached when left."""

    def __init__(self, description: Description) -> None:
        self._description = description
        self._attached: list[int] = []
        self._timeout = _TIMEOUT[0]
        self._is_on = description.connection is DeviceConnectionType.Always
        self._release = weakref.finalize(self, _release, self._attached)
        self._user: weakref.ref[object] | None = None

    def taken_over_by(self, user: object) -> bool:
        """Let ``user`` be the last one to have used the device; True if another one was before."""
        before = None if self._user is None else self._user()
        self._user = weakref.ref(user)
        return before is not None and before is not user

    # -- properties ------------------------------------------------------------------------------

    @property
    def type(self) -> DeviceType:
        """The kind of device."""
        return self._description.type

    @property
    def connectionType(self) -> DeviceConnectionType:
        """The time when it is attached to."""
        return self._description.connection

    @property
    def id(self) -> int:
        """The id of the set of IPUs; 0 if it is none."""
        return self._description.id

    @property
    def ipuVersion(self) -> str:
        """The generation of its IPUs; "" if it has none."""
        return "" if self.type is DeviceType.Cpu else self._description.version

    @property
    def version(self) -> str:
        """Its version, as far as it is known."""
        if self.type is DeviceType.Ipu:
            return _DRIVER if self.isAttached else "<unknown-ipu-unattached>"
        words = {
            DeviceType.Cpu: "<unknown-cpu>",
            DeviceType.Sim: "<unknown-sim>",
            DeviceType.OfflineIpu: "<offline-ipu>",
        }
        return words.get(self.type, self._description.version)

    @property
    def numIpus(self) -> int:
        """The number of IPUs."""
        return self._description.ipus

    @property
    def tilesPerIPU(self) -> int:
        """The number of tiles of each."""
        return self._description.tiles

    @property
    def tilesPerIpu(self) -> int:
        """The number of tiles of each."""
        return self._description.tiles

    @property
    def driverIds(self) -> list[int]:
        """The IPUs of the emulated machine."""
        return list(SETS[self.id]) if self.type is DeviceType.Ipu else []

    @property
    def numWorkerContexts(self) -> int:
        """The number of threads of a tile."""
        if self.type is DeviceType.Cpu:
            return 1
        return find_target(self._description.version).tile.worker_contexts

    @property
    def isAttached(self) -> bool:
        """True if it is attached to."""
        return bool(self._attached) if self.type is DeviceType.Ipu else self._is_on

    @property
    def supportsOfflineCompilation(self) -> bool:
        """True if programs for it can be saved."""
        return self.type in (DeviceType.Ipu, DeviceType.OfflineIpu)

    # -- attaching -------------------------------------------------------------------------------

    def attach(self) -> bool:
        """Attach to the device; whether that was possible.

        Raises:
            popart_exception: it is offline.
        """
        if self.type is DeviceType.OfflineIpu:
            raise popart_exception("Cannot attach to offline device")
        if self.type is not DeviceType.Ipu:
            self._is_on = True
            return True
        wanted = SETS[self.id]
        if self._attached:
            return True
        if _ATTACHED.intersection(wanted):
            return False
        _ATTACHED.update(wanted)
        self._attached.extend(wanted)
        return True

    def tryAttachUntilTimeout(self) -> bool:
        """Attach at once, or try again every second until the timeout; whether it succeeded."""
        for waited in range(self._timeout + 1):
            if self.attach():
                return True
            if waited < self._timeout:
                time.sleep(1)
        return False

    def detach(self) -> None:
        """Let others attach to the device.

        Raises:
            popart_exception: it is offline.
        """
        if self.type is DeviceType.OfflineIpu:
            raise popart_exception("Cannot detach from offline device")
        self._is_on = False
        _release(self._attached)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.type is not DeviceType.OfflineIpu:
            self.detach()

    def __repr__(self) -> str:
        ids = ", ".join(map(str, self.driverIds))
        return (
            f"Device Type:{self.type} Connection Type:{self.connectionType.name} Id:{self.id} "
            f"Version:{self.version} NumIPUs:{self.numIpus} NumTilesPerIPU:{self.tilesPerIPU} "
            f"DeviceIds: {{{ids}}}"
        )


def _release(attached: list[int]) -> None:
    """Detach from the IPUs of a list."""
    _ATTACHED.difference_update(attached)
    attached.clear()
