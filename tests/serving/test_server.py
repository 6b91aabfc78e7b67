"""A running server, asked by Triton's clients and by plain HTTP."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="needs the group serve: make test-serve")
pytest.importorskip("tritonclient.grpc", reason="needs the group serve: make test-serve")
pytest.importorskip("tritonclient.http", reason="needs the group serve: make test-serve")

from tritonclient import grpc as triton_grpc
from tritonclient import http as triton_http
from tritonclient.utils import InferenceServerException

from tests.serving.running import Running, expected, running, save

_DRAW = np.random.default_rng(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("serving")
    save(made / "one.popx")
    save(made / "two.popx", seed=2)
    return made


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    sources = (f"net={folder}/one.popx", f"net:2={folder}/two.popx", f"other={folder}/two.popx")
    with running(*sources, max_request_bytes=1 << 20, max_pending_bytes=1 << 20) as made:
        yield made


class _Client:
    """Either client of Triton, by one interface."""

    def __init__(self, kind: Any, address: str) -> None:
        self._kind = kind
        self.triton = kind.InferenceServerClient(address)

    def infer(self, x: Any, *, model: str = "net", version: str = "", **keywords: Any) -> Any:
        given = self._kind.InferInput("x", list(x.shape), keywords.pop("datatype", "FP32"))
        given.set_data_from_numpy(x)
        done = self.triton.infer(model, [given], version, **keywords)
        return done.as_numpy("y")


@pytest.fixture(params=["http", "grpc"])
def client(request: pytest.FixtureRequest, server: Running) -> Iterator[_Client]:
    kind = triton_http if request.param == "http" else triton_grpc
    made = _Client(kind, getattr(server, request.param))
    yield made
    made.triton.close()


def _ask(
    server: Running, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    connection = HTTPConnection(server.http)
    data = json.dumps(body) if isinstance(body, dict | list) else body
    connection.request(method, path, data, headers or {})
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    kind = reply.headers["content-type"]
    return reply.status, json.loads(text) if kind == "application/json" else text.decode()


def _json_request(*numbers: float, **others: Any) -> dict[str, Any]:
    given = {"name": "x", "shape": [1, 16], "datatype": "FP32", "data": [*numbers]}
    return {"inputs": [given | others]}


@pytest.mark.parametrize("size", [1, 3, 8, 21])
@pytest.mark.parametrize(("version", "seed"), [("", 2), ("1", 0), ("2", 2)])
def test_inference(client: _Client, size: int, version: str, seed: int) -> None:
    x = _DRAW.standard_normal((size, 16)).astype(np.float32)
    np.testing.assert_allclose(
        client.infer(x, version=version), expected(x, seed), rtol=1e-5, atol=1e-5
    )


def test_metadata_and_health(client: _Client) -> None:
    triton = client.triton
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("net", "2")
    assert not triton.is_model_ready("net", "3")
    assert not triton.is_model_ready("nothing")
    keywords = {"as_json": True} if isinstance(triton, triton_grpc.InferenceServerClient) else {}
    facts = triton.get_model_metadata("net", **keywords)
    assert facts["versions"] == ["1", "2"]
    assert [int(size) for size in facts["inputs"][0]["shape"]] == [-1, 16]
    assert facts["inputs"][0]["datatype"] == "FP32"
    assert triton.get_server_metadata(**keywords)["name"] == "popc"


@pytest.mark.parametrize(
    ("shape", "keywords", "said"),
    [
        ((1, 17), {}, r"no program takes x: \[1, 17\]"),
        ((16,), {}, r"got float32\[16\]"),
        ((1, 16), {"model": "nothing"}, "there is no model 'nothing'"),
        ((1, 16), {"version": "7"}, "model net has no version '7'"),
        ((1, 16), {"datatype": "INT32"}, "expected datatype FP32, got 'INT32'"),
        ((20000, 16), {}, "1,280,|larger"),
    ],
)
def test_bad_requests_are_refused(
    client: _Client, shape: tuple[int, ...], keywords: dict[str, str], said: str
) -> None:
    kind = np.int32 if "datatype" in keywords else np.float32
    with pytest.raises(InferenceServerException, match=said):
        client.infer(np.ones(shape, kind), **keywords)


def test_requests_without_binary_data(server: Running) -> None:
    x = np.arange(16, dtype=np.float32)
    status, document = _ask(server, "POST", "/v2/models/other/infer", _json_request(*x.tolist()))
    assert status == 200
    (output,) = document["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("y", "FP32", [1, 8])
    np.testing.assert_allclose(output["data"], expected(x, 2), rtol=1e-5)
    assert document["model_version"] == "1"


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "said"),
    [
        ("GET", "/nothing", None, {}, 404, "there is no GET /nothing"),
        ("GET", "/v2/models/net/versions/9", None, {}, 404, "no version '9'"),
        ("POST", "/v2/models/net/infer", "{", {}, 400, "not JSON"),
        ("POST", "/v2/models/net/infer", "[]", {}, 400, "not a JSON object"),
        ("POST", "/v2/models/net/infer", {"inputs": 1}, {}, 400, "'inputs' is not a list"),
        ("POST", "/v2/models/net/infer", {"inputs": []}, {}, 400, "input 'x' is missing"),
        ("POST", "/v2/models/net/infer", _json_request(1, 2), {}, 400, "16 elements, got 2"),
        ("POST", "/v2/models/net/infer", _json_request(shape="a"), {}, 400, "list of whole"),
        ("POST", "/v2/models/net/infer", "{}", {"content-encoding": "gzip"}, 400, "compressed"),
        (
            *("POST", "/v2/models/net/infer", "{}"),
            *({"inference-header-content-length": "9"}, 400, "the body has 2 bytes"),
        ),
        ("POST", "/v2/models/net/infer", "x" * (2 << 20), {}, 413, "more than 1,048,576"),
        ("POST", "/v2/repository/models/nothing/load", "", {}, 404, "there is no model"),
        ("POST", "/v2/repository/index", "[" * 100_000, {}, 400, "not JSON"),
        (
            *("POST", "/v2/models/net/infer"),
            *({**_json_request(1), "parameters": {"timeout": 10**400}}, {}, 400, "microseconds"),
        ),
    ],
)
def test_http_errors(
    server: Running, method: str, path: str, body: Any, headers: Any, status: int, said: str
) -> None:
    found, document = _ask(server, method, path, body, headers)
    assert (found, said in document["error"]) == (status, True), document


def _said(server: Running, sent: bytes) -> bytes:
    """What comes back on a connection until it is closed."""
    host, _, port = server.http.partition(":")
    with socket.create_connection((host, int(port)), timeout=240) as made:
        made.sendall(sent)
        return b"".join(iter(lambda: made.recv(1 << 16), b""))


@pytest.mark.parametrize("part", [b"X: ", b"X" * 50_000, b"X: y\r\n" * 10_000])
def test_heads_of_requests_are_bounded(server: Running, part: bytes) -> None:
    """By the last byte of this one, so that nothing is left unread that would reset it."""
    text = _said(server, (b"GET /v2 HTTP/1.1\r\n" + part).ljust(65_537, b"a"))
    assert text.startswith(b"HTTP/1.1 400 ")
    assert b"more than 65536 bytes" in text


@pytest.mark.parametrize("sent", [b"", b"GET /v2 HTTP/1.1\r\nX: ", b"GET /v2 HTTP/1.1\r\nA: b\r\n"])
def test_connections_that_bring_nothing_are_closed(
    server: Running, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popc_runtime.serving.connections._HEAD_SECONDS", 0.05)
    assert b"No request has come" in _said(server, sent)


def test_models_come_and_go(client: _Client, server: Running, folder: Path) -> None:
    x = np.ones((1, 16), np.float32)
    client.triton.unload_model("other")
    with pytest.raises(InferenceServerException, match="other is not loaded"):
        client.infer(x, model="other")
    states = {
        (row["name"], row["version"]): row["state"]
        for row in _ask(server, "POST", "/v2/repository/index")[1]
    }
    assert states == {("net", "1"): "READY", ("net", "2"): "READY", ("other", "1"): "UNAVAILABLE"}
    assert client.triton.is_server_ready()  # that is what somebody wanted
    damaged = folder / "two.popx"
    kept = folder / "kept.popx"
    shutil.move(damaged, kept)
    damaged.write_bytes(kept.read_bytes()[:-100])
    with pytest.raises(InferenceServerException, match=re.escape(f"other:1={damaged}: ")):
        client.triton.load_model("other")
    shutil.move(kept, damaged)
    client.triton.load_model("other")
    np.testing.assert_allclose(client.infer(x, model="other"), expected(x, 2), rtol=1e-5)


@contextmanager
def _asking(server: Running, model: str) -> Iterator[list[Exception]]:
    """Three clients that ask during the block; their errors, none of which is a wrong answer."""
    client = _Client(triton_grpc, server.grpc)
    ended, failures = threading.Event(), []

    def ask() -> None:
        x = np.ones((1, 16), np.float32)
        while not ended.is_set():
            try:
                found = client.infer(x, model=model)
                np.testing.assert_allclose(found, expected(x, 2), rtol=1e-5)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    yield failures
    ended.set()
    for thread in threads:
        thread.join()
    client.triton.close()


def test_load_while_requests_run(server: Running) -> None:
    """None is lost when a model is replaced by another version of its file."""
    with _asking(server, "net") as failures:
        for _ in range(5):
            assert _ask(server, "POST", "/v2/repository/models/net/load")[0] == 200
    assert failures == []


def test_unload_while_requests_run(server: Running) -> None:
    """Each request is answered, or told that the model is not loaded."""
    with _asking(server, "other") as failures:
        for action in ("unload", "load") * 5:
            assert _ask(server, "POST", f"/v2/repository/models/other/{action}")[0] == 200
    assert all("model other is not loaded" in str(error) for error in failures), failures[-1]


class _Held:
    """A model that runs once it is let go."""

    def __init__(self, model: Any) -> None:
        self._run = model.run
        self.go, self.begun = threading.Event(), threading.Event()
        model.run = self

    def __call__(self, arrays: Any, timeout: float | None) -> Any:
        self.begun.set()
        assert self.go.wait(120)
        return self._run(arrays, timeout)


def _hold(made: Running) -> _Held:
    return _Held(made.worker.repository.find("net")[1].model)


def test_back_pressure_and_time_outs(folder: Path) -> None:
    x = np.ones((1, 16), np.float32)
    with running(f"net={folder}/one.popx", max_queue=1, timeout=60) as made:
        held = _hold(made)
        results: list[Any] = []
        client = _Client(triton_grpc, made.grpc)
        threads = [
            threading.Thread(target=lambda: results.append(client.infer(x))) for _ in range(2)
        ]
        threads[0].start()
        assert held.begun.wait(60)
        threads[1].start()
        runner = made.worker.repository.find("net")[1]
        while not runner.waiting:
            time.sleep(0.005)
        status, document = _ask(made, "POST", "/v2/models/net/infer", _json_request(*range(16)))
        assert (status, document["error"].split("\n")[0]) == (
            503,
            "the queue of model net:1 is full, 1 wait",
        )
        with pytest.raises(InferenceServerException, match="is full") as caught:
            client.infer(x)
        assert caught.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
        held.go.set()
        for thread in threads:
            thread.join()
        assert len(results) == 2
        held.go.clear()
        late = _json_request(*range(16)) | {"parameters": {"timeout": 20_000}}
        assert _ask(made, "POST", "/v2/models/net/infer", late)[0] == 504
        with pytest.raises(InferenceServerException, match=r"[Dd]eadline|given up"):
            client.infer(x, client_timeout=0.05)
        held.go.set()
        client.triton.close()


def test_what_was_accepted_is_answered_before_the_end(folder: Path) -> None:
    x = np.ones((2, 16), np.float32)
    results: list[Any] = []
    with running(f"net={folder}/one.popx") as made:
        held = _hold(made)
        clients = [_Client(triton_grpc, made.grpc), _Client(triton_grpc, made.grpc)]
        threads = [
            threading.Thread(target=lambda each=each: results.append(each.infer(x)))
            for each in clients
        ]
        for thread in threads:
            thread.start()
        assert held.begun.wait(60)
        while made.worker.service.pending < 2:
            time.sleep(0.005)
        made.worker.stop()
        while not made.worker.service.drains:
            time.sleep(0.005)
        held.go.set()
        for thread in threads:
            thread.join()
    for result in results:
        np.testing.assert_allclose(result, expected(x), rtol=1e-5)
    assert len(results) == 2


def test_requests_are_counted(server: Running) -> None:
    _ask(server, "POST", "/v2/models/net/infer", _json_request(*range(16)))
    status, text = _ask(server, "GET", "/metrics")
    assert status == 200
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[:1] != "#")
    ok = 'popc_requests_total{model="net",outcome="ok",protocol="http",version="2"}'
    assert float(lines[ok]) >= 1
    assert float(lines['popc_batch_samples_count{model="net",version="2"}']) >= 1
    assert float(lines["popc_pending_requests"]) == 0


def test_spans_continue_those_of_clients(server: Running) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="needs the group serve")
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    parent = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
    _ask(server, "POST", "/v2/models/net/infer", _json_request(*range(16)), parent)
    (span,) = exporter.get_finished_spans()
    assert span.name == "infer"
    assert f"{span.context.trace_id:032x}" == "ab" * 16
    assert span.attributes["model"] == "net"
    assert span.attributes["version"] == "2"
    assert span.attributes["batch.samples"] == 1
