"""Turn the loop over micro-batches into a pipeline of stages."""

from __future__ import annotations

from dataclasses import replace

from popc.autodiff.copying import is_repeatable
from popc.ir import Graph, Op, Recompute, StepPart, Tensor, TensorType
from popc.ops import OPS
from popc.ops.build import build
from popc.ops.control import first_capture
from popc.ops.main_loops import PIPELINE
from popc.options import PipelineSchedule
from popc.placement import is_main_loop, last_stage, main_graphs
from popc.transforms.base import PassOutcome
from popc.transforms.loop_states import MainLoopState, make_loop, scalar_constant
from popc.transforms.pipelining.emission import CycleWriter, Kept
from popc.transforms.pipelining.stages import StagedLoop, split_into_stages
from popc.transforms.pipelining.stashes import find_stashes
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["pipeline_stages"]


def pipeline_stages(graph: Graph, schedule: PipelineSchedule, *, repeats: bool) -> PassOutcome:
    """Pipeline the innermost loop around the program: the work of `Pipelining`, with its fields."""
    found = _innermost(graph)
    if found is None:
        return PassOutcome(0)
    outer, loop = found
    body = loop.subgraphs["body"]
    _hoist_copies(outer, loop)
    _place_repetitions(body)
    trains = any(op.settings.part is StepPart.BACKWARD for op in body.ops)
    _repeat_in_later_stages(body, everything=repeats and not trains)
    staged = split_into_stages(outer, loop, schedule, last_stage(body.ops))
    return _Pipeline(staged).run()


def _innermost(graph: Graph) -> tuple[Graph, Op] | None:
    holder = main_graphs(graph)[-1]
    for outer in main_graphs(graph):
        for op in outer.ops:
            if is_main_loop(op) and op.subgraphs["body"] is holder:
                return outer, op
    return None


def _hoist_copies(outer: Graph, loop: Op) -> None:
    """Copy what does not change from micro-batch to micro-batch once, before the loop.

    What does change, a variable that the body writes, is copied in the stage that writes it.
    """
    body = loop.subgraphs["body"]
    updates = [op for op in body.ops if op.op_type == "CopyVarUpdate"]
    written = {op.operand(0): op.settings.pipeline_stage for op in updates}
    captures = body.inputs[first_capture(loop) :]
    for op in [op for op in body.ops if op.op_type == "IpuCopy"]:
        if op.operand(0) not in captures:
            continue
        if op.operand(0) in written:
            op.settings = replace(op.settings, pipeline_stage=written[op.operand(0)])
            continue
        captured = loop.operand(body.inputs.index(op.operand(0)))
        copy = build(
            outer,
            "IpuCopy",
            [captured],
            dict(op.attributes),
            output_names=[op.output.name],
            settings=replace(op.settings, pipeline_stage=None),
        )
        formal = body.add_input(op.output.name, op.output.type)
        outer.append_input(loop, copy.output)
        body.replace_op(op, [formal])


def _place_repetitions(body: Graph) -> None:
    """Put what the backward pass computes once more into the stage that needs it first."""
    for op in reversed(body.topological()):
        if op.settings.recompute is Recompute.RECOMPUTED:
            users = [user.settings.pipeline_stage for t in op.outputs for user in t.uses]
            stages = [stage for stage in users if stage is not None]
            if stages:
                op.settings = replace(op.settings, pipeline_stage=min(stages))


def _repeat_in_later_stages(body: Graph, *, everything: bool) -> None:
    """Let later stages of a chip look at a value in another way themselves.

    So that not the same value is stashed several times.  With ``everything``, they compute what
    they can from what the earlier stage was given.
    """
    for op in reversed(body.topological()):
        if len(op.outputs) == 1 and (_is_view(op) or (everything and _is_repeatable(op))):
            _repeat(body, op)


def _is_view(op: Op) -> bool:
    """True if ``op`` shows a value that is computed for each micro-batch, and all of it."""
    spec = OPS.get(op.op_type)
    if spec is None or spec.view is None or op.op_type == "IpuCopy":
        return False
    source = op.operand(0)
    return source.producer is not None and source.type.nbytes <= op.output.type.nbytes


def _is_repeatable(op: Op) -> bool:
    collective = op.op_type in OPS and OPS[op.op_type].collective
    varies = any(tensor.producer is not None for tensor in op.present_inputs)
    simple = not op.subgraphs and op.op_type != "IpuCopy"
    return varies and simple and not collective and is_repeatable(op)


def _repeat(body: Graph, op: Op) -> None:
    """Compute ``op`` in each stage that reads its result."""
    twins: dict[int, Tensor] = {}
    for user in op.output.users:
        stage = user.settings.pipeline_stage
        if stage is None or stage == op.settings.pipeline_stage or user.op_type == "IpuCopy":
            continue
        if stage not in twins:
            settings = replace(op.settings, pipeline_stage=stage, part=user.settings.part)
            twin = build(body, op.op_type, op.inputs, dict(op.attributes), settings=settings)
            twins[stage] = twin.output
        for index, tensor in enumerate(user.inputs):
            if tensor is op.output:
                body.set_input(user, index, twins[stage])
    if not op.output.uses and not body.is_output(op.output):
        body.remove_op(op)


