"""Small networks of Keras as tf2onnx exports them, with TensorFlow's results.

`python -m tools.host_exports.keras_layers` has written tests/recorded/keras_layers.npz.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pytest

import popc

_FILE: Final = Path(__file__).parents[1] / "recorded" / "keras_layers.npz"
_NAMES: Final = (
    *("attention", "convolutions", "gru", "lstm", "rows", "signal", "upsampling", "volume"),
)


def test_nothing_is_recorded_in_vain() -> None:
    with np.load(_FILE) as file:
        assert {name.partition("/")[0] for name in file.files} == {*_NAMES}


@pytest.mark.parametrize("name", _NAMES)
def test_an_export(name: str) -> None:
    with np.load(_FILE) as file:
        model, x, wanted = (file[f"{name}/{part}"] for part in ("model", "x", "y"))
    program = popc.compile(model.tobytes(), shapes={"x": x.shape}).load()
    (found,) = program.run(x=x).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
