"""A naive check of recomputation, sharing nothing with what does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from popc.ir import Graph, Op, Recompute, StepPart, Tensor
from popc.ops import OPS

__all__ = ["find_unrecomputed"]


def find_unrecomputed(graph: Graph) -> list[str]:
    """The problems, a sentence each.

    The backward pass must read nothing of what is said to be recomputed; a repetition must do what
    an op of the forward pass does, to the same operands or to repetitions of them, and no more.
    """
    return [problem for nested in graph.walk() for problem in _problems(nested)]


def _problems(graph: Graph) -> Iterator[str]:
    repetitions = [op for op in graph.topological() if _is_repetition(op)]
    for op in graph.ops:
        for tensor in op.present_inputs:
            source = tensor.producer
            if source is None or source.settings.part <= op.settings.part:
                continue
            yield f"{op!r} ({op.settings.part.name}) reads {tensor!r} of a later part"
    if repetitions:
        yield from _stale_reads(graph)
        yield from _false_repetitions(graph, repetitions)


def _is_repetition(op: Op) -> bool:
    return op.settings.recompute is Recompute.RECOMPUTED


def _stale_reads(graph: Graph) -> Iterator[str]:
    for op in graph.ops:
        if op.settings.part is not StepPart.BACKWARD:
            continue
        for tensor in op.present_inputs:
            source = tensor.producer
            if source is not None and source.settings.recompute is Recompute.RECOMPUTE:
                yield f"{op!r} reads {tensor!r}, which is not kept"


def _false_repetitions(graph: Graph, repetitions: Sequence[Op]) -> Iterator[str]:
    forward = [op for op in graph.ops if op.settings.recompute is Recompute.RECOMPUTE]
    originals: dict[Tensor, Tensor] = {}
    for op in repetitions:
        if _is_volatile(op):
            yield f"{op!r} does not give the same once more"
        if op.settings.part is not StepPart.BACKWARD:
            yield f"{op!r} is a repetition in part {op.settings.part.name}"
        if not any(tensor.uses for tensor in op.outputs):
            yield f"{op!r} is repeated for nobody"
        found = next(
            (candidate for candidate in forward if _does_the_same(op, candidate, originals)), None
        )
        if found is None:
            yield f"{op!r} repeats no forward op"
        else:
            originals.update(zip(op.outputs, found.outputs, strict=True))


def _does_the_same(repetition: Op, op: Op, originals: dict[Tensor, Tensor]) -> bool:
    """True if both are the same op on the same operands, if repetitions count as originals.

    Different places may have equal ops of their own.
    """
    operands = [originals.get(t, t) if t is not None else None for t in repetition.inputs]
    return (
        repetition.op_type == op.op_type
        and repetition.settings.place == op.settings.place
        and repetition.attributes == op.attributes
        and len(operands) == len(op.inputs)
        and all(one is other for one, other in zip(operands, op.inputs, strict=True))
        and [t.type for t in repetition.outputs] == [t.type for t in op.outputs]
    )


def _is_volatile(op: Op) -> bool:
    spec = OPS.get(op.op_type)
    inner = [nested for graph in op.subgraphs.values() for nested in graph.ops]
    return any(map(_is_volatile, inner)) or (spec is not None and (spec.random or spec.side_effect))
