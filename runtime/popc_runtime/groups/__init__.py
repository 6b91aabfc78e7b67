"""Replicas of one program in several processes.

A `Group` is one process among those that train together, and all that it knows of the others.
`join` makes it of MPI, `run_loopback` of threads of one process.
"""

from __future__ import annotations

from popc_runtime.ground.hints import TYPE_CHECKING
from popc_runtime.ground.lazy import lazy_names

if TYPE_CHECKING:
    from popc_runtime.groups.group import Group, GroupExchange, once
    from popc_runtime.groups.joining import is_launched, join
    from popc_runtime.groups.loopback import run_loopback
    from popc_runtime.groups.share import ReplicaShare, local_manifest

__all__ = [
    "Group",
    "GroupExchange",
    "ReplicaShare",
    "is_launched",
    "join",
    "local_manifest",
    "once",
    "run_loopback",
]

__getattr__ = lazy_names(
    __name__,
    {
        "GroupExchange": "popc_runtime.groups.group",
        "Group": "popc_runtime.groups.group",
        "ReplicaShare": "popc_runtime.groups.share",
        "is_launched": "popc_runtime.groups.joining",
        "join": "popc_runtime.groups.joining",
        "local_manifest": "popc_runtime.groups.share",
        "once": "popc_runtime.groups.group",
        "run_loopback": "popc_runtime.groups.loopback",
    },
)
