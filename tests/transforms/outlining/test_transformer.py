"""Layers of transformers become calls of one graph, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popc
import popc_runtime
from popc_runtime.errors import DeviceError
from popc_runtime.format import (
    ArchiveFile,
    Array,
    CallBlock,
    decode_program,
)
from samples.networks import sorting_transformer
from tests.support.compiling import CHECKED
from tests.support.programs import items_of

_LAYERS, _LENGTH, _BATCH = 3, 4, 3
_LOSS = {"type": "cross_entropy", "input": "logits", "label": "digits"}


def _compiled(
    folder: Path, *, outlined: bool, train: bool = False, layers: int = _LAYERS, **options: Any
) -> Path:
    model = sorting_transformer(length=_LENGTH, size=16, heads=2, layers=layers)
    archive = popc.compile(
        model,
        dims={"batch": _BATCH},
        loss=_LOSS if train else None,
        optimizer={"type": "adam", "learning_rate": 0.01} if train else None,
        options={**CHECKED, "enable_outlining": outlined, **options},
    )
    return archive.save(folder / f"{outlined}.popx", force=True)


def _feeds(program: popc_runtime.Executable, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        spec.name: rng.integers(0, 10, spec.shape).astype(spec.dtype.storage)
        for spec in program.inputs
    }


def _count(path: Path) -> tuple[int, int]:
    """Instructions of all programs, and calls."""
    with ArchiveFile.open(path) as archive:
        image = decode_program(archive.read("program"))
    items = items_of(image)
    calls = sum(isinstance(item, CallBlock) for item in items)
    return len(items) - calls, calls


def test_layers_become_calls(tmp_path: Path) -> None:
    paths = [_compiled(tmp_path, outlined=outlined) for outlined in (False, True)]
    plain, outlined = map(popc_runtime.load, paths)
    feeds = _feeds(plain)
    np.testing.assert_array_equal(plain.run(feeds)["logits"], outlined.run(feeds)["logits"])
    (before, no_calls), (after, calls) = map(_count, paths)
    assert no_calls == 0
    assert calls >= _LAYERS - 1
    assert after < 0.6 * before


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accumulation_factor": 3, "batches_per_step": 2},
        {"auto_recomputation": "standard"},
        {"replicated_graph_count": 2},
        {"subgraph_copying_strategy": "just_in_time", "enable_outlining_copy_cost_pruning": False},
        {"enable_floating_point_checks": True},
    ],
    ids=str,
)
def test_training_gives_the_same_weights(tmp_path: Path, options: dict[str, Any]) -> None:
    paths = [  # two layers are enough to have something to share
        _compiled(tmp_path, outlined=flag, train=True, layers=2, **options)
        for flag in (False, True)
    ]
    assert _count(paths[0])[1] == 0
    assert _count(paths[1])[0] < _count(paths[0])[0]
    plain, outlined = map(popc_runtime.load, paths)
    for seed in range(3):
        results = [program.run(_feeds(program, seed)) for program in (plain, outlined)]
        for name, value in results[0].items():
            np.testing.assert_array_equal(value, results[1][name])
    states = [program.state.read() for program in (plain, outlined)]
    for name, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][name])


def test_errors_name_the_layer_that_calls(tmp_path: Path) -> None:
    model = sorting_transformer(length=_LENGTH, size=16, heads=2, layers=_LAYERS)
    for tensor in model.graph.initializer:
        if tensor.name == "layer2.up.weight":
            tensor.raw_data = np.full(tuple(tensor.dims), 3e38, np.float32).tobytes()
    messages = []
    for outlined in (False, True):
        path = tmp_path / f"{outlined}.popx"
        options = {"enable_outlining": outlined, "enable_floating_point_checks": True}
        popc.compile(model, dims={"batch": _BATCH}, options=options).save(path)
        program = popc_runtime.load(path)
        with pytest.raises(DeviceError, match="floating-point exception") as caught:
            program.run(_feeds(program))
        messages.append((caught.value.message, caught.value.details))
    assert messages[0] == messages[1]
