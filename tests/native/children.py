"""Work that may end its process, in a process of its own."""

from __future__ import annotations

import mmap
import os
import resource
import signal
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["Tell", "in_a_child"]

_SECONDS: Final = 60  # for each thing that is told
# Is told the number of what is tried next, and what that is.
Tell: TypeAlias = Callable[[int, str], None]


def in_a_child(work: Callable[[Tell], str]) -> tuple[str, int]:
    """What ``work`` gives in a process of its own, or how that has ended; what it told last."""
    reading, writing = os.pipe()
    progress = mmap.mmap(-1, mmap.PAGESIZE)

    def tell(number: int, label: str) -> None:
        signal.alarm(_SECONDS)
        progress.seek(0)
        progress.write(f"{number}:{label}\n".encode())

    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            os.write(writing, work(tell).encode())
        except BaseException as error:  # noqa: BLE001 - the child ends here
            os.write(writing, repr(error).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        problem = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        problem = f"signal {os.WTERMSIG(status)}"
    elif status:  # sanitizers end a process so
        problem = f"exit code {os.WEXITSTATUS(status)}"
    progress.seek(0)
    number, label = progress.readline().decode().rstrip().split(":", 1)
    return (f"{problem}: {label}" if problem else ""), int(number)
