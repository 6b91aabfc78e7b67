"""Attention on buffers that are longer than what they hold, against onnxruntime."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from onnx import TensorProto, helper

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.ops.microsoft.programs import Compare, floats
from tests.support.oracles import one_node_model, run_model, run_onnxruntime, run_op

_DOMAIN: Final = "com.microsoft"
_B, _N, _H, _M = 4, 2, 8, 9  # samples, heads and their size, places of a buffer
_D: Final = _N * _H
_HELD: Final = 4
_SHARED: Final = {"num_heads": _N, "past_present_share_buffer": 1}


def _new(rows: int = 1) -> list[Array | None]:
    return [floats(_B, rows, _D, seed=seed) for seed in range(3)]


def _buffers() -> list[Array | None]:
    kept = [floats(_B, _N, _M, _H, seed=seed) for seed in (3, 4)]
    return [*kept, np.array([_HELD], np.int32)]


def _flags(*shape: int) -> Array:
    return np.random.default_rng(shape).integers(0, 2, shape, np.int32)


_BEAMS: Final[list[Array | None]] = [np.array([2], np.int32), _flags(2, 2, _M)]


@pytest.mark.parametrize("mask", [None, _flags(_B, _HELD + 1)], ids=["all", "some"])
@pytest.mark.parametrize("beams", [[None, None], _BEAMS], ids=["one", "beams"])
def test_a_single_query(compare: Compare, mask: Array | None, beams: list[Array | None]) -> None:
    operands = [*_new(), mask, None, *_buffers(), *beams]
    compare("DecoderMaskedMultiHeadAttention", operands, _SHARED, outputs=3)


def test_a_single_query_with_biases(compare: Compare) -> None:
    added, bias = floats(1, _N, 1, _HELD + 1), floats(3 * _D)
    operands = [*_new(), None, added, *_buffers(), None, None, bias]
    attributes = {**_SHARED, "scale": 0.3}
    compare("DecoderMaskedMultiHeadAttention", operands, attributes, outputs=3)


def test_scores_of_a_single_query() -> None:
    operands = [*_new(), None, None, *_buffers()]
    model = one_node_model(
        "DecoderMaskedMultiHeadAttention",
        operands,
        {**_SHARED, "output_qk": 1},
        outputs=4,
        constants=(7,),
        domain=_DOMAIN,
    )
    scores = helper.make_tensor_value_info("y3", TensorProto.FLOAT, None)
    model.graph.output[3].CopyFrom(scores)
    feeds = {f"x{i}": array for i, array in enumerate(operands) if array is not None and i != 7}
    found, expected = run_model(model, feeds), run_onnxruntime(model, feeds)
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)


def test_queries_side_by_side_with_keys_and_values() -> None:
    q, k, v = (array for array in _new() if array is not None)
    rest = [None, None, *_buffers()]
    packed = [np.concatenate([q, k, v], axis=2), None, None, *rest]
    apart, together = (
        run_op("DecoderMaskedMultiHeadAttention", given, _SHARED, outputs=3, domain=_DOMAIN)
        for given in ([q, k, v, *rest], packed)
    )
    for one, other in zip(apart, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_keys_of_an_encoder() -> None:
    """For which onnxruntime has kernels on GPUs only: the same as MultiHeadAttention."""
    operands = [_new()[0], *_buffers()[:2]]
    model = one_node_model("MultiHeadAttention", operands, {"num_heads": _N}, domain=_DOMAIN)
    feeds = {f"x{i}": array for i, array in enumerate(operands) if array is not None}
    (expected,) = run_onnxruntime(model, feeds)
    (found,) = run_op("DecoderMaskedMultiHeadAttention", operands, _SHARED, domain=_DOMAIN)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("mask", ["none", "keys", "queries-and-keys"])
def test_several_queries(compare: Compare, rows: int, unidirectional: int, mask: str) -> None:
    keys = rows + _HELD
    masks = {"none": None, "keys": _flags(_B, keys), "queries-and-keys": _flags(_B, rows, keys)}
    visible = masks[mask]
    if visible is not None:
        visible[..., 0] = 1  # among hidden keys alone, what is hidden by 10000 is rounded off
    operands = [*_new(rows), floats(3 * _D), visible, floats(1, _N, rows, keys), *_buffers()]
    attributes = {"num_heads": _N, "unidirectional": unidirectional}
    compare("MultiHeadAttention", operands, attributes, outputs=3)


def test_beams_of_multi_head_attention(compare: Compare) -> None:
    operands = [*_new(), None, None, None, *_buffers(), _BEAMS[1]]
    compare("MultiHeadAttention", operands, {"num_heads": _N}, outputs=3)


@pytest.mark.parametrize(
    ("rows", "whose", "mask", "message"),
    [
        (3, _flags(2, 2, _M), None, "cache_indirection is for a single query"),
        (1, _flags(2, 2, _M - 1), None, "does not fit buffers"),
        (1, None, _flags(_B, _M + 1), "is longer than buffers of 9 keys"),
    ],
)
def test_operands_that_do_not_fit(
    rows: int, whose: Array | None, mask: Array | None, message: str
) -> None:
    operands = [*_new(rows), None, mask, None, *_buffers(), whose]
    with pytest.raises(ModelError, match=message):
        run_op("MultiHeadAttention", operands, {"num_heads": _N}, outputs=3, domain=_DOMAIN)


def test_a_past_that_is_no_buffer() -> None:
    attributes: dict[str, Any] = {"num_heads": _N}
    with pytest.raises(ModelError, match="past_present_share_buffer and past_sequence_length"):
        run_op(
            "DecoderMaskedMultiHeadAttention",
            [*_new(), None, None, *_buffers()[:2]],
            attributes,
            outputs=3,
            domain=_DOMAIN,
        )
