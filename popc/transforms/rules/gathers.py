"""Lookups: by indices that are known, and large ones."""

from __future__ import annotations

from typing import Final

import numpy as np

from popc.ir import AttributeMap, Graph, Op, Tensor
from popc.ops.build import build
from popc.transforms.rules.rule import LocalRule

__all__ = ["RULES"]

_LARGE: Final = 1 << 20  # bytes of a result from which on a lookup is cut


def _as_slice(graph: Graph, op: Op) -> Tensor | None:
    """Rows at equal distances are a Slice."""
    source, indices = op.operand(0), op.operand(1)
    if indices.data is None or indices.type.rank > 1 or not op.output.type.size:
        return None
    axis = _axis(op)
    size = source.type.shape[axis]
    places = np.where(indices.data < 0, indices.data + size, indices.data).reshape(-1).tolist()
    window = _regular(places, size)
    if window is None:
        return None
    rank = source.type.rank
    before, after = (0,) * axis, (0,) * (rank - axis - 1)
    shape = source.type.shape
    attributes: AttributeMap = {
        "starts": (*before, window.start, *after),
        "sizes": (*shape[:axis], len(window), *shape[axis + 1 :]),
        "steps": (*(1 for _ in before), window.step, *(1 for _ in after)),
    }
    part = build(graph, "Slice", [source], attributes, settings=op.settings).output
    if part.type == op.output.type:
        return part
    return build(
        graph, "Reshape", [part], {"shape": op.output.type.shape}, settings=op.settings
    ).output


def _regular(places: list[int], size: int) -> range | None:
    """The places as a range with steps, if they are one and inside of ``size``."""
    step = places[1] - places[0] if len(places) > 1 else 1
    fits = step != 0 and all(0 <= place < size for place in places)
    window = range(places[0], places[0] + step * len(places), step) if fits else range(0)
    return window if list(window) == places else None


def _cut(graph: Graph, op: Op) -> Tensor | None:
    """Split a lookup until no part gives more than `_LARGE` bytes."""
    indices = op.operand(1)
    if indices.type.rank == 0:
        return None
    rows = indices.type.shape[0]
    parts = min(rows, -(-op.output.type.nbytes // _LARGE))
    if parts < 2:
        return None
    axis = _axis(op)
    split = tuple(rows * (part + 1) // parts - rows * part // parts for part in range(parts))
    attributes: AttributeMap = {"axis": 0, "split": split}
    pieces = build(graph, "Split", [indices], attributes, settings=op.settings).outputs
    found = [
        build(graph, "Gather", [op.operand(0), piece], {"axis": axis}, settings=op.settings).output
        for piece in pieces
    ]
    return build(graph, "Concat", found, {"axis": axis}, settings=op.settings).output


def _axis(op: Op) -> int:
    axis = op.attributes["axis"]
    assert isinstance(axis, int), "a Gather has an axis"
    return axis


RULES: Final = (
    LocalRule(
        "gathers_of_ranges",
        "default",
        "Makes a Slice of a Gather by constant indices at equal distances.",
        {"Gather": _as_slice},
    ),
    LocalRule(
        "split_gathers",
        "all",
        "Cuts a Gather whose result is larger than 1 MiB along the first dimension of the indices.",
        {"Gather": _cut},
    ),
)
