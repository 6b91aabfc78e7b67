"""PopART's options about replicas in several processes.

PopART compiles in each process for the replicas of that process, and is told how many there are in
all.  popc compiles for all, and mpiexec decides how many processes divide them among themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from popc.options.kinds import Kind, Truth, Whole
from popc.options.sources import Setting
from popc_runtime.format import MAX_REPLICAS

__all__ = ["PROCESSES", "all_replicas"]

_SWITCH: Final = "enableDistributedReplicatedGraphs"
_TOTAL: Final = "globalReplicationFactor"
_OFFSET: Final = "globalReplicaOffset"
_LOCAL: Final = ("replicatedGraphCount", "replicated_graph_count")
_HOST: Final = "no effect: what replicas of several processes sum up goes through their hosts"

# By name: kind, default, and what becomes of it.
PROCESSES: Final[dict[str, tuple[Kind[Any], object, str]]] = {
    _SWITCH: (Truth(), False, f"with {_TOTAL}: `replicated_graph_count` is that of all processes"),
    _TOTAL: (Whole(low=1, high=MAX_REPLICAS), 1, f"`replicated_graph_count`, with {_SWITCH}"),
    _OFFSET: (
        Whole(low=0, high=MAX_REPLICAS),
        0,
        "no effect: follows from the rank that mpiexec gives a process",
    ),
    "hostAllReduce": (Truth(), False, _HOST),
    "hostAllReduceRemoteBuffer": (Truth(), False, _HOST),
}


def all_replicas(settings: Iterable[Setting], problems: list[str]) -> list[Setting]:
    """The settings of a source, in which the number of replicas is that of all processes."""
    given = list(settings)
    found = {setting.key: setting for setting in given if setting.key in PROCESSES}
    rest = [setting for setting in given if setting.key not in PROCESSES]
    if not found:
        return rest
    values: dict[str, Any] = {name: default for name, (_, default, _) in PROCESSES.items()}
    before = len(problems)
    for name, setting in found.items():
        try:
            values[name] = PROCESSES[name][0].parse(setting.value)
        except ValueError as error:
            problems.append(f"{name} {error} (in {setting.place})")
    if len(problems) > before:
        return rest
    if not values[_SWITCH]:
        problems += [
            f"{name} is {values[name]} (in {found[name].place}), but {_SWITCH} is not true: set "
            "that too, or leave it out"
            for name in (_TOTAL, _OFFSET)
            if values[name] != PROCESSES[name][1]
        ]
        return rest
    total, local = values[_TOTAL], next((s for s in rest if s.key in _LOCAL), None)
    count = local.value if local is not None and isinstance(local.value, int) else 1
    if count < 1 or total % count:
        problems.append(
            f"{_TOTAL} is {total} (in {found[_SWITCH].place}), which processes with {count} "
            "replicas each do not add up to"
        )
    elif values[_OFFSET] % count or values[_OFFSET] >= total:
        problems.append(
            f"{_OFFSET} is {values[_OFFSET]} (in {found[_OFFSET].place}), but a process begins at "
            f"a multiple of {count} below {total}"
        )
    made = replace(local or found[_SWITCH], key=_LOCAL[0], value=total)
    return [*(setting for setting in rest if setting is not local), made]
