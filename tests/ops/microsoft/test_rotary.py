"""Rotary embeddings by three positions of a token, against onnxruntime."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.ops.microsoft.programs import Compare, floats
from tests.support.oracles import epsilon, run_op


def _operands(size: int, dtype: type = np.float32, *, is_split: bool = False) -> list[Array | None]:
    """Heads of 16, and tables for ``size`` of their numbers."""
    x = floats(2, 4, 5, 16, dtype=dtype) if is_split else floats(2, 5, 64, dtype=dtype)
    angles = 3 * floats(40, size // 2, seed=2)
    positions = np.random.default_rng(0).integers(0, 40, (3, 2, 5))
    return [x, positions, np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)]


_SECTIONS: Final = [(16, (4, 2, 2)), (16, (2, 3, 3)), (16, (8, 0, 0)), (8, (2, 1, 1))]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("size", "sections"), _SECTIONS)
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("is_split", [False, True])
def test_three_positions(
    compare: Compare,
    size: int,
    sections: tuple[int, ...],
    layout: int,
    interleaved: int,
    is_split: bool,  # noqa: FBT001
    dtype: type,
) -> None:
    attributes = {"mrope_section": sections, "mrope_layout": layout, "interleaved": interleaved}
    attributes |= {"num_heads": 4, "rotary_embedding_dim": size}
    operands = _operands(size, dtype, is_split=is_split)
    compare("MRotaryEmbedding", operands, attributes, tolerance=4 * epsilon(dtype))


def test_scale_of_the_tables(compare: Compare) -> None:
    attributes = {"mrope_section": (2, 1, 1), "num_heads": 4, "scale": 0.5}
    attributes["rotary_embedding_dim"] = 8
    compare("MRotaryEmbedding", _operands(8), attributes)


@pytest.mark.parametrize("attributes", [{"is_packed_batching": 1}, {"scale": 0.5}])
def test_attributes_that_change_nothing(compare: Compare, attributes: dict[str, Any]) -> None:
    operands = _operands(16)
    operands[1] = np.random.default_rng(0).integers(0, 40, (2, 5))
    compare("RotaryEmbedding", operands, attributes)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"mrope_section": (4, 2, 1)}, "does not divide 8 columns"),
        ({"mrope_section": (4, 2, 2), "mrope_layout": 2}, "mrope_layout is 2, not 0 or 1"),
    ],
)
def test_sections_that_are_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        run_op("MRotaryEmbedding", _operands(16), attributes, domain="com.microsoft")
