"""Execution phases: the parts of a forward pass that run one after the other.

Between phases what a chip does not need can be in streaming memory.  The transfers are added when
the backward pass and the loops are there; here ops only learn which phase they belong to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from popc.ir import Graph, Op, Recompute, Tensor
from popc.ops.load import find_load_ops
from popc.options import AutoRecomputation, Options
from popc_runtime.errors import OptionError

__all__ = ["assign_phases", "check_phases"]

_LISTED = 8  # ops shown of many


def assign_phases(graph: Graph, options: Options) -> int:
    """Divide the forward pass into phases of about equal bytes of weights; how many ops it has.

    An op goes to the phase that it is annotated with, else to the current one, but never to one
    before those of its operands.  A new phase begins when the weights of the current one are more
    than its share.  Phase p runs on chip p modulo the number of stages.  With recomputation, what
    one phase hands on to others is kept, and all else is computed once more.
    """
    settled = frozenset(find_load_ops(graph))
    # A variable is written where it lies, when all have read it: see `settle_phases`.
    order = [
        op for op in graph.topological() if op not in settled and op.op_type != "CopyVarUpdate"
    ]
    total = sum(map(_weight_bytes, order))
    phase, current = 0, 0
    for op in order:
        cost = _weight_bytes(op)
        full = current > 0 and (current + cost) * options.execution_phases > total
        if full and cost and phase < options.execution_phases - 1:
            phase, current = phase + 1, 0
        current += cost
        wanted = op.settings.execution_phase
        _put(op, phase if wanted is None else wanted, options.execution_phase_stages)
    if options.auto_recomputation is not AutoRecomputation.NONE:
        _mark(order)
    return len(order)


def _mark(order: Sequence[Op]) -> None:
    """Let the backward pass repeat what a phase computes from what other phases hand on to it."""
    for op in order:
        if op.settings.recompute is Recompute.UNDEFINED:
            own = op.settings.execution_phase
            users = (user for tensor in op.outputs for user in tensor.uses)
            crosses = any(user.settings.execution_phase != own for user in users)
            wish = Recompute.CHECKPOINT if crosses else Recompute.RECOMPUTE
            op.settings = replace(op.settings, recompute=wish)


def _put(op: Op, phase: int, stages: int) -> None:
    """Put ``op`` into ``phase``, or the first after it in which its operands are there."""
    makers = (tensor.producer for tensor in op.present_inputs)
    earlier = [maker.settings.execution_phase for maker in makers if maker is not None]
    first = max((early for early in earlier if early is not None), default=0)
    number = max(phase, first)
    op.settings = replace(op.settings, execution_phase=number, virtual_graph=number % stages)


def _weight_bytes(op: Op) -> int:
    return sum(_weights(op.present_inputs))


def _weights(tensors: Sequence[Tensor]) -> Iterator[int]:
    """Bytes of the weights among operands, and of what is computed from weights alone."""
    for tensor in dict.fromkeys(tensors):
        op = tensor.producer
        if tensor.kind.outlasts_runs or (op is not None and _is_settled(op)):
            yield tensor.type.nbytes


def _is_settled(op: Op) -> bool:
    return bool(op.inputs) and all(
        tensor.is_constant or (tensor.producer is not None and _is_settled(tensor.producer))
        for tensor in op.present_inputs
    )


def check_phases(graph: Graph, options: Options) -> None:
    """Check what the ops of an imported model are annotated with.

    Raises:
        OptionError: annotations name phases that do not exist, or chips that run others; lists all.
    """
    problems = list(_problems(graph, options))
    if problems:
        raise OptionError(
            "ops are assigned to execution phases wrongly",
            subject="execution_phases",
            details=tuple(problems),
        )


def _problems(graph: Graph, options: Options) -> Iterator[str]:
    phases, stages = options.execution_phases, options.execution_phase_stages
    beyond: dict[int, list[Op]] = {}
    for op in graph.ops:
        phase, chip = op.settings.execution_phase, op.settings.virtual_graph
        if phase is not None and phase >= phases:
            beyond.setdefault(phase, []).append(op)
        elif phase is None and chip is not None:
            yield (
                f"{_shown(op)} is on virtual graph {chip}, but virtual_graph_mode is "
                "execution_phases, which assigns chips by phase: give execution_phase instead"
            )
        elif phase is not None and chip is not None and chip != phase % stages:
            yield (
                f"{_shown(op)} is in execution phase {phase}, which runs on chip {phase % stages}, "
                f"but on virtual graph {chip}: leave out one of the annotations, or change it"
            )
    for phase, ops in sorted(beyond.items()):
        names = ", ".join(_shown(op) for op in ops[:_LISTED])
        more = f" and {len(ops) - _LISTED} more" if len(ops) > _LISTED else ""
        yield (
            f"{names}{more} in execution phase {phase}, but execution_phases is {phases}: set it "
            f"to at least {phase + 1}, or use smaller numbers"
        )


def _shown(op: Op) -> str:
    return f"{op.op_type} ({op.settings.origin})" if op.settings.origin else op.op_type
