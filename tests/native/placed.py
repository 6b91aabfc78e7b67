"""What `test_places_and_orders` tests."""

from __future__ import annotations

from typing import Final

__all__ = ["PLACED"]

PLACED: Final = frozenset(
    {
        *("ArgMax", "ArgMin", "CumProd", "CumProdGrad", "CumSum", "TopK"),
        *("GatherElements", "GatherND", "OneHot"),
        *("ScatterElements", "ScatterND", "ScatterReduce"),
        *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd"),
        *("Resize", "ResizeGrad"),
    }
)