class _Pipeline:
    """Writes fill, loop and flush in place of a loop."""

    def __init__(self, staged: StagedLoop) -> None:
        self.staged = staged
        self.keeping = find_stashes(staged)
        self.outer = staged.outer
        self.writer = CycleWriter(self.outer, staged, self.keeping, staged.captures())

    def run(self) -> PassOutcome:
        """Do it; what has come out."""
        timing, count = self.staged.timing, self.staged.count
        filling = timing.depth - 1
        assert count > filling, f"{count} micro-batches do not fill a pipeline of {timing.depth}"
        kept = Kept(states={formal: initial for initial, formal, _ in self.staged.states()})
        for cycle in range(filling):
            kept = self.writer.cycle(cycle, self._active(cycle), kept)
        for tensor in self.keeping.stashes:
            if tensor not in kept.rows:
                kept.rows[tensor] = self.writer.empty_row(tensor)
        kept = self._main(kept, count - filling)
        for cycle in range(count, count + filling):
            place = cycle - count + filling + 1
            kept = self.writer.cycle(place, self._active(cycle), kept)
        self._replace_loop(kept)
        stashed = sum(
            stash.size * tensor.type.nbytes for tensor, stash in self.keeping.stashes.items()
        )
        effects = {
            "stages": len(self.staged.stages),
            "cycles to fill": filling,
            "values handed on": len(self.keeping.latest),
            "stashes": len(self.keeping.stashes),
            "bytes stashed": stashed,
        }
        return PassOutcome(1, effects)

    def _active(self, cycle: int) -> dict[int, int]:
        """The stages that run in ``cycle``, with the micro-batches that they work on."""
        micro_batches = {
            stage: cycle - offset for stage, offset in self.staged.timing.cycles.items()
        }
        count = self.staged.count
        return {stage: number for stage, number in micro_batches.items() if 0 <= number < count}

    def _main(self, before: Kept, count: int) -> Kept:
        """Write the loop in which all stages run; what it leaves."""
        timing = self.staged.timing
        body = Graph(PIPELINE)
        iteration = body.add_input("iteration", TensorType(DType.INT64, ()))
        body.add_input("condition", TensorType(DType.BOOL, ()))
        inside = Kept(*(self._formals(body, table) for table in _tables(before)))
        captures = {
            formal: body.add_input(formal.name, formal.type) for formal in self.writer.captures
        }
        writer = CycleWriter(body, self.staged, self.keeping, captures)
        numbers: dict[int, Tensor] = {}
        for offset in sorted(set(timing.cycles.values())):
            numbers[offset] = self._number(body, iteration, timing.depth - 1 - offset)
        active = {stage: numbers[offset] for stage, offset in timing.cycles.items()}
        after = writer.cycle(0, active, inside)
        states: list[MainLoopState] = []
        left = Kept()
        for outside, formals, values, results in zip(
            _tables(before), _tables(inside), _tables(after), _tables(left), strict=True
        ):
            for key, formal in formals.items():
                finish = _Finish(results, key)
                states.append(MainLoopState(outside[key], formal, values[key], finish))
        outside_captures = [(self.writer.captures[key], formal) for key, formal in captures.items()]
        loop = make_loop(self.outer, body, states, outside_captures, count)
        bin_ = 2 * (timing.depth - 1) * timing.step_count
        loop.settings = replace(loop.settings, bins=((PIPELINE, bin_),))
        loop.attributes = {**loop.attributes, "micro_batches": self.staged.count}
        for state, result in zip(states, loop.outputs, strict=True):
            state.finish(result)
        self.main = loop
        return left

    def _formals(self, body: Graph, table: dict[Tensor, Tensor]) -> dict[Tensor, Tensor]:
        return {key: body.add_input(f"{key.name}_kept", value.type) for key, value in table.items()}

    def _number(self, body: Graph, iteration: Tensor, more: int) -> Tensor:
        """The number of the micro-batch that is ``more`` cycles ahead of the loop."""
        if not more:
            return iteration
        addend = scalar_constant(body, more, DType.INT64)
        settings = replace(self.staged.loop.settings, origin="microBatch")
        return build(body, "Add", [iteration, addend], settings=settings).output

    def _update(self, op: Op, value: Tensor) -> None:
        """Give a variable that the stages have handed on its last value."""
        assert "start" not in op.attributes, f"{op!r} writes a part of its variable"
        variable = self.staged.outside(op.operand(0))
        settings = replace(op.settings, pipeline_stage=None)
        build(self.outer, op.op_type, [variable, value], dict(op.attributes), settings=settings)

    def _replace_loop(self, kept: Kept) -> None:
        staged = self.staged
        results = [kept.states[formal] for _, formal, _ in staged.states()]
        loop = staged.loop
        names = [tensor.name for tensor in loop.outputs]
        for op, new in zip(reversed(staged.updates), reversed(results), strict=False):
            self._update(op, new)
        results = results[: len(names)]
        for old, new in zip(loop.outputs, results, strict=True):
            self.outer.replace_uses(old, new)
        if loop in self.outer.ordering:
            self.outer.ordering.replace(loop, self.main)
        self.outer.remove_op(loop)
        for name, new in zip(names, results, strict=True):
            if new.producer is not None and new.name != name:
                self.outer.rename(new, name)


def _tables(kept: Kept) -> tuple[dict[Tensor, Tensor], ...]:
    return kept.latest, kept.rows, kept.states


@frozen
class _Finish:
    """Notes the result of a state of the loop."""

    table: dict[Tensor, Tensor]
    key: Tensor

    def __call__(self, result: Tensor) -> None:
        """Do it."""
        self.table[self.key] = result
