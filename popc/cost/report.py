"""The costs of a program: cycles of every op, bytes of every tile."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from popc.cost.phases import Cycles, Phase
from popc.cost.pipeline import PipelineCost
from popc.target import Target, Tile
from popc_runtime.ground.frozen import frozen

__all__ = [
    "BETWEEN_MEETINGS",
    "CODE_CATEGORIES",
    "Categories",
    "CostReport",
    "LiveStep",
    "LiveTensor",
    "MemoryReport",
    "OpCost",
    "Regions",
]

# The first part of steps that are those of no pipeline.
BETWEEN_MEETINGS: Final = 2


@frozen
class OpCost:
    """One op.

    Attributes:
        name: Of its first result, or of what it writes.
        origin: The ONNX node that it comes from; those of the steps, for a chain.
        times: How often it runs; ``cycles`` are those of all runs together.
        phases: What it consists of, for a single run.
        plans: How its products are split, or the steps of a chain, in words.
        ipu: The chip that it runs on.
        step: Chips do what is in one step at the same time.  In a pipeline, whether it is in the
            loop in which all stages run (1) or not (0), and its step there; elsewhere
            `BETWEEN_MEETINGS`, and how often chips have met; ``None`` on a single chip.
        hidden: Cycles for the host, in all, that pass while others compute; ``cycles`` has none of
            them.
    """

    name: str
    op_type: str
    origin: str
    times: int
    cycles: Cycles
    phases: tuple[Phase, ...]
    plans: tuple[str, ...] = ()
    ipu: int = 0
    hidden: int = 0
    step: tuple[int, int] | None = None

    @property
    def temporary_bytes(self) -> int:
        """On the busiest tile while it runs."""
        return max((phase.temporary for phase in self.phases), default=0)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "name": self.name,
            "op_type": self.op_type,
            "origin": self.origin,
            "ipu": self.ipu,
            "times": self.times,
            "cycles": cycles_dict(self.cycles),
            "hidden": self.hidden,
            "step": list(self.step) if self.step else None,
            "temporary_bytes": self.temporary_bytes,
            "plans": list(self.plans),
            "phases": [
                {field.name: getattr(phase, field.name) for field in fields(phase)}
                for phase in self.phases
            ],
        }


@frozen
class Categories:
    """Bytes of a tile by what they hold, in the words of the vendor's memory profiles.

    Attributes:
        variables: Weights and state; ``constants`` are not weights.
        vertex_fields: Pointers of vertices to their operands; ``vector_descriptors`` are headers
            of such lists, ``copy_descriptors`` those of copies.
        global_exchange, host_exchange, gateway: Code and headers of packets: between chips, with
            the host, with streaming memory.
        message_buffers: Temporary ones, of what is on its way to another chip.
        gaps: Behind what does not end with a word of 64 bits.
    """

    variables: int = 0
    constants: int = 0
    activations: int = 0
    temporary: int = 0
    vertex_code: int = 0
    vertex_state: int = 0
    vertex_fields: int = 0
    vector_descriptors: int = 0
    copy_descriptors: int = 0
    exchange_code: int = 0
    control_code: int = 0
    global_exchange: int = 0
    host_exchange: int = 0
    gateway: int = 0
    message_buffers: int = 0
    stack: int = 0
    gaps: int = 0

    @property
    def total(self) -> int:
        """The sum of all fields."""
        return sum(getattr(self, field.name) for field in fields(self))

    def to_dict(self) -> dict[str, int]:
        """By name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


# The categories of what is neither data nor stack, in the order in which they are shown.
CODE_CATEGORIES: Final = (
    "vertex_code",
    "vertex_state",
    "vertex_fields",
    "vector_descriptors",
    "copy_descriptors",
    "exchange_code",
    "control_code",
    "global_exchange",
    "host_exchange",
    "gateway",
)


