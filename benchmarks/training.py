"""Speed of training steps, beside PyTorch in eager mode on the same weights and data."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import popc
import popc_runtime
from benchmarks.exported_training import EXPORTED, exported
from benchmarks.timing import compare_times, geometric_mean
from popc_runtime.format import Array
from samples.networks import digits_cnn, digits_mlp, photo_cnn, sorting_transformer
from tests.support.torch_networks import FORWARD, parameters

__all__ = ["measure_training"]

_THREADS = 2
_LOSS = {"type": "cross_entropy", "input": "logits", "label": "label"}
_OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"type": "sgd", "learning_rate": 0.01, "momentum": 0.9},
    "adam": {"type": "adam", "learning_rate": 1e-3},
}
_SUBJECTS: tuple[tuple[str, Callable[[], onnx.ModelProto], str, int], ...] = (
    ("digits_mlp", digits_mlp, "sgd", 64),
    ("digits_cnn", digits_cnn, "adam", 32),
    ("digits_cnn", digits_cnn, "sgd", 128),
    ("photo_cnn", photo_cnn, "sgd", 32),
    ("photo_cnn", photo_cnn, "adam", 32),
    ("sorting_transformer", sorting_transformer, "adam", 64),
)


def measure_training(*, quick: bool) -> list[dict[str, Any]]:
    """Milliseconds per step: forward, backward and update."""
    installed = find_spec("torch") is not None
    if not installed:
        print("PyTorch is not installed: popc alone, and no networks that it exports")
    rows: list[dict[str, Any]] = []
    for name, make, optimizer, batch in _SUBJECTS:
        model = make()
        feeds = _feeds(model, batch)
        turns: list[Callable[[], object]] = [_popc_step(model, optimizer, feeds, batch=batch)]
        if installed:
            turns.append(_torch_step(name, model, optimizer, feeds))
        rows.append(_row(f"{name}, {optimizer}", batch, turns, quick=quick))
    for name, (_, optimizer, batch) in EXPORTED.items() if installed else ():
        model, x, label, step = exported(name, partial(_rival, optimizer))
        feeds = {"x": x, "label": label}
        turns = [_popc_step(model, optimizer, feeds), step]
        rows.append(_row(f"{name}, {optimizer}", batch, turns, quick=quick))
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    mean = [{"network": "mean", "ratio": geometric_mean(ratios)}] if ratios else []
    return [*rows, *mean]


def _row(
    name: str, batch: int, turns: list[Callable[[], object]], *, quick: bool
) -> dict[str, Any]:
    ours, *theirs = compare_times(turns, rounds=3 if quick else 7, seconds=0.3)
    row = {"network": name, "batch": batch, "popc ms": 1e3 * ours.median}
    if theirs:
        row["torch ms"] = 1e3 * theirs[0].median
        row["ratio"] = ours.median / theirs[0].median
    return row


def _feeds(model: onnx.ModelProto, batch: int) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    (x,) = model.graph.input
    shape = tuple(dim.dim_value or batch for dim in x.type.tensor_type.shape.dim)
    if x.type.tensor_type.elem_type == onnx.TensorProto.INT64:
        return {x.name: rng.integers(0, 10, shape), "label": rng.integers(0, 10, shape, np.int32)}
    return {x.name: rng.random(shape, np.float32), "label": rng.integers(0, 10, batch, np.int32)}


def _popc_step(
    model: onnx.ModelProto, optimizer: str, feeds: dict[str, Array], **dims: int
) -> Callable[[], object]:
    archive = popc.compile(model, dims=dims, loss=_LOSS, optimizer=_OPTIMIZERS[optimizer])
    with tempfile.TemporaryDirectory() as folder:
        executable = popc_runtime.load(archive.save(Path(folder) / "train.popx"))
    return partial(executable.run, feeds)


def _torch_step(
    name: str, model: onnx.ModelProto, optimizer: str, feeds: dict[str, Array]
) -> Callable[[], object]:
    import torch

    torch.set_num_threads(_THREADS)
    weights = parameters(model)
    rival = _rival(optimizer, weights.values())
    x, label = (torch.from_numpy(array) for array in feeds.values())
    forward, label = FORWARD[name], label.long()

    def step() -> None:
        rival.zero_grad()
        loss = torch.nn.functional.cross_entropy(forward(weights, x), label)
        loss.backward()
        rival.step()

    return step


def _rival(optimizer: str, weights: Iterable[Any]) -> Any:
    import torch

    settings = _OPTIMIZERS[optimizer]
    rate = settings["learning_rate"]
    if optimizer == "sgd":
        return torch.optim.SGD(weights, lr=rate, momentum=settings["momentum"])
    return torch.optim.Adam(weights, lr=rate)
