"""A server as a process of its own: its log, its workers, what they have in memory, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["COMMAND", "Mapped", "ServerProcess", "server_process"]

COMMAND: Final = (sys.executable, "-m", "popc_runtime.serving")


class Mapped(NamedTuple):
    """Bytes of a file in the memory of processes.

    Attributes:
        seen: The bytes that each of them sees, added up.
        taken: The bytes that they take together: those that several see count once.
    """

    seen: int
    taken: int


class ServerProcess:
    """A server that was started by its command, which logs in JSON."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        ports: tuple[int, int] = (0, 0),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``ports`` are those for HTTP and gRPC; 0 for any free one."""
        http, grpc = map(str, ports)
        self.popen = subprocess.Popen(
            [*command, "--http-port", http, "--grpc-port", grpc, "--log-format", "json"],
            env={**os.environ, **(environment or {})},
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, event: str) -> dict[str, Any]:
        """The next line of its log about an event."""
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            try:
                facts: dict[str, Any] = json.loads(line)
            except ValueError:  # of a library
                sys.stderr.write(line)
                continue
            if facts["event"] == event:
                return facts
        raise AssertionError(f"it ended without {event!r}")

    def wait_until_serving(self) -> dict[str, Any]:
        """Its addresses; what it logs from now on is read by nobody."""
        facts = self.wait_for("serving")
        assert self.popen.stderr is not None
        threading.Thread(target=self.popen.stderr.read, daemon=True).start()
        return facts

    def children(self) -> list[int]:
        """All processes that it has started."""
        path = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children")
        return [int(number) for number in path.read_text(encoding="ascii").split()]

    def workers(self) -> list[int]:
        """The processes that answer requests."""
        return [
            each
            for each in self.children()
            if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()
        ]

    def resident(self) -> int:
        """Bytes in memory of all workers, shared ones of each."""
        return sum(_field(f"/proc/{each}/smaps_rollup", "Rss") for each in self.workers())

    def proportional(self) -> int:
        """Bytes that all workers take together: those that n processes share count as an nth."""
        return sum(_field(f"/proc/{each}/smaps_rollup", "Pss") for each in self.workers())

    def mapped(self, file: Path) -> list[Mapped]:
        """A file that the workers have mapped, for each of them."""
        return [_mapped(each, file) for each in self.workers()]

    def kill(self) -> list[int]:
        """End all of its processes at once, by SIGKILL; which those were."""
        found = [self.popen.pid, *self.children()]
        for each in found:
            os.kill(each, signal.SIGKILL)
        self.close()
        return found

    def stop(self) -> int:
        """Ask it to end, by SIGTERM; its exit code."""
        self.popen.send_signal(signal.SIGTERM)
        code = self.popen.wait(120)
        self.close()
        return code

    def close(self) -> None:
        """End it, if it has not ended, by SIGKILL."""
        self.popen.kill()
        self.popen.wait()
        assert self.popen.stderr is not None
        self.popen.stderr.close()


@contextmanager
def server_process(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """A server on free ports, which ends with the block."""
    made = ServerProcess([*COMMAND, *arguments], environment=environment)
    try:
        yield made
    finally:
        made.close()


def _field(path: str, name: str) -> int:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def _mapped(process: int, file: Path) -> Mapped:
    sums = {"Rss:": 0, "Pss:": 0}
    is_it = False
    for line in Path(f"/proc/{process}/smaps").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            is_it = words[-1] == str(file)
        elif is_it and words[0] in sums:
            sums[words[0]] += int(words[1]) << 10
    return Mapped(*sums.values())
