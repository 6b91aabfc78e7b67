"""The body of a loop over micro-batches, taken apart into the stages of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field

from popc.ir import Graph, Op, Recompute, Tensor
from popc.ops.build import build
from popc.ops.control import first_capture, loop_header, loop_states
from popc.options import PipelineSchedule
from popc.placement import Timing, stage_chips, time_stages
from popc_runtime.errors import OptionError
from popc_runtime.ground.frozen import mutable

__all__ = ["PipelineStage", "StagedLoop", "split_into_stages"]


@mutable
class PipelineStage:
    """One stage.

    Attributes:
        number: Its number.
        ops: What it computes, producers first.
        copies: The copies to other chips of what it computes, which run after it.
    """

    number: int
    ops: list[Op] = field(default_factory=list["Op"])
    copies: list[Op] = field(default_factory=list["Op"])


@mutable
class StagedLoop:
    """A loop whose body consists of stages.

    Attributes:
        outer: The graph that holds the loop.
        loop: The loop.
        body: Its body.
        count: How many micro-batches there are.
        timing: When each stage runs.
        stages: By number.
        made_in: The stage that computes each tensor of the body.
        updates: Where a stage gives variables new values.
    """

    outer: Graph
    loop: Op
    body: Graph
    count: int
    timing: Timing
    stages: dict[int, PipelineStage]
    made_in: dict[Tensor, int]
    updates: list[Op]

    @property
    def iteration(self) -> Tensor:
        """The number of the micro-batch, as the body sees it."""
        return loop_header(self.body)[0]

    def states(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Each state: its initial value, what the body sees, what the body hands on.

        Variables that the body writes come last.
        """
        for index, state in enumerate(loop_states(self.loop), start=1):
            yield self.loop.operand(state.operand), state.inner, self.body.outputs[index]
        for op in self.updates:
            yield self.outside(op.operand(0)), op.operand(0), op.operand(1)

    def outside(self, formal: Tensor) -> Tensor:
        """The tensor outside for a capture of the body."""
        return self.loop.operand(self.body.inputs.index(formal))

    def captures(self) -> dict[Tensor, Tensor]:
        """The tensors outside for the captures of the body; not those that it writes."""
        first = first_capture(self.loop)
        written = [op.operand(0) for op in self.updates]
        return {
            formal: self.loop.operand(index)
            for index, formal in enumerate(self.body.inputs)
            if index >= first and formal not in written
        }

    def readers(self, tensor: Tensor) -> list[int]:
        """The stages that read ``tensor``, in order; copies belong to the stage before them."""
        found = {op.settings.pipeline_stage for op in tensor.uses if op.op_type != "IpuCopy"}
        made = self.made_in.get(tensor)
        if made is not None and any(op.op_type == "IpuCopy" for op in tensor.uses):
            found.add(made)
        return sorted(stage for stage in found if stage is not None)


def split_into_stages(
    outer: Graph, loop: Op, schedule: PipelineSchedule, last_forward: int
) -> StagedLoop:
    """Take the body of ``loop`` apart."""
    body = loop.subgraphs["body"]
    updates = [op for op in body.ops if op.op_type == "CopyVarUpdate"]
    _refuse_late_readers(updates)
    _bring_new_values(body)
    timing = time_stages(stage_chips(body.ops), schedule, last_forward)
    stages = {number: PipelineStage(number) for number in timing.in_order()}
    made_in: dict[Tensor, int] = {}
    for op in body.topological():
        if op.op_type == "CopyVarUpdate":
            continue
        number = op.settings.pipeline_stage
        assert number is not None, f"{op!r} is in no stage"
        made_in.update(dict.fromkeys(op.outputs, number))
        stage = stages[number]
        (stage.copies if op.op_type == "IpuCopy" else stage.ops).append(op)
    count = loop.attributes["trip_count"]
    assert isinstance(count, int), f"{loop!r} does not say how often it runs"
    return StagedLoop(outer, loop, body, count, timing, stages, made_in, updates)


def _beyond_copies(op: Op, stage: int | None) -> Iterator[Op]:
    """``op``; or of a copy to another chip, those that read it before there is anything to copy."""
    if op.op_type != "IpuCopy":
        yield op
        return
    for user in op.output.uses:
        reading = user.settings.pipeline_stage
        if stage is not None and reading is not None and reading < stage:
            yield user


def _bring_new_values(body: Graph) -> None:
    """Let a variable get what an earlier stage computes when its own stage is at that micro-batch.

    Before::

        %v = Add(%a, %x)      # pipeline_stage=0
        %y = Sub(%v, %b)      # pipeline_stage=1
        CopyVarUpdate(%b, %v) # pipeline_stage=1

    After::

        %copy = Copy(%v)         # pipeline_stage=1
        CopyVarUpdate(%b, %copy) # pipeline_stage=1
    """
    for op in [op for op in body.ops if op.op_type == "CopyVarUpdate"]:
        maker = op.operand(1).producer
        if maker is not None and maker.settings.pipeline_stage != op.settings.pipeline_stage:
            copy = build(body, "Copy", [op.operand(1)], settings=op.settings)
            body.set_input(op, 1, copy.output)


def _refuse_late_readers(updates: Sequence[Op]) -> None:
    """Each micro-batch has to see what the one before has written.

    What is computed once more does not depend on it.
    """
    problems: list[str] = []
    for update in updates:
        variable, stage = update.operand(0), update.settings.pipeline_stage
        users = [user for op in variable.uses for user in _beyond_copies(op, stage)]
        for op in users:
            again = op.settings.recompute is Recompute.RECOMPUTED
            if op is not update and not again and op.settings.pipeline_stage != stage:
                problems.append(
                    f"{variable.name} is written in pipeline stage {stage}, but "
                    f"{op.settings.origin or op.op_type} reads it in stage "
                    f"{op.settings.pipeline_stage}: put all that use it into one stage"
                )
    if problems:
        raise OptionError(
            "the model cannot be pipelined", subject="enable_pipelining", details=tuple(problems)
        )
