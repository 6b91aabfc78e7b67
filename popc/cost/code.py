"""Bytes of every tile that are not data: code, vertex state, exchange code, headers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from popc.cost.chips import takes_part
from popc.cost.codesize import BASE, CodeUse, code_bytes, host_bytes, kinds_of, sizes_of
from popc.cost.mapping import linear_mapping
from popc.cost.report import CODE_CATEGORIES
from popc.cost.uses import Occurrences
from popc.ir import Graph, Op
from popc.target import Target
from popc_runtime.format import Array
from popc_runtime.ground.frozen import mutable

__all__ = ["measure_code", "total"]

_BETWEEN_CHIPS: Final = frozenset({"AllGather", "AllReduce", "IpuCopy", "ReduceScatter"})
_REMOTE: Final = frozenset({"RemoteGather", "RemoteLoad", "RemoteScatterAdd", "RemoteStore"})
_HOST: Final = frozenset({"HostLoad", "HostStore"})


def measure_code(
    graph: Graph, uses: Sequence[CodeUse], target: Target, chip: int = 0, *, shares: bool = False
) -> dict[str, Array]:
    """Bytes of every tile of a chip, by category; ``uses`` are those of its ops.

    ``shares``: equal transfers with streaming memory share their code.
    """
    totals: dict[str, Array] = {
        name: np.full(target.tiles_per_ipu, BASE.get(name, 0), np.int64) for name in CODE_CATEGORIES
    }
    kinds: dict[tuple[str, str], Array] = defaultdict(
        lambda: np.zeros(target.tiles_per_ipu, np.bool_)
    )
    place = _Place(target.compute_tiles)
    for use in uses:
        spans = list(place.take(use.tiles))
        for name, bytes_ in sizes_of(use, target).items():
            for span in spans if bytes_ else ():
                totals[name][span] += bytes_
        for kind in kinds_of(use):
            for span in spans:
                kinds[kind][span] = True
    for kind, used in kinds.items():
        totals["vertex_code"] += code_bytes(kind) * used
    _add_transfers(graph, target, chip, totals, shares=shares)
    return totals


def total(code: Mapping[str, Array]) -> Array:
    """Bytes of every tile in all categories."""
    found: Array = np.stack(list(code.values())).sum(axis=0)
    return found


@mutable
class _Place:
    """Tiles are taken in turns by what does not need all of them."""

    count: int
    next: int = 0

    def take(self, tiles: int) -> Iterator[slice]:
        """The next ``tiles``, as one or two rows of them."""
        if tiles >= self.count:
            yield slice(0, self.count)
            return
        end = self.next + tiles
        yield slice(self.next, min(end, self.count))
        if end > self.count:
            yield slice(0, end - self.count)
        self.next = end % self.count


def _add_transfers(
    graph: Graph, target: Target, chip: int, totals: dict[str, Array], *, shares: bool
) -> None:
    """Code and headers of what goes beyond the chip, or comes from there.

    Tensors of streaming memory that are alike are rows of one buffer.  A function takes the number
    of the row as an argument, so that outlined updates have the code of their transfers once.
    """
    found: dict[str, list[int]] = defaultdict(list)
    rows = Occurrences()
    for nested in graph.walk():
        for op in nested.ops:
            name = _kind_of_transfer(op)
            if not name or not takes_part(op, chip, target.num_ipus):
                continue
            if shares and name == "gateway" and not rows.is_first(*_row(op)):
                continue
            found[name].append(_bytes_of(op, target))
    for name, sizes in found.items():
        totals[name] += host_bytes(sizes, target)


def _row(transfer: Op) -> tuple[object, object]:
    """Equal for transfers from and to one buffer; and the update that the transfer belongs to."""
    settings = transfer.settings
    types = tuple(str(tensor.type) for tensor in (*transfer.present_inputs, *transfer.outputs))
    return (transfer.op_type, types, settings.tile_set, settings.part), settings.origin


def _kind_of_transfer(op: Op) -> str:
    if op.op_type in _BETWEEN_CHIPS:
        return "global_exchange"
    if op.op_type in _REMOTE:
        return "gateway"
    return "host_exchange" if op.op_type in _HOST else ""


def _bytes_of(transfer: Op, target: Target) -> int:
    """Bytes of the busiest tile of what is transferred."""
    on_io = transfer.settings.tile_set == "io" and target.num_io_tiles
    tiles = target.num_io_tiles if on_io else target.compute_tiles
    tensors = transfer.outputs or transfer.present_inputs
    types = [tensor.type for tensor in tensors]
    return sum(linear_mapping(type_.size, type_.dtype, tiles).busiest for type_ in types)
