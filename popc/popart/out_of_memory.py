"""Programs that do not fit an IPU: told when they are put on an emulated one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from popc.cost import format_costs
from popc.popart.device_info import DeviceInfo
from popc.popart.enums import DeviceType
from popc.popart.errors import OutOfMemoryError, OutOfMemoryException
from popc.popart.program import Program
from popc.popart.summary import costs_on
from popc.target import find_target

__all__ = ["require_memory"]

_PROFILE: Final = "profile.json"
_ASKED_FOR: Final = ("autoReport.all", "autoReport.outputGraphProfile")


def require_memory(
    program: Program, device: DeviceInfo, replicas: int, engine_options: Mapping[str, str]
) -> None:
    """Refuse a program whose tensors alone need more memory than the IPUs of a replica have.

    The summary is made with ``debug.allowOutOfMemory``; with ``autoReport.outputGraphProfile``
    the estimate is written too, as ``profile.json`` in ``autoReport.directory``.

    Raises:
        OutOfMemoryException: it needs more.
        OptionError: there is no such target.
    """
    if device.type is not DeviceType.Ipu:
        return
    plan = program.planned().plan
    needed = plan.arena_bytes + plan.state_bytes + plan.constant_bytes
    tiles = device.tilesPerIPU * max(device.numIpus // replicas, 1)
    limit = tiles * find_target(device.ipuVersion).tile.memory_bytes
    if needed <= limit:
        return
    asked = {name for name, value in engine_options.items() if str(value).lower() == "true"}
    summary = profile = ""
    if "debug.allowOutOfMemory" in asked:
        report = costs_on(program.planned(), device)
        summary = format_costs(report)
        if not asked.isdisjoint(_ASKED_FOR):
            path = Path(engine_options.get("autoReport.directory", ".")).absolute() / _PROFILE
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(report.to_dict()))
            profile = str(path)
    text = (
        f"Out of memory: Cannot fit all variable data onto one or more tiles: {needed:,} bytes of "
        f"tensors for {tiles:,} tiles, which have {limit:,}"
    )
    raise OutOfMemoryException(OutOfMemoryError(text, summary, profile))
