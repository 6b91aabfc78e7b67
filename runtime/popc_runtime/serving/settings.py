"""The settings of a server, and everything that can be wrong with them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from popc_runtime.errors import UsageError
from popc_runtime.format import Limits
from popc_runtime.ground.frozen import frozen
from popc_runtime.process.threads import thread_count

__all__ = ["ModelSource", "ServeSettings", "model_source", "refuse_problems"]

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_LOGS: Final = ("text", "json")
_LEVELS: Final = ("debug", "info", "warning", "error")
_MOST_WORKERS: Final = 1024


@frozen
class ModelSource:
    """An archive under a name; prints as ``digits:2``."""

    name: str
    version: int
    path: str

    def __str__(self) -> str:
        return f"{self.name}:{self.version}"


def model_source(text: str) -> ModelSource:
    """The source that ``NAME=ARCHIVE`` or ``NAME:VERSION=ARCHIVE`` stands for.

    Raises:
        UsageError: it is neither.
    """
    left, found, path = text.partition("=")
    name, _, version = left.partition(":")
    number = int(version or "1") if (version or "1").isdecimal() and len(version) < 10 else 0
    if not found or not path or not _NAME.fullmatch(name) or number < 1:
        raise UsageError(
            f"{text!r:.200} is not NAME=ARCHIVE or NAME:VERSION=ARCHIVE",
            hint="a name has letters, digits, '_', '-' and '.', a version is a number from 1",
        )
    return ModelSource(name, number, path)


@frozen
class ServeSettings:
    """The settings of a server; times in seconds.

    Attributes:
        models: The archives.
        host: The address that is listened on.
        http_port, grpc_port: 0 for any that is free; -1 for none, which only gRPC may have.
        workers: Processes, each with an executable of every model.
        threads: That share a run; 0 for the processors divided among the workers.
        max_batch: The most samples of a run; 0 for those of the largest program.
        max_wait: The time that a request waits for others to share a run with.
        max_queue: Requests that may wait for each model, in each worker.
        max_request_bytes: Of one request.
        max_pending_bytes: Of all requests that a worker is answering.
        timeout: After which a request is given up.
        drain: The time that requests have to end when the server is to end.
        limits: "default" or "strict", as for `popc_runtime.load`.
        engine: As for `popc_runtime.load`.
        signed_by: Public keys, one of which must have signed each archive.
        log_format: "text" or "json".
        log_level: The least level that is written.
        log_requests: Whether a line is written for every request.
    """

    models: tuple[ModelSource, ...]
    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    workers: int = 1
    threads: int = 0
    max_batch: int = 0
    max_wait: float = 0.0
    max_queue: int = 256
    max_request_bytes: int = 64 << 20
    max_pending_bytes: int = 512 << 20
    timeout: float = 30.0
    drain: float = 30.0
    limits: str = "default"
    engine: str = "auto"
    signed_by: tuple[str, ...] = ()
    log_format: str = "text"
    log_level: str = "info"
    log_requests: bool = False

    def check(self) -> None:
        """Check everything that can be told without opening a file or a port.

        Raises:
            UsageError: lists every problem.
        """
        refuse_problems([*self._problems()])
        Limits.of(self.limits)

    @property
    def grpc(self) -> bool:
        """True if there is a port for gRPC."""
        return self.grpc_port >= 0

    def _problems(self) -> Iterator[str]:
        if not self.models:
            yield "there is no model to serve: name one by NAME=ARCHIVE"
        counts = Counter((source.name, source.version) for source in self.models)
        for (name, version), count in counts.items():
            if count > 1:
                paths = [
                    each.path
                    for each in self.models
                    if (each.name, each.version) == (name, version)
                ]
                yield (
                    f"model {name} has version {version} {count} times ({', '.join(paths)}): write "
                    f"{name}:{version + 1}=... for another version"
                )
        for what, port, low in (("HTTP", self.http_port, 0), ("gRPC", self.grpc_port, -1)):
            if not low <= port <= 65535:
                yield f"the port for {what} must be from 0 to 65535, not {port}"
        if self.http_port == self.grpc_port > 0:
            yield f"HTTP and gRPC cannot both have port {self.http_port}"
        yield from self._wrong_numbers()
        for what, word, words in (
            ("log format", self.log_format, _LOGS),
            ("log level", self.log_level, _LEVELS),
        ):
            if word not in words:
                yield f"there is no {what} {word!r}: choose from {', '.join(words)}"

    def _wrong_numbers(self) -> Iterator[str]:
        for what, number, low in (
            ("the number of workers", self.workers, 1),
            ("the number of threads", self.threads, 0),
            ("the largest batch", self.max_batch, 0),
            ("the wait for a batch", self.max_wait, 0),
            ("the length of the queue", self.max_queue, 1),
            ("the largest request", self.max_request_bytes, 1),
            ("the bytes of all requests", self.max_pending_bytes, self.max_request_bytes),
            ("the time for draining", self.drain, 0),
        ):
            if not low <= number < float("inf"):
                yield f"{what} must be at least {low:,}, not {number:,}"
        if not 0 < self.timeout < float("inf"):
            yield f"the time-out must be above 0 seconds, not {self.timeout:g}"
        if self.workers > _MOST_WORKERS:
            yield f"the number of workers must be at most {_MOST_WORKERS:,}, not {self.workers:,}"

    def worker_threads(self) -> int:
        """The threads that share a run in one worker."""
        return self.threads or max(1, thread_count() // self.workers)


def refuse_problems(problems: Sequence[str], *, hint: str = "") -> None:
    """Refuse what has problems.

    Raises:
        UsageError: there are any; lists all.
    """
    if len(problems) == 1:
        raise UsageError(problems[0], hint=hint)
    if problems:
        raise UsageError(
            f"the server has {len(problems)} problems", details=tuple(problems), hint=hint
        )
