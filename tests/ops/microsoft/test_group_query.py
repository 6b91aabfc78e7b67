"""What GroupQueryAttention takes beside keys and values, against onnxruntime."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.ops.microsoft.programs import Compare, floats
from tests.support.oracles import epsilon, run_op

_HEADS: Final[dict[str, Any]] = {"num_heads": 4, "kv_num_heads": 2}
_DOMAIN: Final = "com.microsoft"


def _operands(rows: int, past: int, dtype: type = np.float32) -> list[Array | None]:
    """Operands 0 to 10 for two samples, without tables, positions and bias."""
    caches = [floats(2, 2, past, 16, seed=n, dtype=dtype) for n in (3, 4)]
    wide = [floats(2, rows, 64, dtype=dtype)]
    wide += [floats(2, rows, 32, seed=n, dtype=dtype) for n in (1, 2)]
    total = rows + past
    lengths = np.full(2, total - 1, np.int32)
    return [*wide, *caches, lengths, np.array(total, np.int32), None, None, None, None]


def _tables(dtype: type = np.float32) -> list[Array | None]:
    angles = floats(20, 8, seed=9)
    return [np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("rows", "past"), [(5, 0), (1, 6)])
@pytest.mark.parametrize("attributes", [{}, {"softcap": 0.5}, {"local_window_size": 3}])
def test_sink_of_each_head(
    compare: Compare, rows: int, past: int, attributes: dict[str, Any], dtype: type
) -> None:
    operands = [*_operands(rows, past, dtype), 4 * floats(4, dtype=dtype)]
    compare(
        "GroupQueryAttention",
        operands,
        {**_HEADS, **attributes},
        outputs=3,
        constants=(6,),
        tolerance=16 * epsilon(dtype),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("rows", "past"), [(5, 0), (1, 6)])
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("attributes", [{}, {"softcap": 0.5}, {"smooth_softmax": 1}])
def test_scores(
    compare: Compare, rows: int, past: int, stage: int, attributes: dict[str, Any], dtype: type
) -> None:
    compare(
        "GroupQueryAttention",
        _operands(rows, past, dtype),
        {**_HEADS, **attributes, "qk_output": stage},
        outputs=4,
        constants=(6,),
        tolerance=16 * epsilon(dtype),
    )


@pytest.mark.parametrize(
    ("rows", "past", "positions"),
    [
        pytest.param(1, 6, [[6], [3]], id="next-token"),
        pytest.param(3, 0, [[0, 1, 2], [0, 1, 2]], id="prompt"),
        pytest.param(3, 0, [[2, 9, 4], [0, 1, 2]], id="prompt-of-which-the-first-is-read"),
    ],
)
def test_positions(compare: Compare, rows: int, past: int, positions: list[list[int]]) -> None:
    operands = _operands(rows, past)
    operands[7:10] = [*_tables(), np.array(positions)]
    attributes = {**_HEADS, "do_rotary": 1}
    compare("GroupQueryAttention", operands, attributes, outputs=3, constants=(6,))


def test_norms_of_queries_and_keys(compare: Compare) -> None:
    """Which onnxruntime has on GPUs only: the same as norms in front, without rotary tables."""
    operands, weights = _operands(3, 0), [1 + floats(16, seed=n) for n in (5, 6)]
    q, k, v = operands[:3]
    assert q is not None and k is not None and v is not None  # noqa: PT018

    def normed(x: Array, weight: Array) -> Array:
        heads = x.reshape(2, 3, -1, 16).astype(np.float64)
        root = np.sqrt((heads**2).mean(axis=3, keepdims=True) + 0.01)
        result: Array = (heads / root * weight).reshape(x.shape).astype(np.float32)
        return result

    apart: list[Array | None] = [normed(q, weights[0]), normed(k, weights[1]), *operands[2:]]
    expected = compare("GroupQueryAttention", apart, _HEADS, outputs=3, constants=(6,))
    attributes = {**_HEADS, "qk_norm_epsilon": 0.01}
    found = run_op(
        "GroupQueryAttention",
        [*operands, None, None, None, *weights],
        attributes,
        outputs=3,
        constants=(6,),
        domain=_DOMAIN,
    )
    for actual, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


def test_scores_of_no_stage() -> None:
    with pytest.raises(ModelError, match="qk_output is 0, not 1 or 2"):
        run_op(
            "GroupQueryAttention",
            _operands(3, 0),
            _HEADS,
            outputs=4,
            constants=(6,),
            domain=_DOMAIN,
        )
