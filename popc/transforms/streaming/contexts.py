"""The ops of a graph that share what is fetched for them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from popc.ir import Op, StepPart, Tensor
from popc.transforms.streaming.views import is_view

__all__ = ["Context", "Contexts"]

# An update that waits for more gradients than this waits for those of other weights too.
_OWN_GRADIENTS = 2


class Context(NamedTuple):
    """The time and place at which an op reads what has to be fetched.

    Attributes:
        half: "forward"; "backward", with the updates that need no more than the gradient of one
            weight; or "update".
        phase: The execution phase, if there are any.
        chip, stage: Where it runs.
    """

    half: str = "forward"
    phase: int | None = None
    chip: int | None = None
    stage: int | None = None


class Contexts:
    """The contexts of the ops of one graph.

    Without execution phases, a tensor is fetched for each half of a step.  With them, it is fetched
    for a run of phases between which there are at most ``gap`` others, and stays from the first to
    the last of these.
    """

    def __init__(self, order: Sequence[Op], gap: int) -> None:
        self._gap = gap
        self._halves = _find_halves(order)
        self._runs: dict[Tensor, Mapping[int, int]] = {}

    def of(self, op: Op) -> Context:
        """The context of ``op``."""
        own = op.settings
        half = self._halves.get(op, "forward")
        return Context(half, own.execution_phase, own.virtual_graph, own.pipeline_stage)

    @property
    def has_one(self) -> bool:
        """True if all ops are of one context, wherever they run."""
        phases = {op.settings.execution_phase for op in self._halves}
        return len(set(self._halves.values())) <= 1 and len(phases) <= 1

    def note(self, tensor: Tensor, made_in: Context | None) -> None:
        """Find the runs of phases in which ``tensor``, and views of it, are read."""
        phases = {reader.phase for reader in self._readers(tensor)}
        if made_in is not None:
            phases.add(made_in.phase)
        runs: dict[int, int] = {}
        latest: int | None = None
        for phase in sorted(number for number in phases if number is not None):
            near = latest is not None and phase - latest <= self._gap
            runs[phase] = runs[latest] if near and latest is not None else len(runs)
            latest = phase
        self._runs[tensor] = runs

    def label(self, tensor: Tensor, context: Context) -> Hashable:
        """Equal for contexts in which ``tensor`` needs to be fetched once."""
        if context.phase is None:
            return context.half
        return self._runs.get(tensor, {}).get(context.phase, context.phase)

    def key(self, tensor: Tensor, context: Context) -> Hashable:
        """Equal for contexts that share what is fetched."""
        return self.label(tensor, context), context.chip, context.stage

    def is_read_later(self, tensor: Tensor, made_in: Context) -> bool:
        """True if some op reads ``tensor`` when it would not be there any more."""
        own = self.label(tensor, made_in)
        return any(self.label(tensor, reader) != own for reader in self._readers(tensor))

    def _readers(self, tensor: Tensor) -> list[Context]:
        found: list[Context] = []
        for op in tensor.uses:
            if is_view(op):
                found += [reader for output in op.outputs for reader in self._readers(output)]
            elif op in self._halves and not _is_written_by(op, tensor):
                found.append(self.of(op))
        return found


def _is_written_by(op: Op, tensor: Tensor) -> bool:
    return op.op_type == "CopyVarUpdate" and op.operand(0) is tensor


def _find_halves(order: Sequence[Op]) -> Mapping[Op, str]:
    """For each op, the half of a step in which it reads what has to be fetched.

    Updates belong to the backward pass, which has just read the weight, unless they have to wait
    for gradients of other weights.
    """
    halves: dict[Op, str] = {}
    waits: dict[Op, dict[Tensor, None]] = {}
    for op in order:
        part = op.settings.part
        halves[op] = "forward" if part < StepPart.BACKWARD else "backward"
        if part is not StepPart.UPDATE:
            continue
        gradients: dict[Tensor, None] = {}
        for tensor in op.present_inputs:
            maker = tensor.producer
            if maker in waits:
                gradients |= waits[maker]
            elif maker is not None and maker.settings.part is StepPart.BACKWARD:
                gradients[tensor] = None
        waits[op] = dict.fromkeys([*gradients][: _OWN_GRADIENTS + 1])
        if len(gradients) > _OWN_GRADIENTS:
            halves[op] = "update"
    return halves
