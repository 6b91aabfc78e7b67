"""One process of the server: both protocols on an event loop, a thread for each model."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import uvicorn

from popc_runtime.errors import PopcError
from popc_runtime.ground.frozen import frozen
from popc_runtime.serving.connections import BoundedHttp
from popc_runtime.serving.control import LocalControl, WorkerControl
from popc_runtime.serving.logs import configure, note
from popc_runtime.serving.metrics import Metrics
from popc_runtime.serving.numbers import numbers_held
from popc_runtime.serving.repository import Loader, Repository, archive_model
from popc_runtime.serving.rest import RestApp
from popc_runtime.serving.rpc import rpc_server
from popc_runtime.serving.service import Service
from popc_runtime.serving.settings import ServeSettings

__all__ = ["ServePorts", "Worker", "work"]


@frozen
class ServePorts:
    """A socket that listens for HTTP, and the address for gRPC; "" for none."""

    http: socket.socket
    grpc: str


class _Uvicorn(uvicorn.Server):  # type: ignore[misc]
    """A server that leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """See `uvicorn.Server`."""
        yield


class Worker:
    """Loads all models, and answers requests until it is told to stop."""

    def __init__(
        self, settings: ServeSettings, ports: ServePorts, *, loader: Loader = archive_model
    ) -> None:
        """Nothing is loaded yet."""
        self._settings = settings
        self._ports = ports
        self.metrics = Metrics()
        self.repository = Repository(settings, self.metrics, loader)
        self.service = Service(
            settings, self.repository, self.metrics, LocalControl(self.repository)
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()

    def load(self) -> None:
        """Load all models.

        Raises:
            PopcError: one of them cannot be loaded.
        """
        for name in self.repository.names:
            self.repository.load(name)

    def run(self, started: Callable[[], None] = lambda: None) -> None:
        """Answer requests until `stop`; ``started`` is called as soon as that is so."""
        asyncio.run(self._serve(started))
        self.repository.close()

    def stop(self) -> None:
        """End, once what was accepted is answered; from any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def _serve(self, started: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        with contextlib.suppress(ValueError, RuntimeError):  # not the main thread, in tests
            self._loop.add_signal_handler(signal.SIGTERM, self._stopping.set)
        drain = self._settings.drain
        config = uvicorn.Config(
            RestApp(self.service),
            http=BoundedHttp,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=max(1, round(drain)),
        )
        rest = _Uvicorn(config)
        serving = asyncio.create_task(rest.serve(sockets=[self._ports.http]))
        rpc = None
        if self._ports.grpc:
            rpc = rpc_server(self.service)
            rpc.add_insecure_port(self._ports.grpc)
            await rpc.start()
        while not rest.started and not serving.done():  # noqa: ASYNC110 - it tells in no other way
            await asyncio.sleep(0.005)
        started()
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([stopping, serving], return_when=asyncio.FIRST_COMPLETED)
        self.service.drains = True
        rest.should_exit = True
        await asyncio.gather(serving, *([rpc.stop(drain)] if rpc else []))


def work(
    settings: ServeSettings, ports: ServePorts, pipe: Connection, loader: Loader = archive_model
) -> None:
    """The main function of a worker process; ``pipe`` leads to its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, also for Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    configure(settings.log_format, settings.log_level)
    with numbers_held():
        worker = Worker(settings, ports, loader=loader)
        try:
            worker.load()
        except PopcError as error:
            pipe.send(("failed", 0, error))
            return
        control = WorkerControl(pipe, worker.repository, worker.stop)
        worker.service.control = control
        worker.run(lambda: control.send("ready", 0))
    note("info", "worker ended")
