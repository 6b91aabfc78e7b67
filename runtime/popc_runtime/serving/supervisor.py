"""The parent of the workers: ports, signals, restarts, and who is told of loading."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing import connection, get_context
from time import monotonic
from types import FrameType
from typing import Any, Final

from popc_runtime.errors import PopcError, ResourceError, ServingError
from popc_runtime.format import ArchiveFile, Limits
from popc_runtime.format.codec import Codec
from popc_runtime.serving.logs import configure, note
from popc_runtime.serving.numbers import forget_gauges, numbers_folder
from popc_runtime.serving.repository import Loader, archive_model, naming
from popc_runtime.serving.settings import ServeSettings, refuse_problems
from popc_runtime.serving.worker import ServePorts, work

__all__ = ["listening", "serve"]

_KILL_AFTER: Final = 5.0  # seconds beyond the time for draining
_CALM: Final = 1.0  # seconds of answering after which another worker starts without a pause
_LONGEST_PAUSE: Final = 30.0


class _Child:
    """A worker process."""

    def __init__(self, settings: ServeSettings, ports: ServePorts, loader: Loader) -> None:
        context = get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(
            target=work, args=(settings, ports, other, loader), daemon=True
        )
        self.process.start()
        other.close()
        self.ready_at = float("inf")
        self.is_ready = False
        self.is_gone = False  # its pipe is closed


class _Asked:
    """A change that a worker has asked for, and the workers that have not made it yet."""

    def __init__(self, asker: _Child, number: int, waits: set[_Child]) -> None:
        self.asker = asker
        self.number = number
        self.waits = waits
        self.error: Exception | None = None


class _Supervisor:
    """Keeps the workers alive until a signal comes."""

    def __init__(
        self, settings: ServeSettings, ports: ServePorts, wake: int, loader: Loader
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._wake = wake
        self._loader = loader
        self._children: list[_Child] = []
        self._asked: dict[int, _Asked] = {}
        self._count = 0
        self._unloaded: set[str] = set()
        self._pause = 0.0
        self._resume = 0.0
        self._was_ready = False

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT.

        Raises:
            PopcError: a model cannot be loaded at the start.
        """
        try:
            while True:
                self._fill()
                if self._look():
                    return
        finally:
            self._end()

    def _fill(self) -> None:
        """Start the workers that are missing, after a pause if they die quickly."""
        if monotonic() < self._resume:
            return
        while len(self._children) < self._settings.workers:
            self._children.append(_Child(self._settings, self._ports, self._loader))

    def _look(self) -> bool:
        """Wait for news, and act on them; true at the end."""
        pipes = {child.pipe: child for child in self._children if not child.is_gone}
        ends = {child.process.sentinel: child for child in self._children}
        missing = len(self._children) < self._settings.workers
        timeout = max(0.0, self._resume - monotonic()) if missing else None
        for news in connection.wait([*pipes, *ends, self._wake], timeout):
            if news == self._wake:
                return True
            if news in pipes:
                self._receive(pipes[news])
        for child in ends.values():
            if not child.process.is_alive():
                while not child.is_gone and child.pipe.poll():
                    self._receive(child)
                self._bury(child)
        return False

    def _receive(self, child: _Child) -> None:
        try:
            kind, number, *rest = child.pipe.recv()
        except (EOFError, OSError):
            child.is_gone = True
            return
        if kind == "ready":
            self._ready(child)
        elif kind == "failed":
            self._failed(*rest)
        elif kind == "ask":
            self._ask(child, number, *rest)
        else:
            self._done(child, number, *rest)

    def _ready(self, child: _Child) -> None:
        child.is_ready = True
        child.ready_at = monotonic()
        for name in self._unloaded:  # as it is in the others
            self._tell(child, 0, "unload", name)
        note("info", "worker ready", worker=child.process.pid)
        if not self._was_ready and all(each.is_ready for each in self._children):
            self._was_ready = True
            _announce(self._settings, self._ports)

    def _failed(self, error: PopcError) -> None:
        if not self._was_ready:
            raise error
        note("error", "worker cannot load its models", error=error)

    def _ask(self, child: _Child, number: int, action: str, name: str) -> None:
        if action == "unload":
            self._unloaded.add(name)
        self._count += 1
        workers = {each for each in self._children if each.is_ready}
        asked = _Asked(child, number, workers)
        self._asked[self._count] = asked
        if action == "load":
            self._unloaded.discard(name)
        for each in workers:
            self._tell(each, self._count, action, name)

    def _done(self, child: _Child, number: int, error: Exception | None) -> None:
        asked = self._asked.get(number)
        if asked is None:
            return
        asked.error = asked.error or error
        asked.waits.discard(child)
        if not asked.waits:
            del self._asked[number]
            self._tell(asked.asker, asked.number, asked.error, kind="answer")

    def _tell(self, child: _Child, number: int, *what: Any, kind: str = "do") -> None:
        try:
            child.pipe.send((kind, number, *what))
        except OSError:
            child.is_gone = True

    def _bury(self, child: _Child) -> None:
        """A worker has ended though nobody has told it to."""
        self._children.remove(child)
        if not self._was_ready:
            raise ServingError(
                f"a worker ended with code {child.process.exitcode} before it was ready",
                hint="look at what it has written to stderr",
            )
        calm = monotonic() - child.ready_at > _CALM
        self._pause = 0.0 if calm else min(_LONGEST_PAUSE, 2 * self._pause + 0.1)
        self._resume = monotonic() + self._pause
        note(
            "error",
            "worker ended, another one starts",
            worker=child.process.pid,
            code=child.process.exitcode,
            pause=f"{self._pause:.1f}",
        )
        forget_gauges(child.process.pid)
        for number in [*self._asked]:
            self._done(child, number, None)

    def _end(self) -> None:
        """Let workers answer what they have accepted, and end them."""
        note("info", "draining", seconds=self._settings.drain)
        for child in self._children:
            child.process.terminate()
        until = monotonic() + self._settings.drain + _KILL_AFTER
        for child in self._children:
            child.process.join(max(0.0, until - monotonic()))
            if child.process.is_alive():
                note("warning", "worker killed, it did not end", worker=child.process.pid)
                child.process.kill()
                child.process.join()
        note("info", "ended")


