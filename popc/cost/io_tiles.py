"""The tensors that lie on the tiles that transfer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from popc.ir import Graph, Op, Tensor
from popc.ops.control import loop_body

__all__ = ["buffers_of_unrolled", "find_on_io_tiles"]


def find_on_io_tiles(graph: Graph) -> frozenset[Tensor]:
    """Results of ops on io tiles, and what hands them on: states of loops, results of branches."""
    found: set[Tensor] = set()
    if any(op.settings.tile_set == "io" for nested in graph.walk() for op in nested.ops):
        _visit(graph, found)
    return frozenset(found)


def buffers_of_unrolled(op: Op) -> Iterator[tuple[Tensor, Tensor]]:
    """Tensors that lie in the memory of others, because the device makes no such choice or copy.

    The choice whether there is a next sample to load is no choice in iterations that are written
    out: the sample is loaded where the next iteration looks for it.
    """
    if op.op_type == "If" and op.attributes.get("unrolled"):
        for branch in op.subgraphs.values():
            yield from zip(branch.outputs, op.outputs, strict=True)
    elif op.op_type == "Copy":
        source = op.operand(0).producer
        if source is not None and source.attributes.get("unrolled"):
            yield op.output, op.operand(0)


def _visit(graph: Graph, found: set[Tensor]) -> None:
    for op in graph.topological():
        if not op.subgraphs:
            if _leaves_on_io(op):
                found.update(op.outputs)
            continue
        for nested in op.subgraphs.values():
            pairs = zip(reversed(op.inputs), reversed(nested.inputs), strict=False)
            _hand_on(pairs, found)
            _visit(nested, found)
            results = nested.outputs[1:] if loop_body(op) is nested else nested.outputs
            _hand_on(zip(results, op.outputs, strict=False), found)


def _leaves_on_io(op: Op) -> bool:
    if op.op_type == "IoTileCopy":
        return op.attributes["destination"] == "io"
    return op.settings.tile_set == "io"


def _hand_on(pairs: Iterable[tuple[Tensor | None, Tensor]], found: set[Tensor]) -> None:
    for source, target in pairs:
        if source in found:
            found.add(target)
