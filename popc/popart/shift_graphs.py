"""The problems of a schedule as files, in the form of the library that PopART schedules with.

Of each graph there is a file ``poprithms_shift_graph_<number>.json``: ops, in the order in which
they run, with those that come after them (``outs``) and the allocations that must be there while
they run; and allocations, with their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from popc.ir import Graph, Op, Tensor
from popc.popart.errors import popart_exception

__all__ = ["write_shift_graphs"]


def write_shift_graphs(folder: str, orders: Mapping[Graph, Sequence[Op]]) -> None:
    """Write a file for each graph, under the first numbers that are free.

    Raises:
        popart_exception: the folder does not exist, or cannot be written to.
    """
    for graph, order in orders.items():
        paths = (Path(folder) / f"poprithms_shift_graph_{number}.json" for number in count())
        path = next(path for path in paths if not path.exists())
        try:
            path.write_text(json.dumps(_shift_graph(graph, order)), encoding="utf-8")
        except OSError as error:
            raise popart_exception(f"Failed to open file {path}") from error


def _shift_graph(graph: Graph, order: Sequence[Op]) -> dict[str, Any]:
    places = {op: place for place, op in enumerate(order)}
    allocations: dict[Tensor, int] = {}
    later: list[set[int]] = [set() for _ in order]
    touched: list[list[int]] = []
    for place, op in enumerate(order):
        tensors = dict.fromkeys((*op.present_inputs, *op.outputs))
        touched.append([allocations.setdefault(tensor, len(allocations)) for tensor in tensors])
        for tensor in op.present_inputs:
            if tensor.producer in places:
                later[places[tensor.producer]].add(place)
    for pair in graph.ordering:
        if pair.first in places and pair.second in places:
            later[places[pair.first]].add(places[pair.second])
    ops = [
        {
            "address": place,
            "fwdLink": "none",
            "debugString": op.settings.origin or op.op_type,
            "outs": sorted(later[place]),
            "allocs": sorted(touched[place]),
        }
        for place, op in enumerate(order)
    ]
    allocs = [
        {"address": number, "value": [tensor.type.nbytes]} for tensor, number in allocations.items()
    ]
    return {"ops": ops, "allocs": allocs}
