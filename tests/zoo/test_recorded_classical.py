"""Small models of scikit-learn, LightGBM and XGBoost as exported, with onnxruntime's results.

`python -m tools.classical_exports.recording` has written tests/recorded/classical.npz.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import popc
from popc_runtime.format import Array

_FILE: Final = Path(__file__).parents[1] / "recorded" / "classical.npz"


@cache
def _recorded() -> dict[str, dict[str, Array]]:
    found: dict[str, dict[str, Array]] = {}
    with np.load(_FILE) as file:
        for name in file.files:
            model, _, rest = name.partition("/")
            found.setdefault(model, {})[rest] = file[name]
    return found


def _arrays(name: str, start: str) -> dict[str, Array]:
    arrays = _recorded()[name]
    return {
        key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)
    }


def _as_words(array: Array, spec: Any) -> Array:
    words = spec.labels if spec.label_kind == "elements" else ()
    return np.array(words)[array] if words else array


@pytest.mark.parametrize("name", sorted(_recorded()))
def test_an_export(name: str) -> None:
    inputs, wanted = _arrays(name, "inputs/"), _arrays(name, "results/")
    shapes = {key: array.shape for key, array in inputs.items()}
    program = popc.compile(_recorded()[name]["model"].tobytes(), shapes=shapes).load()
    found = program.run(inputs)
    assert set(found) == set(wanted)
    for spec in program.outputs:
        array, expected = _as_words(found[spec.name], spec), wanted[spec.name]
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5, err_msg=spec.name)
        else:
            np.testing.assert_array_equal(array, expected, err_msg=spec.name)
