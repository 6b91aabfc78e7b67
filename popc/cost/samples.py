"""The samples of a run of a program."""

from __future__ import annotations

from math import prod

from popc.ir import Graph, Op

__all__ = ["samples_of"]


def samples_of(graph: Graph) -> int:
    """Samples of one run: the size of the first dimension of what the host sends first."""
    counts: dict[object, int] = {}
    for nested in graph.walk():
        for op in nested.ops:
            if op.op_type == "HostLoad":  # the first one of a stream may stand before the loop
                stream = op.attributes["stream"]
                counts[stream] = max(counts.get(stream, 1), _loaded(op, nested, graph))
    return next(iter(counts.values()), 1)


def _loaded(op: Op, nested: Graph, graph: Graph) -> int:
    shape = op.output.type.shape
    loops = [] if nested is graph else _trip_counts(graph, nested)
    return prod(loops) * (shape[0] if shape else 1)


def _trip_counts(graph: Graph, wanted: Graph) -> list[int]:
    """Trip counts of the loops around ``wanted``."""
    for op in graph.ops:
        for nested in op.subgraphs.values():
            if wanted in list(nested.walk()):
                count = op.attributes.get("micro_batches", op.attributes.get("trip_count", 1))
                own = max(count, 1) if isinstance(count, int) else 1
                return [own, *(_trip_counts(nested, wanted) if nested is not wanted else [])]
    return []
