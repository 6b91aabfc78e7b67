"""Groups by MPI; the only module that knows mpi4py."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import mpi4py

from popc_runtime.groups.keeper import keep
from popc_runtime.groups.notices import Notices
from popc_runtime.groups.transport import Span

__all__ = ["MpiTransport", "world"]

_MODULE: Final = "mpi4py.MPI"
_EAGER: Final = 50  # looks at an exchange without a pause
_PATIENT: Final = 2000  # and with others let in between
_IDLE_MS: Final = 1  # a pause, which news end


def world(rank: int, *, launched: bool) -> Any:
    """All processes, in a communicator of their own."""
    if _MODULE not in sys.modules:
        if launched:
            keep(rank)
        mpi4py.rc.finalize = False  # which would wait for processes that have died
    from mpi4py import MPI

    return MPI.COMM_WORLD.Dup()


class MpiTransport:
    """See `Transport`."""

    def __init__(self, communicator: Any) -> None:
        from mpi4py import MPI

        self._byte = MPI.BYTE
        self._finalize, self._is_finalized = MPI.Finalize, MPI.Is_finalized
        self._ends_mpi = mpi4py.rc.finalize is False
        self._communicator = communicator
        self.rank, self.size = communicator.rank, communicator.size
        self._notices = Notices(self.rank, self.size, communicator.allgather)
        self._has_ended = False
        atexit.register(self._at_exit)

    def exchange(
        self,
        outgoing: memoryview,
        sent: Sequence[Span],
        incoming: memoryview,
        received: Sequence[Span],
        is_over: Callable[[], bool],
    ) -> bool:
        """See `Transport`."""
        # Kept until it has ended: MPI may write to the memory of one that was given up.
        self._request = request = self._communicator.Ialltoallv(
            self._message(outgoing, sent), self._message(incoming, received)
        )
        looks = 0
        while not request.Test():
            looks += 1
            if looks % _EAGER:
                continue
            self._notices.check(_IDLE_MS if looks > _PATIENT * _EAGER else 0)
            os.sched_yield()
            if is_over():
                return False
        return True

    def _message(self, memory: memoryview, spans: Sequence[Span]) -> list[Any]:
        firsts, counts = [first for first, _ in spans], [count for _, count in spans]
        return [memory, counts, firsts, self._byte]

    def tell(self, text: str) -> None:
        """See `Transport`."""
        self._notices.tell(text)

    def close(self) -> None:
        """See `Transport`."""
        self._has_ended = True
        self._notices.close()

    def _at_exit(self) -> None:
        """End MPI if all have come to the end; else let the others hear of it, and do not wait."""
        if not self._has_ended:
            self._notices.tell("it has ended without leaving the group")
            self._notices.linger()
            if not self._ends_mpi:  # others have started it, and would end it now
                for stream in (sys.stdout, sys.stderr):
                    stream.flush()
                os._exit(1)
        elif self._ends_mpi and not self._is_finalized():
            self._communicator.Free()
            self._finalize()
