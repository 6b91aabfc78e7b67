"""Tensors on tiles: every byte is somewhere, once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from popc.cost.mapping import device_bytes, lanes_of, linear_mapping
from popc_runtime.format import DType

_DTYPES = st.sampled_from([DType.FLOAT16, DType.FLOAT32, DType.INT64, DType.BOOL, DType.BFLOAT16])


@given(st.integers(0, 100_000), _DTYPES, st.integers(1, 1472), st.integers(0, 5000))
def test_bytes_of_tiles_add_up(size: int, dtype: DType, tiles: int, first: int) -> None:
    mapping = linear_mapping(size, dtype, tiles, first=first)
    by_tile = mapping.by_tile()
    assert by_tile.sum() == size * device_bytes(dtype)
    assert by_tile.min() >= 0
    assert by_tile.max() == mapping.busiest
    assert np.count_nonzero(by_tile) == mapping.used <= tiles
    mapping.add_to(by_tile, -1)
    assert not by_tile.any()


@given(st.integers(1, 100_000), _DTYPES)
def test_tiles_hold_128_bytes_or_all(size: int, dtype: DType) -> None:
    mapping = linear_mapping(size, dtype, 1472)
    assert mapping.run * device_bytes(dtype) >= 128
    # No other mapping of whole words keeps the busiest tile smaller, but for that minimum.
    words = -(-size * device_bytes(dtype) // 8)
    assert mapping.run * device_bytes(dtype) <= max(8 * -(-words // 1472), 128)


def test_a_mapping_goes_on_where_the_last_one_ended() -> None:
    mapping = linear_mapping(256, DType.FLOAT16, 5, first=3)
    assert mapping.by_tile().tolist() == [128, 128, 0, 128, 128]


def test_grains_stay_together() -> None:
    mapping = linear_mapping(1000, DType.FLOAT16, 10, grain=96)
    assert mapping.run % 96 == 0


def test_types_of_the_device() -> None:
    assert [device_bytes(dtype) for dtype in (DType.INT64, DType.FLOAT64, DType.BFLOAT16)] == [
        4,
        4,
        2,
    ]
    assert [lanes_of(dtype) for dtype in (DType.BFLOAT16, DType.FLOAT64, DType.BOOL)] == [
        "half", "float", "int",
    ]  # fmt: skip
