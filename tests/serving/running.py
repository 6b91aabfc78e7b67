"""A server in this process, and models to serve."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper, parser

import popc

_NET = """<ir_version: 9, opset_import: ["" : 17]>
net (float[batch, 16] x) => (float[batch, 8] y) { h = MatMul(x, w)
 y = Relu(h) }"""
SIZES = (1, 2, 4, 8)


def weights(seed: int = 0) -> Any:
    """Of the model: [16, 8]."""
    return np.random.default_rng(seed).standard_normal((16, 8)).astype(np.float32)


def model(seed: int = 0) -> onnx.ModelProto:
    """A layer, whose samples do not know of each other."""
    made = parser.parse_model(_NET)
    made.graph.initializer.append(numpy_helper.from_array(weights(seed), "w"))
    return made


def save(path: Path, seed: int = 0) -> Path:
    """An archive of it, for four sizes of batches."""
    options = {"weights": "mmap"}
    popc.compile(model(seed), dims={"batch": SIZES}, split=["batch"], options=options).save(path)
    return path


def expected(x: Any, seed: int = 0) -> Any:
    """The results, by numpy."""
    return np.maximum(x @ weights(seed), 0)


class Running(NamedTuple):
    """A server, and where it is."""

    worker: Any
    http: str
    grpc: str


@contextmanager
def running(*sources: str, **settings: Any) -> Iterator[Running]:
    """A server of one process, on ports of its own, in a thread."""
    from popc_runtime.serving.settings import ServeSettings, model_source
    from popc_runtime.serving.supervisor import listening
    from popc_runtime.serving.worker import Worker

    own = {"http_port": 0, "grpc_port": 0, "threads": 1} | settings
    chosen = ServeSettings(tuple(map(model_source, sources)), **own)
    chosen.check()
    with listening(chosen) as ports:
        worker = Worker(chosen, ports)
        worker.load()
        host, port = ports.http.getsockname()
        started = threading.Event()
        thread = threading.Thread(target=worker.run, args=(started.set,))
        thread.start()
        try:
            assert started.wait(120)
            yield Running(worker, f"{host}:{port}", ports.grpc)
        finally:
            worker.stop()
            thread.join()
