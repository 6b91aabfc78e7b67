"""LSTMs with weights of bytes, beside onnxruntime.

Both round what weights are multiplied by to bytes.  onnxruntime takes one range for all sequences,
so that its results are less precise if there are several; of a single one they are the same.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import assert_matches_onnxruntime, one_node_model, run_model

_OP_TYPE: Final = "DynamicQuantizeLSTM"
_DOMAIN: Final = "com.microsoft"
_CONSTANTS: Final = (1, 2, 3, 8, 9, 10, 11)


def _compare(inputs: list[Array | None], attributes: dict[str, Any], **options: Any) -> None:
    options = {"outputs": 3, "constants": _CONSTANTS, "atol": 0.02, **options}
    assert_matches_onnxruntime(_OP_TYPE, inputs, attributes, domain=_DOMAIN, **options)


def _integers(dtype: Any, shape: tuple[int, ...], seed: int = 1) -> Array:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def _floats(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _inputs(
    dtype: Any, directions: int, *, per_channel: bool = False, zero: int = 0
) -> list[Array | None]:
    """Operands of a layer of 4 units."""
    scales = (directions, 16) if per_channel else (directions,)
    scale = np.random.default_rng(0).uniform(0.004, 0.006, scales).astype(np.float32)
    return [
        _floats((5, 2, 3)),
        _integers(dtype, (directions, 3, 16)),
        _integers(dtype, (directions, 4, 16), 2),
        _floats((directions, 32)),
        *([None] * 4),
        *(scale, np.full(scales, zero, dtype)) * 2,
    ]


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(("dtype", "zero"), [(np.int8, 0), (np.uint8, 128), (np.uint8, 120)])
def test_directions(direction: str, per_channel: bool, dtype: Any, zero: int) -> None:  # noqa: FBT001
    directions = 2 if direction == "bidirectional" else 1
    inputs = _inputs(dtype, directions, per_channel=per_channel, zero=zero)
    attributes = {"hidden_size": 4, "direction": direction}
    _compare(inputs, attributes)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("steps", [1, 7, 40])
def test_one_sequence(steps: int, direction: str) -> None:
    """The last digits of a state seldom decide which byte it becomes: in none of these cases."""
    inputs = _inputs(np.int8, 2 if direction == "bidirectional" else 1)
    inputs[0] = _floats((steps, 1, 3)) * np.linspace(0.1, 3, steps, dtype=np.float32)[:, None, None]
    _compare(inputs, {"hidden_size": 4, "direction": direction}, atol=1e-5)


@pytest.mark.parametrize("attributes", [{}, {"clip": 0.5}, {"input_forget": 1}])
def test_with_states(attributes: dict[str, Any]) -> None:
    inputs = _inputs(np.int8, 1)
    inputs[4:8] = np.array([3, 5], np.int32), _floats((1, 2, 4)), _floats((1, 2, 4), 2), None
    attributes = {"hidden_size": 4, **attributes}
    _compare(inputs, attributes, atol=0.03)


def test_of_weights_that_are_not_known() -> None:
    inputs, attributes = _inputs(np.int8, 1), {"hidden_size": 4}
    _compare(inputs, attributes, constants=(9, 11))


@pytest.mark.parametrize(("place", "size"), [(8, 3), (11, 5)])
def test_of_other_scales(place: int, size: int) -> None:
    inputs = _inputs(np.int8, 1)
    given = inputs[place]
    assert given is not None
    inputs[place] = np.resize(given, size)
    attributes = {"hidden_size": 4}
    model = one_node_model(_OP_TYPE, inputs, attributes, constants=_CONSTANTS, domain=_DOMAIN)
    with pytest.raises(ModelError, match=f"not {size}"):
        run_model(model, {"x0": _floats((5, 2, 3))})
