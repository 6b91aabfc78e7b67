"""Constants that are results of a graph survive the folding of what reads them."""

from __future__ import annotations

from popc.ir import verify
from popc.transforms.constant_folding import ConstantFolding
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