@frozen
class Regions:
    """Bytes of a tile by region of its memory; code lies in the one that is not interleaved."""

    non_interleaved: int = 0
    interleaved: int = 0
    overflowed: int = 0

    @classmethod
    def of(cls, bytes_: Categories, tile: Tile) -> Regions:
        """Data fills the interleaved region first, and what code leaves free."""
        code = bytes_.vertex_code + bytes_.exchange_code + bytes_.control_code
        code += bytes_.global_exchange + bytes_.host_exchange + bytes_.gateway + bytes_.stack
        executable = tile.memory_bytes - tile.interleaved_bytes
        data = bytes_.total - code
        interleaved = min(data, tile.interleaved_bytes)
        own = min(code, executable)
        own += min(data - interleaved, executable - own)
        return cls(own, interleaved, bytes_.total - own - interleaved)

    def to_dict(self) -> dict[str, int]:
        """By name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@frozen
class LiveStep:
    """One step of the schedule.

    Attributes:
        name: The op's.
        activations: Bytes of all tiles that are not always live.
        temporary: Bytes of the busiest tile.
        busiest: Bytes of the busiest tile in all.
        tile: Which one that is.
    """

    name: str
    activations: int
    temporary: int
    busiest: int
    tile: int


@frozen
class LiveTensor:
    """A tensor with memory of its own; views, results in place and joined operands lie in it.

    Attributes:
        name: The tensor's, as in the model where it has it from there.
        type: Element type and shape.
        kind: "constant", "variable", "state" (computed at load) or "activation".
        bytes: Of all tiles.
        first, last: The steps during which it is live, by number.
        origin: The ONNX node that computes it, or else the first one that reads it.
        on_busiest: Bytes on the busiest tile of the peak, if it is live then.
    """

    name: str
    type: str
    kind: str
    bytes: int
    first: int
    last: int
    origin: str = ""
    on_busiest: int = 0


@frozen
class MemoryReport:
    """The memory of one chip.

    Attributes:
        always_live: Bytes of each tile that are in use throughout.
        peak: Bytes of each tile at the step that needs most on one of them.
        peak_step: Its number in ``steps``; -1 if there is none.
        busiest: What the busiest tile holds at that step.
        average: What tiles hold then on average.
        steps: The liveness curve.
        limit: Bytes that a tile has.
        tensors: The biggest ones, biggest first.
        code: Of what each tile has always, bytes that are not variables, constants, stack or gaps.
        regions: What the busiest tile holds at that step, by region.
    """

    always_live: tuple[int, ...]
    peak: tuple[int, ...]
    peak_step: int
    busiest: Categories
    average: Categories
    steps: tuple[LiveStep, ...]
    limit: int
    tensors: tuple[LiveTensor, ...] = ()
    code: tuple[int, ...] = ()
    regions: Regions = Regions()

    @property
    def peak_bytes(self) -> int:
        """The bytes of the busiest tile."""
        return max(self.peak, default=0)

    @property
    def excess(self) -> int:
        """Bytes that the busiest tile lacks, in all or for code; negative if it has some left."""
        return self.regions.overflowed or self.peak_bytes - self.limit

    @property
    def fits(self) -> bool:
        """True if no tile needs more than it has, in all or for code."""
        return self.excess <= 0

    @property
    def tiles_over(self) -> int:
        """The number of tiles that need more than they have."""
        return sum(bytes_ > self.limit for bytes_ in self.peak)

    def to_dict(self, *, full: bool = False) -> dict[str, Any]:
        """The same as plain data; with ``full``, every tile and every step."""
        data: dict[str, Any] = {
            "limit_bytes": self.limit,
            "peak_bytes": self.peak_bytes,
            "average_bytes": sum(self.peak) // max(len(self.peak), 1),
            "always_live_bytes": max(self.always_live, default=0),
            "not_always_live_bytes": self.peak_bytes - max(self.always_live, default=0),
            "total_bytes": sum(self.peak),
            "tiles_over": self.tiles_over,
            "peak_step": self.steps[self.peak_step].name if self.steps else "",
            "busiest": self.busiest.to_dict(),
            "average": self.average.to_dict(),
            "regions": self.regions.to_dict(),
        }
        if full:
            data["always_live"], data["peak"] = list(self.always_live), list(self.peak)
            data["code"] = list(self.code)
            data["steps"] = [
                {field.name: getattr(step, field.name) for field in fields(step)}
                for step in self.steps
            ]
            data["tensors"] = [
                {field.name: getattr(tensor, field.name) for field in fields(tensor)}
                for tensor in self.tensors
            ]
        return data


@frozen
class CostReport:
    """The costs of one run of a program on a target.

    Attributes:
        target: The target, as it is used.
        ops: The ops in order of the schedule, views and other ops that cost nothing included.
        memory: Of every chip that the program uses.
        samples: How many samples a run processes: the first dimensions of the first input.
        plans: How many different convolutions and products were planned.
        assumed: Loops whose number of iterations is not known; one was assumed.
        pipeline: What chips do at the same time; ``None`` if there is no pipeline.
        beside: Cycles of ``ops``, outside of pipelines, that pass while a slower chip works.
    """

    target: Target
    ops: tuple[OpCost, ...]
    memory: tuple[MemoryReport, ...]
    samples: int
    plans: int
    assumed: tuple[str, ...] = ()
    pipeline: PipelineCost | None = None
    beside: Cycles = Cycles()

    @property
    def cycles(self) -> Cycles:
        """The cycles of the whole run; where chips work at the same time, those of the slowest."""
        total = self.beside * -1
        for op in self.ops:
            total = total + op.cycles
        return total + self.pipeline.hidden * -1 if self.pipeline else total

    @property
    def hidden(self) -> int:
        """Cycles of transfers with the host that pass while the device computes."""
        return sum(op.hidden for op in self.ops)

    @property
    def device_cycles(self) -> int:
        """The cycles of the whole run, without transfers between host and device."""
        cycles = self.cycles
        return cycles.total - cycles.host

    @property
    def seconds(self) -> float:
        """For one run."""
        return self.cycles.total / self.target.tile.clock_hz

    @property
    def throughput(self) -> float:
        """Samples per second, run after run."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def fits(self) -> bool:
        """True if every tile has enough memory."""
        return all(chip.fits for chip in self.memory)

    def to_dict(self, *, full: bool = False) -> dict[str, Any]:
        """The report as plain data; with ``full``, every op, tile and step."""
        data: dict[str, Any] = {
            "target": self.target.to_dict(),
            "fits": self.fits,
            "cycles": cycles_dict(self.cycles),
            "device_cycles": self.device_cycles,
            "hidden_cycles": self.hidden,
            "beside": cycles_dict(self.beside),
            "seconds": self.seconds,
            "samples": self.samples,
            "samples_per_second": self.throughput,
            "plans": self.plans,
            "assumed_loops": list(self.assumed),
            "pipeline": self.pipeline.to_dict() if self.pipeline else None,
            "memory": [chip.to_dict(full=full) for chip in self.memory],
        }
        if full:
            data["ops"] = [op.to_dict() for op in self.ops]
        return data


def cycles_dict(cycles: Cycles) -> dict[str, int]:
    """Cycles by what they are spent on, and their total."""
    parts = {field.name: getattr(cycles, field.name) for field in fields(cycles)}
    return {"total": cycles.total, **parts}
