"""The server as a process: its command, its signals, its workers."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="needs the group serve: make test-serve")
pytest.importorskip("tritonclient.grpc", reason="needs the group serve: make test-serve")

from benchmarks.server_process import COMMAND, server_process
from tests.serving.running import expected, save


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("process") / "net.popx")


def _infer(address: str) -> Any:
    connection = HTTPConnection(address)
    given = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [1.0] * 16}
    connection.request("POST", "/v2/models/net/infer", json.dumps({"inputs": [given]}))
    document = json.loads(connection.getresponse().read())
    connection.close()
    return document["outputs"][0]["data"]


def _post(address: str, path: str) -> int:
    connection = HTTPConnection(address)
    connection.request("POST", path)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(archive: Path) -> None:
    with server_process(f"net={archive}", "--workers", "2") as server:
        workers = [server.wait_for("worker ready")["worker"] for _ in range(2)]
        address = server.wait_for("serving")["http"]
        assert _post(address, "/v2/repository/models/net/unload") == 200
        os.kill(workers[0], signal.SIGKILL)
        assert server.wait_for("worker ended, another one starts")["worker"] == workers[0]
        assert server.wait_for("worker ready")["worker"] not in workers
        assert _post(address, "/v2/repository/models/net/load") == 200
        for _ in range(8):  # whichever worker takes it
            np.testing.assert_allclose(_infer(address), expected(np.ones(16, "f4")), rtol=1e-5)
        server.popen.send_signal(signal.SIGTERM)
        server.wait_for("ended")
        assert server.popen.wait(120) == 0


@pytest.mark.slow
def test_workers_end_with_their_parent(archive: Path) -> None:
    with server_process(f"net={archive}") as server:
        worker = server.wait_for("worker ready")["worker"]
        server.wait_for("serving")
        server.popen.kill()
        until = time.monotonic() + 120
        while time.monotonic() < until and _is_running(worker):
            time.sleep(0.05)
        assert not _is_running(worker)


def _is_running(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def _refused(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_everything_wrong_with_a_command_line_is_told(archive: Path) -> None:
    code, text = _refused(f"net={archive}", f"net={archive}", "--workers", "0")
    assert code == 2
    assert re.search(r"version 1 2 times .*write net:2=\.\.\. for another", text)
    assert "the number of workers must be at least 1" in text


@pytest.mark.slow
def test_archives_and_ports_are_looked_at_before_anything_starts(
    archive: Path, tmp_path: Path
) -> None:
    (tmp_path / "text.popx").write_text("no archive", encoding="utf-8")
    code, text = _refused(f"a={tmp_path}/missing.popx", f"b={tmp_path}/text.popx")
    assert code == 2
    assert "missing.popx" in text
    assert "not a popc archive" in text or "not an archive" in text
    assert _refused(f"a={tmp_path}/missing.popx")[0] == 7
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, text = _refused(f"net={archive}", "--http-port", port)
        assert code == 7
        assert f"cannot listen on 127.0.0.1:{port} for HTTP: another process has it" in text
        code, text = _refused(f"net={archive}", "--http-port", "0", "--grpc-port", port)
        assert f"127.0.0.1:{port} for gRPC: another process has it" in text
