"""The process that MPI's launcher has started, when its work is done by a child of it.

Launchers end all processes at once when one of them has died, and some do not even say which rank
that was.  So the work is done by a child, which the launcher does not know: when that is killed its
keeper is still there, tells its rank, and gives the others time to tell why they end.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from types import FrameType
from typing import Final

__all__ = ["keep"]

_GRACE_SECONDS: Final = 2.0  # for the others, who hear of it at once, to end by themselves
_PARENT_DIES: Final = 1  # PR_SET_PDEATHSIG of prctl
_RELAYED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def keep(rank: int) -> None:
    """Go on in a child; this process waits for it, and ends as it has ended.

    Systems other than Linux go on as they are: they cannot end a child with its parent.
    """
    if not sys.platform.startswith("linux"):
        return
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    own = os.getpid()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(_PARENT_DIES, signal.SIGKILL)
        if os.getppid() != own:
            os._exit(1)  # it has died before it could be told
        return

    def relay(number: int, frame: FrameType | None) -> None:
        del frame
        os.kill(child, number)

    for relayed in _RELAYED:
        signal.signal(relayed, relay)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.strsignal(number) or "a signal"
        line = f"error: rank {rank} (process {child}) was ended by signal {number} ({name})\n"
        os.write(2, line.encode())
        time.sleep(_GRACE_SECONDS)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))
