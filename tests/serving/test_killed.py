"""A whole server that is killed under load and started again, and what its workers share."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="needs the group serve: make test-serve")
pytest.importorskip("tritonclient.grpc", reason="needs the group serve: make test-serve")

import popc
from benchmarks.server_process import COMMAND, ServerProcess, server_process
from tests.serving.running import expected, save
from tests.support.models import affine

_LIMIT = 240.0  # seconds, so that nothing waits for ever


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]


def _by_http(port: int, x: Any) -> Any:
    """A result, asked for on a connection of its own.

    Raises:
        OSError, HTTPException: there is no answer.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=_LIMIT)
    given = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": x.tolist()}
    try:
        connection.request("POST", "/v2/models/net/infer", json.dumps({"inputs": [given]}))
        reply = connection.getresponse()
        document = json.loads(reply.read())
    finally:
        connection.close()
    assert reply.status == 200, document
    return np.array(document["outputs"][0]["data"], np.float32)


class _Clients:
    """Threads that ask until they are told to end, and repeat what broke off."""

    def __init__(self, ports: tuple[int, int]) -> None:
        self._ports = ports
        self.ended = threading.Event()
        self.right = self.broken = 0
        self.failures: list[Exception] = []
        self._lock = threading.Lock()
        kinds = [self._ask_http] * 3 + [self._ask_grpc] * 3
        self._threads = [
            threading.Thread(target=kind, args=(seed,)) for seed, kind in enumerate(kinds)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        self.ended.set()
        for thread in self._threads:
            thread.join(_LIMIT)
            assert not thread.is_alive()

    def wait_for(self, right: int) -> None:
        """Wait until so many more answers were right."""
        wanted, until = self.right + right, time.monotonic() + _LIMIT
        while self.right < wanted and not self.failures:
            assert time.monotonic() < until
            time.sleep(0.01)

    def _ask_http(self, seed: int) -> None:
        self._ask(seed, lambda x: _by_http(self._ports[0], x), (OSError, HTTPException))

    def _ask_grpc(self, seed: int) -> None:
        from tritonclient import grpc
        from tritonclient.utils import InferenceServerException

        client = grpc.InferenceServerClient(f"127.0.0.1:{self._ports[1]}")

        def ask(x: Any) -> Any:
            given = grpc.InferInput("x", [1, 16], "FP32")
            given.set_data_from_numpy(x.reshape(1, 16))
            try:
                return client.infer("net", [given]).as_numpy("y").reshape(-1)
            except InferenceServerException as error:
                if error.status() == "StatusCode.UNAVAILABLE":
                    raise ConnectionError from error
                raise

        self._ask(seed, ask, (ConnectionError,))
        client.close()

    def _ask(self, seed: int, ask: Any, breaks: tuple[type[Exception], ...]) -> None:
        draw = np.random.default_rng(seed)
        while not self.ended.is_set():
            x = draw.standard_normal(16).astype(np.float32)
            try:
                result = self._repeated(ask, x, breaks)
                np.testing.assert_allclose(result, expected(x), rtol=1e-4, atol=1e-5)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                self.failures.append(error)
                return
            with self._lock:
                self.right += 1

    def _repeated(self, ask: Any, x: Any, breaks: tuple[type[Exception], ...]) -> Any:
        until = time.monotonic() + _LIMIT
        while True:
            try:
                return ask(x)
            except breaks:
                assert time.monotonic() < until
            with self._lock:
                self.broken += 1
            time.sleep(0.05)


def _is_running(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def _wait_until_gone(processes: list[int]) -> None:
    until = time.monotonic() + _LIMIT
    while any(map(_is_running, processes)):
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow
def test_a_killed_server_is_started_again(tmp_path: Path) -> None:
    """On the same ports, at once; clients lose nothing, and nothing is left of either."""
    archive = save(tmp_path / "net.popx")
    folder = tmp_path / "temporary"
    folder.mkdir()
    ports = _free_ports()
    command = [*COMMAND, f"net={archive}", "--workers", "2"]
    environment = {"TMPDIR": str(folder)}
    server = ServerProcess(command, ports=ports, environment=environment)
    server.wait_until_serving()
    clients = _Clients(ports)
    clients.start()
    try:
        for _ in range(2):
            clients.wait_for(100)
            _wait_until_gone(server.kill())
            assert len([*folder.iterdir()]) == 1  # nobody was left to remove it
            server = ServerProcess(command, ports=ports, environment=environment)
            server.wait_until_serving()
            assert len([*folder.iterdir()]) == 1  # that of the new one
        clients.wait_for(100)
    finally:
        clients.join()
        code = server.stop()
    assert clients.failures == []
    assert clients.broken > 0
    assert code == 0
    assert [*folder.iterdir()] == []
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))


def test_folders_are_kept_as_long_as_a_process_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a worker that answers what it has accepted when its parent was killed."""
    from popc_runtime.serving.metrics import DIRECTORY
    from popc_runtime.serving.numbers import numbers_folder, numbers_held

    left = tmp_path / "popc-serve-left"
    left.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(DIRECTORY, str(left))
    with numbers_held(), numbers_folder():
        own = Path(os.environ[DIRECTORY])
        with numbers_folder():
            assert left.is_dir()
            assert own.is_dir()
    assert not own.exists()
    (left / "1.lock").touch()  # as a process leaves it that was killed
    with numbers_folder():
        assert not left.exists()


@pytest.mark.slow
def test_workers_share_mapped_weights(tmp_path: Path) -> None:
    """The pages of an archive that two workers have mapped are in memory once."""
    archive = tmp_path / "net.popx"
    weights = 4 << 20
    popc.compile(affine(1, weights // 8), options={"weights": "mmap"}).save(archive)
    with server_process(f"net={archive}", "--workers", "2") as server:
        server.wait_until_serving()
        found = server.mapped(archive)
        assert len(found) == 2
        for each in found:
            assert each.seen >= weights
            assert each.taken <= 0.51 * each.seen
        assert sum(each.taken for each in found) <= 1.01 * archive.stat().st_size
        assert server.proportional() < server.resident()
        assert server.stop() == 0
