"""For the checker: a program as steps, and the values that live from step to step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from popc.ir import Graph, Op, Tensor, TensorKind
from popc.ir.attributes import integer
from popc.memory.plan import MemoryPlan
from popc.schedule import Schedule
from popc_runtime.format import Region
from popc_runtime.ground.frozen import mutable

__all__ = ["Life", "Replay", "replay", "replay_callee"]


@mutable
class Life:
    """The steps in which a tensor's memory is written, and last read."""

    written: int
    read: int


@mutable
class Replay:
    """The findings of `replay`.

    Attributes:
        frames: What each call hands over to work in.
        region: What the program works in.
        shows: Tensors that have no memory of their own, with the tensor whose memory they show.
        lives: Of every other tensor that something computes.
        reads: Of each of these, the steps in which it is read, and under which name.
        writer: The step that each op writes its outputs in.
        copied: The step in which a body's results are copied over its states, and that in which
            an op copies a value over a variable.
        loaded: The first step after load time.
        now: The current step.
    """

    plan: MemoryPlan
    schedule: Schedule
    frames: Mapping[Op, Tensor]
    region: Region = Region.ARENA
    shows: dict[Tensor, Tensor] = field(default_factory=dict[Tensor, Tensor])
    lives: dict[Tensor, Life] = field(default_factory=dict[Tensor, Life])
    reads: dict[Tensor, list[tuple[int, Tensor]]] = field(
        default_factory=dict["Tensor", "list[tuple[int, Tensor]]"]
    )
    writer: dict[Op, int] = field(default_factory=dict[Op, int])
    copied: dict[Op, int] = field(default_factory=dict[Op, int])
    loaded: int = 0
    now: int = 0

    def origin(self, tensor: Tensor) -> Tensor:
        """The tensor whose memory ``tensor`` shows; if there are several, the first."""
        while tensor in self.shows:
            tensor = self.shows[tensor]
        return tensor

    def origins(self, tensor: Tensor) -> list[Tensor]:
        """All tensors whose memory ``tensor`` shows: a Concat shows a row of variables."""
        while tensor in self.shows:
            op = tensor.producer
            if op is not None and op.op_type == "Concat":
                parts = [origin for part in op.present_inputs for origin in self.origins(part)]
                return list(dict.fromkeys(parts))
            tensor = self.shows[tensor]
        return [tensor]

    def step(self, reads: Iterable[Tensor | None] = (), writes: Iterable[Tensor] = ()) -> None:
        """Note that these tensors are read and written now, and let time go on."""
        for tensor in reads:
            if tensor is None:
                continue
            for origin in self.origins(tensor):
                if origin in self.lives:
                    self.lives[origin].read = self.now
                    self.reads.setdefault(origin, []).append((self.now, tensor))
        for tensor in writes:
            self.lives[tensor] = Life(self.now, self.now)
        self.now += 1

    def run(self, ops: Iterable[Op]) -> None:
        """Run ``ops`` in order."""
        for op in ops:
            self.writer[op] = self.now
            if op in self.plan.views:
                self.shows.update(dict.fromkeys(op.outputs, op.operand(0)))
            elif op.op_type == "If":
                self._run_if(op)
            elif op.op_type == "Loop":
                self._run_loop(op)
            elif op.op_type == "Call":
                self._run_call(op)
            elif op.op_type == "CopyVarUpdate":
                self.copied[op] = self.now
                self.step([op.operand(1)])
            else:
                self.step(op.inputs, op.outputs)

    def _run_if(self, op: Op) -> None:
        captures = op.present_inputs[1:]
        self.step(op.inputs, op.outputs)
        for branch in op.subgraphs.values():
            self.shows.update(zip(branch.inputs, captures, strict=True))
            self.run(self.schedule.orders[branch])
            self.step([*branch.outputs, *op.outputs])
        self.step([*captures, *op.outputs])

    def _run_call(self, op: Op) -> None:
        """Replay a call: memory handed over is in use from beginning to end."""
        frame = self.frames[op]
        self.step(op.inputs, [*op.outputs, frame])
        self.step([*op.inputs, *op.outputs, frame])

    def _run_loop(self, op: Op) -> None:
        body = op.subgraphs["body"]
        states = integer(op.attributes, "states")
        header, formal = body.inputs[:2], body.inputs[2:]
        captures = [op.operand(index) for index in range(2 + states, len(op.inputs))]
        self.step(op.inputs, [*op.outputs, *header])
        self.shows.update(zip(formal[:states], op.outputs, strict=False))
        self.shows.update(zip(formal[states:], captures, strict=True))
        self.run(self.schedule.orders[body])
        self.copied[op] = self.now
        self.step(body.outputs if op.attributes["conditional"] else body.outputs[1:])
        self.step([op.inputs[0], *captures, *header, *op.outputs])


def replay_callee(
    graph: Graph, schedule: Schedule, plan: MemoryPlan, frames: Mapping[Op, Tensor]
) -> Replay:
    """Run a graph that is called once; operands are there from beginning to end."""
    program = Replay(plan, schedule, frames, Region.PARAMETER)
    program.step([], graph.inputs)
    program.run(schedule.orders[graph])
    program.step([*graph.inputs, *graph.outputs])
    return program


def replay(
    graph: Graph, schedule: Schedule, plan: MemoryPlan, frames: Mapping[Op, Tensor]
) -> Replay:
    """Run load time once and the program once."""
    program = Replay(plan, schedule, frames)
    variables = [t for t in graph.tensors.values() if t.kind is TensorKind.VARIABLE]
    program.step([], variables)
    program.run(schedule.load)
    program.loaded = program.now
    program.step([], graph.inputs)
    program.run(schedule.orders[graph])
    program.step([*graph.outputs, *variables])
    return program
