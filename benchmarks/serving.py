"""Load a server as 64 clients do, count what becomes of every request, and measure.

    python -m benchmarks.serving [--requests 10000] [--clients 64] [--kill] [--json FILE]

A server is started as users start it, and asked by Triton's clients over HTTP and over gRPC, in
turn with the same server around onnxruntime, so that figures of one run belong together.  A
twentieth of the requests are wrong; every answer is compared with numpy's.  ``--kill`` ends a
worker by SIGKILL again and again meanwhile: clients repeat what broke off, and nothing may be
answered wrongly or never.  The exit code is 1 if anything was.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
from geventhttpclient.response import HTTPConnectionClosed
from onnx import numpy_helper, parser
from tritonclient import grpc as triton_grpc
from tritonclient import http as triton_http
from tritonclient.utils import InferenceServerException

import popc
from popc.cli.report import format_table

_WIDTH: Final = 256
_HIDDEN: Final = 1024
_CLASSES: Final = 16
_SIZES: Final = (1, 2, 4, 8, 16, 32, 64)
_NET: Final = f"""<ir_version: 9, opset_import: ["" : 17]>
net (float[batch, {_WIDTH}] x) => (float[batch, {_CLASSES}] y) {{
    a = MatMul (x, w1)
    b = Relu (a)
    c = MatMul (b, w2)
    d = Relu (c)
    y = MatMul (d, w3)
}}"""
_CLIENTS: Final = {"http": triton_http, "grpc": triton_grpc}
_WRONG: Final = 20  # each so many requests one is wrong
_AGAIN: Final = 600  # times that a client repeats a request that broke off


class _Weights(NamedTuple):
    """The model, for numpy."""

    layers: list[Any]

    @classmethod
    def drawn(cls) -> _Weights:
        draw = np.random.default_rng(0)
        shapes = ((_WIDTH, _HIDDEN), (_HIDDEN, _HIDDEN), (_HIDDEN, _CLASSES))
        return cls([(draw.standard_normal(s) / s[0] ** 0.5).astype(np.float32) for s in shapes])

    def model(self) -> onnx.ModelProto:
        made = parser.parse_model(_NET)
        made.graph.initializer.extend(
            numpy_helper.from_array(layer, f"w{n}") for n, layer in enumerate(self.layers, 1)
        )
        return made

    def results(self, x: Any) -> Any:
        for layer in self.layers[:-1]:
            x = np.maximum(x @ layer, 0)
        return x @ self.layers[-1]


class _Load:
    """Requests, which clients take from one list, and what has become of them."""

    def __init__(self, address: str, protocol: str, count: int, weights: _Weights) -> None:
        self._address = address
        self._kind: Any = _CLIENTS[protocol]
        draw = np.random.default_rng(1)
        self._inputs = [
            draw.standard_normal((1 + n % 3, _WIDTH)).astype(np.float32) for n in range(97)
        ]
        self._expected = [weights.results(x) for x in self._inputs]
        self._numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in range(count):
            self._numbers.put(number)
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []

    def run(self, clients: int) -> float:
        """Seconds until all requests have become something."""
        threads = [threading.Thread(target=self._client) for _ in range(clients)]
        start = perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return perf_counter() - start

    def _client(self) -> None:
        client = self._kind.InferenceServerClient(self._address)
        while True:
            try:
                number = self._numbers.get_nowait()
            except queue.Empty:
                break
            start = perf_counter()
            outcome = self._outcome(client, number)
            self.seconds.append(perf_counter() - start)
            self.counts[outcome] += 1
        client.close()

    def _outcome(self, client: Any, number: int) -> str:
        """The fate of a request."""
        is_wrong = number % _WRONG == _WRONG - 1
        place = number % len(self._inputs)
        x = self._inputs[place]
        if is_wrong:
            x = x[:, : 1 + number % (_WIDTH - 1)]
        given = self._kind.InferInput("x", list(x.shape), "FP32")
        given.set_data_from_numpy(np.ascontiguousarray(x))
        for _ in range(_AGAIN):
            try:
                done = client.infer("net", [given], request_id=str(number))
            except InferenceServerException as error:
                if "no program takes" in str(error) or "nvalid dimensions" in str(error):
                    return "refused" if is_wrong else "refused, though right"
            except (OSError, HTTPException, HTTPConnectionClosed):
                pass
            else:
                return self._compared(done, place, number, is_wrong=is_wrong)
            self.counts["repeated"] += 1
            sleep(0.1)
        return "lost"

    def _compared(self, done: Any, place: int, number: int, *, is_wrong: bool) -> str:
        if is_wrong:
            return "answered, though wrong"
        reply = done.get_response()
        name = reply["id"] if isinstance(reply, dict) else reply.id
        y, expected = done.as_numpy("y"), self._expected[place]
        same = y.shape == expected.shape and np.allclose(y, expected, rtol=1e-3, atol=1e-3)
        return "right" if same and name == str(number) else "another's result"


@contextmanager
def _server(command: list[str]) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A server, and what it says when it begins."""
    made = subprocess.Popen(
        [*command, "--http-port", "0", "--grpc-port", "0", "--log-format", "json"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert made.stderr is not None
    ready: dict[str, Any] = {}
    for line in made.stderr:
        try:
            ready = json.loads(line)
        except ValueError:
            print(line, end="", file=sys.stderr)
        if ready.get("event") == "serving":
            break
    reader = threading.Thread(target=made.stderr.read, daemon=True)
    reader.start()
    try:
        yield made, ready
    finally:
        made.send_signal(signal.SIGTERM)
        made.wait(60)


def _workers(parent: int) -> list[int]:
    """The processes that a server has started to answer requests."""
    path = Path(f"/proc/{parent}/task/{parent}/children")
    listed = [int(number) for number in path.read_text(encoding="ascii").split()]
    return [each for each in listed if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes()]


def _resident(parent: int) -> int:
    """Bytes in memory of all workers."""
    return sum(
        int(Path(f"/proc/{each}/statm").read_text(encoding="ascii").split()[1])
        * os.sysconf("SC_PAGESIZE")
        for each in _workers(parent)
    )


def _killing(server: subprocess.Popen[str], ended: threading.Event) -> None:
    """End a worker every five seconds."""
    while not ended.wait(5):
        workers = _workers(server.pid)
        if workers:
            os.kill(workers[0], signal.SIGKILL)


def _measured(
    command: list[str], protocol: str, arguments: argparse.Namespace, weights: _Weights
) -> dict[str, Any]:
    """The figures of one server by one protocol."""
    with _server(command) as (server, ready):
        warm = _Load(ready[protocol], protocol, 10 * arguments.clients, weights)
        warm.run(arguments.clients)
        before = _resident(server.pid)
        load = _Load(ready[protocol], protocol, arguments.requests, weights)
        ended = threading.Event()
        killer = threading.Thread(target=_killing, args=(server, ended))
        if arguments.kill:
            killer.start()
        seconds = load.run(arguments.clients)
        ended.set()
        if arguments.kill:
            killer.join()
        after = _resident(server.pid)
    times = np.array(load.seconds) * 1e3
    figures: dict[str, Any] = {"per second": arguments.requests / seconds}
    figures |= {f"p{p} ms": float(np.percentile(times, p)) for p in (50, 90, 99)}
    figures |= {"memory MB": before / 1e6, "growth MB": (after - before) / 1e6}
    return figures | {"counts": dict(sorted(load.counts.items()))}


def _is_good(counts: Mapping[str, int], requests: int) -> bool:
    """True if every request has become what it should."""
    kept = {name: count for name, count in counts.items() if name != "repeated"}
    return set(kept) <= {"right", "refused"} and sum(kept.values()) == requests


def _arguments() -> argparse.Namespace:
    """The command line."""
    chosen = argparse.ArgumentParser(prog="python -m benchmarks.serving")
    chosen.add_argument("--requests", type=int, default=10_000)
    chosen.add_argument("--clients", type=int, default=64)
    chosen.add_argument("--workers", type=int, default=1)
    chosen.add_argument("--rounds", type=int, default=1)
    chosen.add_argument("--kill", action="store_true", help="end workers meanwhile")
    chosen.add_argument("--json", type=Path, metavar="FILE")
    return chosen.parse_args()


def main() -> int:
    """Measure; see the top of the file."""
    arguments = _arguments()
    weights = _Weights.drawn()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        archive, model = Path(folder) / "net.popx", Path(folder) / "net.onnx"
        onnx.save(weights.model(), model)
        sizes = {"batch": _SIZES}
        options = {"weights": "mmap"}
        popc.compile(weights.model(), dims=sizes, split=["batch"], options=options).save(archive)
        common = ["--workers", str(arguments.workers), "--max-queue", "1024"]
        commands = {
            "popc": [sys.executable, "-m", "popc_runtime.serving", f"net={archive}", *common],
            "onnxruntime": [
                sys.executable,
                "-m",
                "benchmarks.serving_ort",
                f"net={model}",
                *common,
            ],
        }
        if arguments.kill:
            del commands["onnxruntime"]
        for number in range(arguments.rounds):
            for protocol in _CLIENTS:
                for name, command in commands.items():
                    figures = _measured(command, protocol, arguments, weights)
                    rows.append({"server": name, "protocol": protocol, "round": number, **figures})
                    print(rows[-1], flush=True)
    heads = [name for name in rows[0] if name != "counts"]
    cells = [
        [f"{row[name]:.1f}" if isinstance(row[name], float) else str(row[name]) for name in heads]
        for row in rows
    ]
    print(format_table([heads, *cells]))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0 if all(_is_good(row["counts"], arguments.requests) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
