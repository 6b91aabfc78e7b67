"""The memory and time that each part of a program needs: a `CostReport` in short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    from popc.cost import CostReport, LiveTensor, MemoryReport, OpCost, Phase

__all__ = ["ChipState", "Diagnosis", "Holder", "Share", "diagnose"]

# Entries of a diagnosis: what the fixes need to choose by, and a reader takes in.
_HOLDERS = 10  # tensors
_OPS = 8  # kinds of ops
_PHASES = 4  # with the most temporary memory


@frozen
class Holder:
    """A tensor that is in memory at the peak.

    Attributes:
        name, type, kind: See `popc.cost.LiveTensor`.
        node: The ONNX node that computes it, or that reads it.
        on_tile: Bytes on the busiest tile.
        bytes: On all tiles.
        until: The step after which it is not needed any more; "" if it stays.
    """

    name: str
    type: str
    kind: str
    node: str
    on_tile: int
    bytes: int
    until: str


@frozen
class Share:
    """A part of a whole: cycles of ops, or bytes of a phase.

    Attributes:
        name: Of the op or phase; of several ops that are alike, the first one's.
        amount: Of all of them.
        count: How many there are.
    """

    name: str
    amount: int
    op_type: str = ""
    node: str = ""
    plan: str = ""
    count: int = 1


@frozen
class ChipState:
    """The memory of one chip where most of it is needed.

    Attributes:
        ipu: Its number.
        limit: Bytes of a tile.
        peak: Bytes that the busiest tile needs.
        excess: Bytes that it lacks, in all or for code; negative if it has some left.
        tile: The busiest tile.
        tiles, tiles_over: How many there are, and how many need more than they have.
        step, steps: The number of the step, and how many there are.
        steps_over: Steps during which some tile needs more than it has.
        op, op_type, node: The op of the step, and the ONNX node that it comes from.
        plan: How the op is planned, if it is a product.
        categories: Bytes of the busiest tile by what they hold.
        holders: The tensors that take most of it.
        others: Bytes of it in tensors that are not listed.
        temporary: What the op needs while it runs, by phase.
    """

    ipu: int
    limit: int
    peak: int
    excess: int
    tile: int
    tiles: int
    tiles_over: int
    step: int
    steps: int
    steps_over: int
    op: str
    op_type: str
    node: str
    plan: str
    categories: dict[str, int]
    holders: tuple[Holder, ...]
    others: int
    temporary: tuple[Share, ...]


@frozen
class Diagnosis:
    """The needs of a program, in a few numbers and lists.

    Attributes:
        target: Its name.
        clock_hz: Of its tiles.
        cycles: Of a run, by what they are spent on.
        samples: That a run processes.
        chips: All of them, the fullest one first.
        slowest: The ops that take most of the time.
        kinds: Cycles by ONNX-like type of op, most first.
    """

    target: str
    clock_hz: int
    cycles: dict[str, int]
    samples: int
    chips: tuple[ChipState, ...]
    slowest: tuple[Share, ...]
    kinds: tuple[Share, ...]

    @property
    def fits(self) -> bool:
        """True if all chips have enough memory."""
        return all(chip.excess <= 0 for chip in self.chips)

    @property
    def total_cycles(self) -> int:
        """The cycles of a run."""
        return sum(self.cycles.values())

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain data."""
        return {
            "target": self.target,
            "fits": self.fits,
            "cycles": {"total": self.total_cycles, **self.cycles},
            "seconds": self.total_cycles / self.clock_hz,
            "samples": self.samples,
            "ipus": [_plain(chip) for chip in self.chips],
            "slowest_ops": [_plain(share) for share in self.slowest],
            "cycles_by_op_type": {kind.name: kind.amount for kind in self.kinds},
        }


def diagnose(report: CostReport) -> Diagnosis:
    """The diagnosis of a report."""
    ops = {op.name: op for op in reversed(report.ops)}
    chips = [_state(number, chip, ops) for number, chip in enumerate(report.memory)]
    kinds: Counter[str] = Counter()
    for op in report.ops:
        kinds[op.op_type] += op.cycles.total
    cycles = report.cycles
    return Diagnosis(
        target=report.target.name,
        clock_hz=report.target.tile.clock_hz,
        cycles={field.name: getattr(cycles, field.name) for field in fields(cycles)},
        samples=report.samples,
        chips=tuple(sorted(chips, key=lambda chip: (-chip.excess, chip.ipu))),
        slowest=_slowest(report.ops),
        kinds=tuple(Share(name, count) for name, count in kinds.most_common(_OPS) if count),
    )


def _slowest(ops: Sequence[OpCost]) -> tuple[Share, ...]:
    """The ops that take most of the time; those that are alike count together."""
    groups: dict[tuple[str, int, str], list[OpCost]] = {}
    for op in ops:
        plan = op.plans[0] if op.plans else ""
        if op.cycles.total:
            groups.setdefault((op.op_type, op.cycles.total, plan), []).append(op)
    shares = [
        Share(alike[0].name, cycles * len(alike), op_type, alike[0].origin, plan, len(alike))
        for (op_type, cycles, plan), alike in groups.items()
    ]
    return tuple(sorted(shares, key=lambda share: -share.amount)[:_OPS])


def _state(number: int, chip: MemoryReport, ops: dict[str, OpCost]) -> ChipState:
    step = chip.steps[chip.peak_step] if chip.steps else None
    name = step.name if step is not None else ""
    op = ops.get(name)
    there = sorted(
        chip.tensors, key=lambda tensor: (-tensor.on_busiest, -tensor.bytes, tensor.name)
    )
    holders = tuple(_holder(buffer, chip) for buffer in there[:_HOLDERS] if buffer.on_busiest)
    held = chip.busiest.variables + chip.busiest.activations
    return ChipState(
        ipu=number,
        limit=chip.limit,
        peak=chip.peak_bytes,
        excess=chip.excess,
        tile=step.tile if step is not None else 0,
        tiles=len(chip.peak),
        tiles_over=chip.tiles_over,
        step=max(chip.peak_step, 0),
        steps=len(chip.steps),
        steps_over=sum(candidate.busiest > chip.limit for candidate in chip.steps),
        op=name,
        op_type=op.op_type if op is not None else "",
        node=op.origin if op is not None else "",
        plan=op.plans[0] if op is not None and op.plans else "",
        categories=chip.busiest.to_dict(),
        holders=holders,
        others=max(held - sum(holder.on_tile for holder in holders), 0),
        temporary=_temporaries(op.phases if op is not None else ()),
    )


def _holder(tensor: LiveTensor, chip: MemoryReport) -> Holder:
    stays = tensor.kind != "activation" or tensor.last >= len(chip.steps) - 1
    until = "" if stays else chip.steps[tensor.last].name
    return Holder(
        tensor.name,
        tensor.type,
        tensor.kind,
        tensor.origin,
        tensor.on_busiest,
        tensor.bytes,
        until,
    )


def _temporaries(phases: Sequence[Phase]) -> tuple[Share, ...]:
    """The phases that need most; of equal ones, the first."""
    largest = sorted(phases, key=lambda phase: -phase.temporary)[:_PHASES]
    return tuple(Share(op.name, op.temporary) for op in largest if op.temporary)


def _plain(record: Any) -> dict[str, Any]:
    """A record as plain data, without what is empty."""
    found: dict[str, Any] = {}
    for field in fields(record):
        value = getattr(record, field.name)
        if isinstance(value, tuple):
            value = [_plain(item) for item in value]
        if value not in ("", [], {}):
            found[field.name] = value
    return found
