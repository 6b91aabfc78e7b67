"""Convolutions of any shape, for hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from popc_runtime.format import Array

__all__ = ["convolution"]


def _numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 3


def convolution(data: st.DataObject) -> tuple[Array, Array, Array, dict[str, Any]]:
    """X, W, some Y and the attributes of a convolution of 1 to 3 axes."""
    rank = data.draw(st.integers(1, 3), label="rank")
    group = data.draw(st.sampled_from([1, 1, 2, 3]), label="group")
    narrow = data.draw(st.sampled_from([1, 2, 5, 16, 19]), label="channels of a group")
    filters = data.draw(st.integers(1, 15), label="filters of a group") * group
    taps = [data.draw(st.integers(1, 4), label="taps") for _ in range(rank)]
    strides = [data.draw(st.integers(1, 3), label="stride") for _ in range(rank)]
    dilations = [data.draw(st.integers(1, 2), label="dilation") for _ in range(rank)]
    before = [data.draw(st.integers(0, 3), label="before") for _ in range(rank)]
    after = [data.draw(st.integers(0, 3), label="after") for _ in range(rank)]
    reach = [(tap - 1) * dilation + 1 for tap, dilation in zip(taps, dilations, strict=True)]
    sizes = [
        max(length - b - a, 1) + data.draw(st.integers(0, 20), label="size")
        for length, b, a in zip(reach, before, after, strict=True)
    ]
    results = [
        (size + b + a - length) // stride + 1
        for size, b, a, length, stride in zip(sizes, before, after, reach, strides, strict=True)
    ]
    batch = data.draw(st.sampled_from([1, 2, 3, 9]), label="batch")
    x, w = _numbers(batch, narrow * group, *sizes), _numbers(filters, narrow, *taps, seed=1)
    if data.draw(st.booleans(), label="channels last"):
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    attributes = {
        "strides": tuple(strides),
        "dilations": tuple(dilations),
        "pads": (*before, *after),
        "group": group,
        "kernel_shape": tuple(taps),
    }
    return x, w, _numbers(batch, filters, *results, seed=2), attributes
