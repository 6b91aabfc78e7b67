"""ai.graphcore: several convolutions in one operator; each judged by onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import import_graph, one_node_model, run_onnxruntime, run_op

_DOMAIN: Final = "ai.graphcore"
_RNG: Final = np.random.default_rng(13)
_X0: Final = _RNG.standard_normal((1, 6, 7)).astype(np.float32)
_W0: Final = _RNG.standard_normal((9, 2, 3)).astype(np.float32)  # three groups
_X1: Final = _RNG.standard_normal((2, 3, 8, 9)).astype(np.float32)
_W1: Final = _RNG.standard_normal((4, 3, 2, 3)).astype(np.float32)
_B1: Final = _RNG.standard_normal(4).astype(np.float32)


def _conv(x: Array, weights: Array, bias: Array | None, **attributes: Any) -> Array:
    inputs = [x, weights] if bias is None else [x, weights, bias]
    model = one_node_model("Conv", inputs, attributes)
    return run_onnxruntime(model, {f"x{index}": array for index, array in enumerate(inputs)})[0]


def _both(attributes: Mapping[str, Any]) -> list[Array]:
    inputs = [_X0, _W0, None, _X1, _W1, _B1]
    given = {"numConvs": 2, **attributes}
    return run_op("MultiConv", inputs, given, outputs=2, domain=_DOMAIN)


def test_defaults() -> None:
    for result, expected in zip(
        _both({"planType": "serial", "__available_memory": [0.3, 0.5]}),
        (_conv(_X0, _W0, None, group=3), _conv(_X1, _W1, _B1)),
        strict=True,
    ):
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_numbers_of_each_convolution() -> None:
    results = _both(
        {
            "strides": [2, 1, 2],
            "pads": [1, 0, 0, 1, 2, 0],
            "dilations": [2, 1, 1],
        }
    )
    first = _conv(_X0, _W0, None, group=3, strides=[2], pads=[1, 0], dilations=[2])
    second = _conv(_X1, _W1, _B1, strides=[1, 2], pads=[0, 1, 2, 0], dilations=[1, 1])
    np.testing.assert_allclose(results[0], first, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(results[1], second, rtol=1e-4, atol=1e-5)


def test_gaps_in_the_input_and_zeros_around_the_output() -> None:
    results = _both({"inDilations": [1, 3, 2], "outPads": [0, 0, 1, 0, 0, 2]})
    wide = np.zeros((2, 3, 22, 17), np.float32)
    wide[:, :, ::3, ::2] = _X1
    padded = np.pad(_conv(wide, _W1, None), ((0, 0), (0, 0), (1, 0), (0, 2)))
    np.testing.assert_allclose(results[0], _conv(_X0, _W0, None, group=3), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(results[1], padded + _B1[:, None, None], rtol=1e-4, atol=1e-5)


def test_a_single_convolution_without_a_count() -> None:
    (result,) = run_op("MultiConv", [_X1, _W1, _B1], {}, domain=_DOMAIN)
    np.testing.assert_allclose(result, _conv(_X1, _W1, _B1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "attributes", "message"),
    [
        ([_X0, _W0, None, _X1, _W1], {"strides": [1, 1]}, "strides must have 3 numbers, not 2"),
        ([_X0, _W0, None, _X1, _W1], {"numConvs": 1}, "not those of 1 convolutions"),
        ([_X0, _W0, None, _X1], {"numConvs": 2}, "input 4 is required"),
        ([_X0, _W1], {}, "cannot be convolved"),
        ([_X0, _W0], {"inDilations": [0]}, "cannot be dilated by 0"),
    ],
)
def test_wrong_parameters_and_operands_are_refused(
    inputs: list[Array | None], attributes: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        import_graph(one_node_model("MultiConv", inputs, attributes, domain=_DOMAIN))
