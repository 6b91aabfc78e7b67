"""The data that moves through each stream in one step, read off the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from popc.ir import Graph, Op, TensorType
from popc.ir.attributes import integer, text
from popc_runtime.format import (
    ReturnType,
    StreamDirection,
    StreamSpec,
    SyntheticData,
    TensorSpec,
)

__all__ = ["describe_streams"]


def describe_streams(
    graph: Graph,
    inputs: Sequence[tuple[str, TensorType]],
    outputs: Sequence[tuple[str, TensorType]],
    replicas: int = 1,
    depth: Callable[[str], int] = lambda _: 0,
) -> tuple[tuple[StreamSpec, ...], tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """The streams of a program, and its inputs and outputs as the host sees them.

    A transfer inside of the main loops happens once per iteration: the host's array has a leading
    dimension for each loop of several iterations, the outermost first.  Then comes one for the
    replicas, if there are several and each has a sample of its own.  ``depth`` says how far an
    input is read ahead.
    """
    transfers: dict[tuple[str, str], tuple[Op, tuple[int, ...]]] = {}
    for op, loops in _transfers(graph, ()):
        stream = op.op_type, text(op.attributes, "stream")
        dims = (*loops, *_per_replica(op, replicas))
        # Where the first load or the last store stands alone, the loop knows of them too.
        if stream not in transfers or len(dims) > len(transfers[stream][1]):
            transfers[stream] = op, dims
    streams: list[StreamSpec] = []
    tensors: list[TensorSpec] = []
    for name, type_ in inputs:
        op, dims = transfers["HostLoad", name]
        streams.append(
            StreamSpec(
                name,
                StreamDirection.INPUT,
                type_.dtype,
                type_.shape,
                prod(dims),
                depth=depth(name),
                synthetic=_made_up(op),
            )
        )
        tensors.append(TensorSpec(name, type_.dtype, (*dims, *type_.shape)))
    for name, _ in outputs:
        op, dims = transfers["HostStore", name]
        type_ = op.operand(0).type  # of a sum, perhaps not the model's
        kind = ReturnType(text(op.attributes, "return_type"))
        several = kind in (ReturnType.ALL, ReturnType.EVERY_N) or replicas > 1
        samples = prod(dims) if several else 0
        streams.append(
            StreamSpec(name, StreamDirection.OUTPUT, type_.dtype, type_.shape, samples, kind)
        )
        tensors.append(TensorSpec(name, type_.dtype, (*dims, *type_.shape)))
    return tuple(streams), tuple(tensors[: len(inputs)]), tuple(tensors[len(inputs) :])


def _made_up(op: Op) -> SyntheticData | None:
    mode = op.attributes.get("synthetic")
    return None if mode is None else SyntheticData(str(mode))


def _per_replica(op: Op, replicas: int) -> tuple[int, ...]:
    return () if replicas == 1 or op.attributes.get("broadcast") else (replicas,)


def _transfers(graph: Graph, dims: tuple[int, ...]) -> Iterator[tuple[Op, tuple[int, ...]]]:
    """Every HostLoad and HostStore, with the numbers of iterations that it is made in."""
    for op in graph.ops:
        if op.op_type in ("HostLoad", "HostStore"):
            period = integer(op.attributes, "period", 1)
            rows = (*dims[:-1], dims[-1] // period) if dims else ()
            yield op, tuple(count for count in rows if count > 1)
        for nested in op.subgraphs.values():
            trips = (_iterations(op),) if op.op_type == "Loop" else ()
            yield from _transfers(nested, (*dims, *trips))


def _iterations(loop: Op) -> int:
    """The number of iterations of a loop; of a pipeline, with those before and behind it."""
    return integer(loop.attributes, "micro_batches", integer(loop.attributes, "trip_count"))
