"""Sessions whose replicas several processes divide among themselves."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from popc.popart.errors import popart_exception
from popc_runtime.groups import join

if TYPE_CHECKING:
    from popc.popart.options import SessionOptions
    from popc_runtime.groups import Group

__all__ = ["common_seed", "group_of"]


@cache
def _joined() -> Group:
    """The processes that mpiexec has started; all sessions share them."""
    return join()


def group_of(options: SessionOptions) -> Group | None:
    """The processes of a session; ``None`` if there is only this one.

    Raises:
        popart_exception: the options do not fit the processes that mpiexec has started.
        UsageError: mpi4py is not installed, or does not fit mpiexec.
    """
    if not options.enableDistributedReplicatedGraphs:
        return None
    group = _joined()
    count = options.replicatedGraphCount if options.enableReplicatedGraphs else 1
    total, offset = options.globalReplicationFactor, options.globalReplicaOffset
    if count * group.size != total:
        raise popart_exception(
            f"globalReplicationFactor is {total}, but mpiexec has started {group.size} processes, "
            f"and replicatedGraphCount is {count}"
        )
    if offset != group.rank * count:
        raise popart_exception(
            f"globalReplicaOffset is {offset}, but the replicas of the process of rank "
            f"{group.rank} begin at {group.rank * count}"
        )
    return group


def common_seed(options: SessionOptions, seed: int) -> int:
    """The seed that all processes of a session begin with: that of the first one.

    Raises:
        popart_exception, UsageError: as `group_of` does.
    """
    group = group_of(options)
    if group is None:
        return seed
    return int.from_bytes(group.once("the seed", lambda: seed.to_bytes(8, "little")), "little")
