"""Load a server as 64 clients do, count what becomes of every request, and measure.

    python -m benchmarks.serving [--rounds 5] [--kill worker|server] [--write] [--json FILE]

A server is started as users start it, and asked by Triton's clients over HTTP and over gRPC, in
turn with the same server around onnxruntime, so that figures of one run belong together.  A
twentieth of the requests are wrong; every answer is compared with numpy's.  ``--kill`` ends a
worker, or all processes of the server, by SIGKILL again and again meanwhile: clients repeat what
broke off, and nothing may be answered wrongly or never.  The exit code is 1 if anything was, and
0 otherwise; then ``--write`` puts the figures into docs/serving.md.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from statistics import median
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
from benchmarks.server_process import COMMAND, ServerProcess
from benchmarks.tables import DOCS, write_table
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
_PAUSE: Final = 3  # seconds between kills
_GOOD: Final = ("right", "refused", "repeated")
_COLUMNS: Final = (
    ("per second", 0, ""),
    *((f"p{p} ms", 0, " ms") for p in (50, 90, 99)),
    ("memory MB", 1, " MB"),
    ("growth MB", 1, " MB"),
)
_HEADS: Final = (
    *("server", "protocol", "requests per second", "median", "90 %", "99 %"),
    *("memory", "its growth"),
)
_FATES: Final = ("answered", "refused", "repeated by clients", "lost or wrong")
_KILL_HEADS: Final = {
    "worker": ("a worker is killed", *_FATES),
    "server": ("all processes are killed", *_FATES),
}


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


class _Served:
    """A server; another one takes its place, on its ports, if it was killed as a whole."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self.process = ServerProcess(command)
        self.addresses = self.process.wait_until_serving()

    def killing(self, what: str, ended: threading.Event) -> None:
        """Kill a worker, or all processes, every three seconds; start the latter again at once."""
        while not ended.wait(_PAUSE):
            if what == "worker":
                for worker in self.process.workers()[:1]:
                    os.kill(worker, signal.SIGKILL)
                continue
            self.process.kill()
            ports = [int(self.addresses[each].rpartition(":")[2]) for each in _CLIENTS]
            self.process = ServerProcess(self._command, ports=(ports[0], ports[1]))
            self.process.wait_until_serving()


def _measured(
    command: Sequence[str], protocol: str, arguments: argparse.Namespace, weights: _Weights
) -> dict[str, Any]:
    """The figures of one server by one protocol."""
    served = _Served(command)
    try:
        address = served.addresses[protocol]
        _Load(address, protocol, 10 * arguments.clients, weights).run(arguments.clients)
        before = served.process.resident()
        load = _Load(address, protocol, arguments.requests, weights)
        seconds = load.run(arguments.clients)
        after, together = served.process.resident(), served.process.proportional()
    finally:
        served.process.stop()
    times = np.array(load.seconds) * 1e3
    figures: dict[str, Any] = {"per second": arguments.requests / seconds}
    figures |= {f"p{p} ms": float(np.percentile(times, p)) for p in (50, 90, 99)}
    figures |= {"memory MB": before / 1e6, "growth MB": (after - before) / 1e6}
    return figures | {"together MB": together / 1e6, "counts": dict(sorted(load.counts.items()))}


def _killed(
    command: Sequence[str], protocol: str, arguments: argparse.Namespace, weights: _Weights
) -> dict[str, Any]:
    """The fates of requests to a server that is killed again and again."""
    served = _Served(command)
    load = _Load(served.addresses[protocol], protocol, arguments.requests, weights)
    ended = threading.Event()
    killer = threading.Thread(target=served.killing, args=(arguments.kill, ended))
    killer.start()
    try:
        seconds = load.run(arguments.clients)
    finally:
        ended.set()
        killer.join()
        served.process.stop()
    return {"per second": arguments.requests / seconds, "counts": dict(sorted(load.counts.items()))}


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
    chosen.add_argument("--kill", choices=["worker", "server"], help="kill it meanwhile")
    chosen.add_argument("--json", type=Path, metavar="FILE")
    chosen.add_argument("--write", action="store_true", help="into the table of docs/serving.md")
    return chosen.parse_args()


def _commands(folder: Path, weights: _Weights, arguments: argparse.Namespace) -> dict[str, Any]:
    """The servers by name; that with onnxruntime is not killed."""
    archive, model = folder / "net.popx", folder / "net.onnx"
    onnx.save(weights.model(), model)
    sizes, options = {"batch": _SIZES}, {"weights": "mmap"}
    popc.compile(weights.model(), dims=sizes, split=["batch"], options=options).save(archive)
    common = ["--workers", str(arguments.workers), "--max-queue", "1024"]
    other = [sys.executable, "-m", "benchmarks.serving_ort", f"net={model}", *common]
    own = {"popc": [*COMMAND, f"net={archive}", *common]}
    return own if arguments.kill else own | {"onnxruntime": other}


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    heads = [name for name in rows[0] if name != "counts"]
    cells = [
        [f"{row[name]:.1f}" if isinstance(row[name], float) else str(row[name]) for name in heads]
        for row in rows
    ]
    print(format_table([heads, *cells]))


def _write(rows: Sequence[Mapping[str, Any]], arguments: argparse.Namespace) -> None:
    """Put the medians of all rounds, or what became of the requests, into the document."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["server"], row["protocol"]), []).append(row)
    cells = []
    for (server, protocol), group in groups.items():
        name = {"http": "HTTP", "grpc": "gRPC"}[protocol]
        if arguments.kill:
            counts = sum((Counter(row["counts"]) for row in group), Counter[str]())
            fates = [f"{counts[each]:,}" for each in ("right", "refused", "repeated")]
            bad = sum(counts.values()) - sum(counts[each] for each in _GOOD)
            cells.append([name, *fates, str(bad)])
            continue
        found = [
            f"{median(row[figure] for row in group):.{places}f}{unit}"
            for figure, places, unit in _COLUMNS
        ]
        cells.append([server, name, *found])
    heads = _KILL_HEADS[arguments.kill] if arguments.kill else _HEADS
    write_table(DOCS / "serving.md", heads, cells)


def main() -> int:
    """Measure; see the top of the file."""
    arguments = _arguments()
    weights = _Weights.drawn()
    rows: list[dict[str, Any]] = []
    measure = _killed if arguments.kill else _measured
    with tempfile.TemporaryDirectory() as folder:
        commands = _commands(Path(folder), weights, arguments)
        for number in range(arguments.rounds):
            for protocol in _CLIENTS:
                for name, command in commands.items():
                    figures = measure(command, protocol, arguments, weights)
                    rows.append({"server": name, "protocol": protocol, "round": number, **figures})
                    print(rows[-1], flush=True)
    _print(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if not all(_is_good(row["counts"], arguments.requests) for row in rows):
        return 1
    if arguments.write:
        _write(rows, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
