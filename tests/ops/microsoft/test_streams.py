"""Residual streams side by side, and hashes of n-grams, against onnxruntime."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.ops.microsoft.programs import Compare, floats
from tests.support.oracles import assert_matches_onnxruntime, epsilon, run_op

_DOMAIN: Final = "com.microsoft"
_DTYPES: Final = pytest.mark.parametrize("dtype", [np.float32, np.float16])
_FACTORS: Final = pytest.mark.parametrize("factor", [np.float32, np.float16])
_FLAT: Final = pytest.mark.parametrize("is_flat", [False, True])


def _streams(dtype: type, *, is_flat: bool) -> tuple[Array, dict[str, Any]]:
    """Three streams of five features."""
    x = floats(2, 4, 3, 5, dtype=dtype)
    return (x.reshape(2, 4, 15), {"num_branches": 3}) if is_flat else (x, {})


@_DTYPES
@_FACTORS
@_FLAT
@pytest.mark.parametrize("scale", [(15,), (3, 5), (5,), None])
def test_norm_of_each_stream(
    compare: Compare,
    scale: tuple[int, ...] | None,
    is_flat: bool,  # noqa: FBT001
    factor: type,
    dtype: type,
) -> None:
    x, attributes = _streams(dtype, is_flat=is_flat)
    operands = [x, None if scale is None else floats(*scale, seed=1, dtype=factor)]
    attributes["epsilon"] = 1e-3
    compare("BranchwiseRMSNorm", operands, attributes, tolerance=8 * epsilon(dtype))


@_DTYPES
@_FACTORS
@_FLAT
@pytest.mark.parametrize("gates", [(2, 4, 3), (2, 4, 3, 1), (2, 4, 3, 5)])
def test_streams_that_are_mixed(
    compare: Compare,
    gates: tuple[int, ...],
    is_flat: bool,  # noqa: FBT001
    factor: type,
    dtype: type,
) -> None:
    x, attributes = _streams(dtype, is_flat=is_flat)
    gate, block = floats(*gates, seed=1, dtype=factor), floats(2, 4, 5, seed=2, dtype=dtype)
    bound = 8 * epsilon(dtype)
    before = {**attributes, "reduction_scale": 0.5}
    compare("HyperConnectionPreMix", [x, gate], before, tolerance=bound)
    for mix in (None, floats(2, 4, 3, 3, seed=3, dtype=factor)):
        compare("HyperConnectionPostMix", [x, block, gate, mix], attributes, tolerance=bound)


def test_gates_of_flat_features(compare: Compare) -> None:
    x, attributes = _streams(np.float32, is_flat=True)
    compare("HyperConnectionPreMix", [x, floats(2, 4, 15, seed=1)], attributes)


@_DTYPES
@_FACTORS
@pytest.mark.parametrize("is_given", [False, True])
def test_scaled_silu(
    compare: Compare,
    is_given: bool,  # noqa: FBT001
    factor: type,
    dtype: type,
) -> None:
    operands = [floats(2, 4, 5, dtype=dtype), np.array(0.3, factor) if is_given else None]
    compare("ScaledSiLU", operands, {"alpha": 0.7}, tolerance=4 * epsilon(dtype))


@_DTYPES
@pytest.mark.parametrize("outputs", [1, 2])
def test_engram_gate(compare: Compare, outputs: int, dtype: type) -> None:
    shapes = ((2, 4, 3, 8), (2, 4, 3, 8), (2, 4, 8), (3, 8), (3, 8), (3, 8))
    operands = [floats(*shape, seed=n, dtype=dtype) for n, shape in enumerate(shapes)]
    attributes = {"epsilon": 1e-3}
    bound = 16 * epsilon(dtype)
    compare("EngramGate", operands[: 4 + outputs], attributes, outputs=outputs, tolerance=bound)


@pytest.mark.parametrize(
    ("rows", "most", "dtype"), [(6, 4, np.int64), (2, 4, np.int32), (1, 2, np.int64)]
)
@pytest.mark.parametrize("given", range(32))
def test_hashes(given: int, rows: int, most: int, dtype: Any) -> None:
    """Products wrap around; each bit of ``given`` is an optional operand, or that history ends."""
    past, offsets, end, segments, resets = (given >> bit & 1 for bit in range(5))
    rng = np.random.default_rng(given)
    large = int(np.iinfo(dtype).max)
    count = 2 * (most - 1)
    operands = [
        rng.integers(0, 4, (2, rows), dtype),
        rng.integers(-large, large, most, dtype),
        rng.integers(1, 1000, count, dtype),
        rng.integers(0, 4, (2, most - 1), dtype) if past else None,
        rng.integers(0, 99, count, dtype) if offsets else None,
        np.array(2, dtype) if end else None,
        np.cumsum(rng.integers(0, 2, (2, rows), np.int32), 1, np.int32) if segments else None,
    ]
    attributes = {"max_ngram_size": most, "n_head_per_ngram": 2, "pad_id": 7}
    attributes["reset_on_eos"] = resets
    while operands[-1] is None:
        operands.pop()
    assert_matches_onnxruntime(
        "NGramHashMapping", operands, attributes, outputs=2, domain=_DOMAIN, rtol=0, atol=0
    )


@pytest.mark.parametrize(
    ("op_type", "shapes", "attributes", "message"),
    [
        ("BranchwiseRMSNorm", [(2, 15)], {"num_branches": 4}, "15 features cannot be cut into 4"),
        ("BranchwiseRMSNorm", [(15,)], {}, "no dimension of branches"),
        ("BranchwiseRMSNorm", [(2, 3, 5), (4,)], {}, "does not fit branches"),
        ("HyperConnectionPreMix", [(2, 3, 5), (2, 4)], {}, "do not fit streams"),
    ],
)
def test_streams_that_do_not_fit(
    op_type: str, shapes: list[tuple[int, ...]], attributes: dict[str, int], message: str
) -> None:
    operands = [floats(*shape) for shape in shapes]
    with pytest.raises(ModelError, match=message):
        run_op(op_type, operands, attributes, domain=_DOMAIN)


def test_sizes_that_are_too_few() -> None:
    operands: list[Array | None] = [np.ones((2, 3), np.int64), *(np.ones(3, np.int64),) * 2]
    attributes = {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 0}
    with pytest.raises(ModelError, match="has not 2 sizes for each n from 2 to 3"):
        run_op("NGramHashMapping", operands, attributes, domain=_DOMAIN)
