"""The summary of a program, and on request its steps, in the words of Poplar's report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from popc.compiler import Planned
from popc.cost import CostReport, format_costs
from popc.ir import Graph, Op
from popc.popart.device_info import DeviceInfo
from popc.popart.enums import DeviceType
from popc.popart.errors import poplar_exception
from popc.reporting.estimation import costs_of

__all__ = ["costs_on", "summary_of"]

_TRANSFERS: Final = {"HostLoad": "from host", "HostStore": "to host"}
_BLOCKS: Final = {"Loop": "Repeat", "If": "If", "Call": "Call"}
_INDENT: Final = "  "


def costs_on(planned: Planned, device: DeviceInfo) -> CostReport:
    """The costs of a run on IPUs like those of ``device``.

    Raises:
        poplar_exception: the device is none that costs are known of.
        OptionError: it has fewer tiles than the program needs.
    """
    if device.type is DeviceType.Cpu:
        raise poplar_exception("Profiling is disabled for current device type.")
    on = replace(planned.options, target=device.ipuVersion, tiles_per_ipu=device.tilesPerIPU)
    return costs_of(planned, on)


def summary_of(report: CostReport, planned: Planned, *, steps: bool) -> str:
    """Cycles, memory and the most expensive ops, and with ``steps`` the steps of a run."""
    text = format_costs(report)
    if not steps:
        return text
    lines = [f"{_INDENT}{line}" for line in _steps(planned.graph, planned)]
    return "\n".join((text, "Execution:", f"{_INDENT}Switch", *lines, ""))


def _steps(graph: Graph, planned: Planned) -> Iterator[str]:
    """The steps of a graph; transfers in one direction that follow each other are one."""
    yield "Sequence"
    direction = ""
    for op in planned.schedule.orders[graph]:
        before, direction = direction, _TRANSFERS.get(op.op_type, "")
        if op in planned.plan.views or (direction and direction == before):
            direction = direction or before
            continue
        for line in _step(op, planned, direction):
            yield f"{_INDENT}{line}"


def _step(op: Op, planned: Planned, direction: str) -> Iterator[str]:
    if direction:
        yield f"StreamCopy ({direction})"
    elif not op.subgraphs:
        yield f"OnTileExecute: {op.settings.origin} ({op.op_type})"
    else:
        yield _BLOCKS.get(op.op_type, op.op_type)
        for nested in op.subgraphs.values():
            for line in _steps(nested, planned):
                yield f"{_INDENT}{line}"
