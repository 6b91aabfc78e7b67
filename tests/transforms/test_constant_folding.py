"""Constants that are results of a graph survive the folding of what reads them."""

from __future__ import annotations

import numpy as np
import pytest

from popc.ir import verify
from popc.transforms.constant_folding import ConstantFolding
from popc_runtime.format import DType
from tests.support.small_graphs import SmallGraph


def test_an_operand_that_is_returned_stays() -> None:
    g = SmallGraph()
    c = g.constant([1.0, 2.0])
    graph = g.output(c, g("Neg", c))
    assert ConstantFolding(growth_limit=16).run(graph) == 1
    assert verify(graph) == []
    assert [tensor.data.tolist() for tensor in graph.outputs if tensor.data is not None] == [
        [1.0, 2.0],
        [-1.0, -2.0],
    ]


@pytest.mark.parametrize(("size", "folded"), [(32, 1), (512, 0)])
def test_quantised_weights_stay_integers(size: int, folded: int) -> None:
    """Each is far below the limit, but a model has hundreds."""
    g = SmallGraph()
    weights, scale = g.constant(np.ones(size), DType.INT8), g.constant(0.5)
    graph = g.output(
        scale, g("Neg", g("DequantizeLinear", weights, scale, dtype="float32", axis=0))
    )
    assert ConstantFolding(growth_limit=65536).run(graph) == 2 * folded
    assert verify(graph) == []
