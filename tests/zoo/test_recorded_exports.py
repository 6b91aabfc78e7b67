"""Small networks as exporters and onnxruntime's tools have written them, with its results.

`python -m tools.network_exports.recording` has written tests/recorded/exports.npz.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import popc
from popc_runtime.format import Array

_FILE: Final = Path(__file__).parents[1] / "recorded" / "exports.npz"
_NAMES: Final = (
    *("mlp.static", "mlp.dynamic", "mlp.halves", "graph_attention.script"),
    *("graph_attention.dynamo", "elman.optimised", "separator.optimised", "windows.dynamo"),
    *("neighbours.script", "einsums.dynamo", "keywords.static", "softsort.dynamo"),
)
_DECODERS: Final = ("decoder.script", "decoder.dynamo")
_TOLERANCES: Final = {"halves": 4e-3}  # of the largest result


@cache
def _recorded() -> dict[str, Array]:
    with np.load(_FILE) as file:
        return {name: file[name] for name in file.files}


def _arrays(start: str) -> dict[str, Array]:
    found = _recorded()
    return {name.removeprefix(start): found[name] for name in found if name.startswith(start)}


def _compare(found: dict[str, Array], name: str, run: int) -> None:
    wanted = _arrays(f"{name}/{run}/results/")
    assert set(found) == set(wanted)
    for key, array in wanted.items():
        allowed = _TOLERANCES.get(name.partition(".")[2], 1e-5) * np.abs(array).max()
        np.testing.assert_allclose(found[key], array, rtol=0, atol=float(allowed), err_msg=key)


def test_nothing_is_recorded_in_vain() -> None:
    assert {name.partition("/")[0] for name in _recorded()} == {*_NAMES, *_DECODERS}


@pytest.mark.parametrize("name", _NAMES)
def test_an_export(name: str) -> None:
    inputs = _arrays(f"{name}/0/inputs/")
    shapes = {key: array.shape for key, array in inputs.items()}
    program = popc.compile(_recorded()[f"{name}/model"].tobytes(), shapes=shapes).load()
    _compare(program.run(inputs), name, 0)


@pytest.mark.parametrize("name", _DECODERS)
def test_a_decoder_keeps_its_caches(name: str) -> None:
    """A prompt of three tokens, of which one is padding, and two single tokens."""
    kinds: dict[str, Any] = {"script": "past_sequence_length", "dynamo": "past_key_values.0.key"}
    bound = kinds[name.partition(".")[2]]
    runs = [_arrays(f"{name}/{number}/inputs/") for number in range(3)]
    fed = ("input_ids", "attention_mask", "position_ids")
    program = popc.compile(
        _recorded()[f"{name}/model"].tobytes(),
        shapes=[dict.fromkeys(fed, (2, rows)) for rows in (3, 1)],
        options={"bounds": {bound: 5}},
    ).load()
    for number, inputs in enumerate(runs):
        rows = inputs["input_ids"].shape[1]
        given = {key: inputs[key][:, -rows:] for key in fed}
        found = program.run(given)
        real = given["attention_mask"].astype(bool)
        wanted = _arrays(f"{name}/{number}/results/")["logits"]
        np.testing.assert_allclose(found["logits"][real], wanted[real], rtol=1e-4, atol=1e-6)
