"""The manager of devices: a CPU, models of IPUs, offline ones, and emulated hardware."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from popc.popart.calls import native
from popc.popart.device_info import (
    SETS,
    VERSION,
    Description,
    DeviceInfo,
    set_timeout,
    tiles_of,
)
from popc.popart.enums import (
    DeviceConnectionType,
    DeviceSelectionCriterion,
    DeviceType,
    SyncPattern,
)
from popc.popart.errors import popart_exception, poplar_exception

__all__ = ["DeviceInfo", "DeviceManager"]

_MODEL_TILES: Final = 4  # of an IPU model that is told no number; PopART's
_SHUFFLES: Final = random.Random(1)  # noqa: S311 - PopART's seed is fixed as well


class DeviceManager:
    """Finds and makes devices; there is one machine, whoever asks."""

    __slots__ = ()

    # -- emulated hardware -----------------------------------------------------------------------

    @native
    def acquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo:
        """A device with so many IPUs, attached unless it is to be on demand.

        Raises:
            popart_exception: there is none, or there never can be.
        """
        device = self.tryAcquireAvailableDevice(
            numIpus, tilesPerIpu, pattern, connectionType, selectionCriterion
        )
        if device is None:
            raise popart_exception(
                f"Failed to acquire device with {numIpus} IPUs. Ensure that there are sufficient "
                f"IPUs available. If you have enabled the Poplar SDK you can check device "
                f"availability with the `gc-monitor` command-line utility."
            )
        return device

    @native
    def tryAcquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo | None:
        """A device with so many IPUs; ``None`` if there is none.

        Raises:
            popart_exception: there never can be such a device.
        """
        if numIpus <= 0 or numIpus & (numIpus - 1):
            raise popart_exception(
                f"You have attempted to acquire {numIpus} IPUs. The number of IPUs requested must "
                f"be a power of two"
            )
        _refuse_never(connectionType)
        found = self.enumerateDevices(pattern, numIpus, DeviceType.Ipu, connectionType, tilesPerIpu)
        if selectionCriterion is DeviceSelectionCriterion.Random:
            _SHUFFLES.shuffle(found)
        if connectionType is DeviceConnectionType.OnDemand:
            return found[0] if found else None
        return next((device for device in found if device.attach()), None)

    @native
    def acquireDeviceById(
        self,
        id: int,  # noqa: A002
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo:
        """The device of an id.

        Raises:
            popart_exception: it cannot be attached to.
            poplar_exception: there is no such id.
        """
        device = self.tryAcquireDeviceById(id, pattern, connectionType)
        if device is None:
            raise popart_exception(
                f"Failed to acquire device with id '{id}'. Ensure that the device is available. If "
                f"you have enabled the Poplar SDK you can check device availability with the "
                f"`gc-monitor` command-line utility."
            )
        return device

    @native
    def tryAcquireDeviceById(
        self,
        id: int,  # noqa: A002
        pattern: SyncPattern = SyncPattern.Full,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo | None:
        """The device of an id; ``None`` if it cannot be attached to.

        Raises:
            popart_exception: it is to be attached to never.
            poplar_exception: there is no such id.
        """
        _refuse_never(connectionType)
        if id not in SETS:
            raise poplar_exception(f"No such device set id: '{id}'")
        device = _hardware(id, 0, pattern, connectionType)
        is_later = connectionType is DeviceConnectionType.OnDemand
        return device if is_later or device.attach() else None

    @native
    def enumerateDevices(
        self,
        pattern: SyncPattern = SyncPattern.Full,
        numIpus: int = 1,
        deviceType: DeviceType = DeviceType.Ipu,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        tilesPerIPU: int = 0,
    ) -> list[DeviceInfo]:
        """All devices of a kind with so many IPUs, attached to or not."""
        if deviceType is DeviceType.Cpu:
            return [self.createCpuDevice()] if numIpus == 1 else []
        if deviceType is DeviceType.IpuModel:
            return [self.createIpuModelDevice({"numIPUs": numIpus})]
        if deviceType is not DeviceType.Ipu:
            return []
        return [
            _hardware(number, tilesPerIPU, pattern, connectionType)
            for number, ipus in SETS.items()
            if len(ipus) == numIpus
        ]

    @native
    def setOnDemandAttachTimeout(self, attachTimeout: int) -> None:
        """Let devices that are found from now on be waited for, in seconds."""
        set_timeout(attachTimeout)

    # -- others ----------------------------------------------------------------------------------

    def createCpuDevice(self) -> DeviceInfo:
        """The CPU: one IPU with one tile."""
        always = DeviceConnectionType.Always
        return DeviceInfo(Description(DeviceType.Cpu, always, VERSION, 1, 1))

    def createIpuModelDevice(self, options: Mapping[str, object], /) -> DeviceInfo:
        """A model of IPUs; options are numIPUs, tilesPerIPU, compileIPUCode and ipuVersion.

        Raises:
            popart_exception: there is no such option.
            ValueError: a number is none.
        """
        known = ("compileIPUCode", "ipuVersion", "numIPUs", "tilesPerIPU")
        return _made(DeviceType.IpuModel, _texts(options, known, "createIpuModelDevice"))

    def createSimDevice(self, options: Mapping[str, object], /) -> DeviceInfo:
        """A simulator of IPUs; options are numIPUs, tilesPerIPU and ipuVersion.

        Raises:
            popart_exception: there is no such option.
            ValueError: a number is none.
        """
        known = ("ipuVersion", "numIPUs", "tilesPerIPU")
        return _made(DeviceType.Sim, _texts(options, known, "createSimDevice"))

    def createOfflineIPUDevice(self, opts: Mapping[str, object]) -> DeviceInfo:
        """IPUs that programs are compiled for and not run on.

        Options are numIPUs, ipuVersion, syncPattern, gatewayMode and tilesPerIPU.

        Raises:
            popart_exception: there is no such option.
            ValueError: a number is none.
        """
        known = ("gatewayMode", "ipuVersion", "numIPUs", "syncPattern", "tilesPerIPU")
        texts = _texts(opts, known, "createOfflineIPUDevice")
        version = texts.get("ipuVersion", VERSION)
        texts.setdefault("tilesPerIPU", str(tiles_of(version)))
        return _made(DeviceType.OfflineIpu, texts, DeviceConnectionType.Never)

    @native
    def createOfflineIpuFromDeviceInfo(self, deviceInfo: DeviceInfo, /) -> DeviceInfo:
        """An offline device like another one."""
        version = deviceInfo.ipuVersion or VERSION
        return DeviceInfo(
            Description(
                DeviceType.OfflineIpu,
                DeviceConnectionType.Never,
                version,
                deviceInfo.numIpus,
                deviceInfo.tilesPerIPU,
            )
        )

    @native
    def createOfflineIpuFromSystemString(self, system: str, numIpus: int, /) -> DeviceInfo:
        """An offline device with IPUs of a system that is named."""
        del system  # the systems that Poplar names have IPUs of the second generation
        return self.createOfflineIPUDevice({"numIPUs": numIpus})


def _refuse_never(connection: DeviceConnectionType) -> None:
    if connection is DeviceConnectionType.Never:
        raise popart_exception(
            "Trying to acquire a hardware device when connectionType is DeviceConnectionType::Never"
        )


def _hardware(
    number: int, tiles: int, pattern: SyncPattern, connection: DeviceConnectionType
) -> DeviceInfo:
    ipus = len(SETS[number])
    count = tiles or tiles_of(VERSION)
    return DeviceInfo(
        Description(DeviceType.Ipu, connection, VERSION, ipus, count, number, pattern)
    )


def _texts(options: Mapping[Any, object], known: Sequence[str], method: str) -> dict[str, str]:
    """Options as text.

    Raises:
        TypeError: they are no dict.
        popart_exception: there is no such option.
    """
    if not isinstance(options, dict):
        raise TypeError(
            f"{method}(): incompatible function arguments. The following argument types are "
            f"supported:\n    1. (arg0: dict)\n\nInvoked with: {options!r}"
        )
    texts = {str(key): str(value) for key, value in options.items()}
    for key in texts:
        if key not in known:
            kind = method.removeprefix("create").removesuffix("Device")
            listed = ", ".join(known)
            raise popart_exception(
                f"Invalid option `{key}' passed to {method} for device type {kind}. Valid options "
                f"are [{listed}]"
            )
    return texts


def _made(
    kind: DeviceType,
    texts: Mapping[str, str],
    connection: DeviceConnectionType = DeviceConnectionType.Always,
) -> DeviceInfo:
    ipus = int(texts.get("numIPUs", "1"))
    tiles = int(texts.get("tilesPerIPU", str(_MODEL_TILES)))
    version = texts.get("ipuVersion", VERSION)
    return DeviceInfo(Description(kind, connection, version, ipus, tiles))
