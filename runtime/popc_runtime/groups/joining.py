"""Joining the processes that were started together with this one."""

from __future__ import annotations

import atexit
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from popc_runtime.errors import GroupError, UsageError
from popc_runtime.groups.group import Group

if TYPE_CHECKING:
    from popc_runtime.groups.mpi import MpiTransport

__all__ = ["is_launched", "join"]

# Variables of launchers: how many processes they have started, and the number of this one.
_SIZES: Final = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
_RANKS: Final = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")


def _number(names: tuple[str, ...], default: int) -> int:
    found = (os.environ[name] for name in names if os.environ.get(name, "").isdigit())
    return int(next(found, default))


def is_launched() -> bool:
    """True if a launcher of MPI has started this process and others with it."""
    return _number(_SIZES, 1) > 1


def join(communicator: Any = None) -> Group:
    """The group of all processes that mpiexec has started, or of a communicator of mpi4py's.

    To be called once, before threads are started: the process goes on in a child of its own, so
    that somebody is left to tell which rank was killed.

    Raises:
        UsageError: mpi4py is not installed, or belongs to another MPI than the launcher.
    """
    group = Group(_transport(communicator))
    atexit.register(_leave, group)
    return group


def _leave(group: Group) -> None:
    """Leave a group at the end of a program that does not end by an exception."""
    if getattr(sys, "last_value", None) is None:
        with suppress(GroupError):
            group.close()


def _transport(communicator: Any) -> MpiTransport:
    try:
        import mpi4py  # noqa: F401 - the part that does not start MPI
    except ImportError:
        raise UsageError(
            "processes exchange data by MPI, but mpi4py is not installed",
            hint='pip install "popc-runtime[mpi]"',
        ) from None
    from popc_runtime.groups.mpi import MpiTransport, world

    size, rank = _number(_SIZES, 1), _number(_RANKS, 0)
    if communicator is None:
        communicator = world(rank, launched=size > 1)
        if communicator.size != size:
            raise UsageError(
                f"the launcher has started {size} processes, but MPI knows of {communicator.size}",
                hint="mpi4py was built for another MPI than the mpiexec that was called",
            )
    return MpiTransport(communicator)