def serve(settings: ServeSettings, loader: Loader = archive_model) -> None:
    """Serve until SIGTERM or SIGINT; to be called by the main thread.

    Args:
        settings: What to serve, and how.
        loader: Makes a model of its source, in each worker: a function of a module.

    Raises:
        UsageError: settings or archives are wrong; lists every problem.
        ResourceError: a port is taken.
        PopcError: a model cannot be loaded.
    """
    settings.check()
    configure(settings.log_format, settings.log_level)
    if loader is archive_model:
        _check_archives(settings)
    with listening(settings) as ports, numbers_folder(), _signals() as wake:
        _Supervisor(settings, ports, wake, loader).run()


def _check_archives(settings: ServeSettings) -> None:
    """Look into every archive, so that all problems are told at once.

    Raises:
        UsageError: several cannot be served.
        PopcError: the one that cannot.
    """
    problems: list[PopcError] = []
    for source in settings.models:
        try:
            with (
                naming(source),
                ArchiveFile.open(source.path, limits=Limits.of(settings.limits)) as archive,
            ):
                weights = archive.blobs["weights"]
        except PopcError as error:
            problems.append(error)
            continue
        if weights.codec is not Codec.RAW and settings.workers > 1:
            note(
                "warning",
                "each worker has weights of its own: compile with --set weights=mmap to share them",
                model=source,
                bytes=weights.raw_bytes,
            )
    if len(problems) == 1:
        raise problems[0]
    refuse_problems([str(error).replace("\n", "; ") for error in problems])


@contextmanager
def listening(settings: ServeSettings) -> Iterator[ServePorts]:
    """The ports, which belong to this process until the end.

    Raises:
        ResourceError: they are taken, or the address is none of this machine; lists all.
    """
    problems: list[str] = []
    http = _bound(settings.host, settings.http_port, "HTTP", problems)
    rpc = None
    if settings.grpc:
        # Workers share this port by SO_REUSEPORT, for which anybody's socket would do: so it is
        # first tried without.
        tried = _bound(settings.host, settings.grpc_port, "gRPC", problems)
        if tried is not None:
            port = tried.getsockname()[1]
            tried.close()
            rpc = _bound(settings.host, port, "gRPC", problems, shared=True)
    if problems or http is None:
        raise ResourceError("; ".join(problems), hint="choose other ports, or 0 for any free one")
    with http, rpc or nullcontext():
        http.listen(1024)
        http.setblocking(False)  # noqa: FBT003 - no other way to say it
        address = "" if rpc is None else _address(settings.host, rpc.getsockname()[1])
        yield ServePorts(http, address)


def _bound(
    host: str, port: int, what: str, problems: list[str], *, shared: bool = False
) -> socket.socket | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((host, port))
    except OSError as error:
        made.close()
        in_use = error.errno == errno.EADDRINUSE
        reason = "another process has it" if in_use else error.strerror or str(error)
        problems.append(f"cannot listen on {_address(host, port)} for {what}: {reason}")
        return None
    return made


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _announce(settings: ServeSettings, ports: ServePorts) -> None:
    http = _address(settings.host, ports.http.getsockname()[1])
    models = ",".join(map(str, settings.models))
    facts = {"models": models, "http": http, "workers": settings.workers}
    note("info", "serving", **(facts | ({"grpc": ports.grpc} if ports.grpc else {})))


@contextmanager
def _signals() -> Iterator[int]:
    """A file descriptor that is ready to be read once a signal has come that asks for the end."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def note_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        os.write(writer, b"x")

    kinds = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(kind, note_signal) for kind in kinds]
    try:
        yield reader
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)
        os.close(reader)
        os.close(writer)
