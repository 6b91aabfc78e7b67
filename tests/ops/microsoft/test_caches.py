"""Caches of keys and values in numbers of 8 or 4 bits, against onnxruntime."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.ops.microsoft.programs import Compare, floats
from tests.support.oracles import epsilon, run_op

_DOMAIN: Final = "com.microsoft"


def _case(
    rows: int, past: int, kind: str, bits: int, dtype: type = np.float32
) -> tuple[list[Array | None], dict[str, Any]]:
    """Two samples; four heads of 16 share two of keys."""
    size, stored = (16, np.int8) if bits == 8 else (8, np.uint8)
    rng = np.random.default_rng(bits)
    least, most = (-100, 100) if bits == 8 else (0, 256)
    caches = [rng.integers(least, most, (2, 2, past, size)).astype(stored) for _ in range(2)]
    scales: list[Array]
    if kind == "PER_TENSOR":
        scales = [np.array([number], np.float32) for number in (0.05, 0.04)]
    else:
        scales = [np.abs(floats(1, 2, 1, 16, seed=n)) / 5 + np.float32(0.01) for n in (6, 7)]
    total = rows + past
    operands: list[Array | None] = [
        2 * floats(2, rows, 64, dtype=dtype),
        *(2 * floats(2, rows, 32, seed=n, dtype=dtype) for n in (1, 2)),
        *caches,
        np.full(2, total - 1, np.int32),
        np.array(total, np.int32),
        *(None,) * 5,
        *scales,
    ]
    attributes = {"num_heads": 4, "kv_num_heads": 2, "kv_cache_bit_width": bits}
    return operands, {**attributes, "k_quant_type": kind, "v_quant_type": kind}


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
@pytest.mark.parametrize(("rows", "past"), [(4, 0), (1, 5)])
def test_caches(compare: Compare, rows: int, past: int, kind: str, bits: int, dtype: type) -> None:
    operands, attributes = _case(rows, past, kind, bits, dtype)
    compare(
        "GroupQueryAttention",
        operands,
        attributes,
        outputs=3,
        constants=(6,),
        tolerance=16 * epsilon(dtype),
    )


@pytest.mark.parametrize("more", [{"softcap": 3.0}, {"local_window_size": 3}, {"causal": 0}])
def test_attributes_beside_caches(compare: Compare, more: dict[str, Any]) -> None:
    operands, attributes = _case(1, 5, "PER_TENSOR", 8)
    compare("GroupQueryAttention", operands, {**attributes, **more}, outputs=3, constants=(6,))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"k_quant_type": "PER_TOKEN"}, "k_quant_type is 'PER_TOKEN', none of NONE"),
        ({"kv_cache_bit_width": 4}, "int8 with 8 bits or uint8 with 4"),
        ({"kv_cache_bit_width": 16}, "int8 with 8 bits or uint8 with 4"),
    ],
)
def test_forms_that_there_are_not(changed: dict[str, Any], message: str) -> None:
    operands, attributes = _case(1, 5, "PER_TENSOR", 8)
    with pytest.raises(ModelError, match=message):
        run_op(
            "GroupQueryAttention",
            operands,
            {**attributes, **changed},
            outputs=3,
            constants=(6,),
            domain=_DOMAIN,
        )
