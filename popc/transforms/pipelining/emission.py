"""Write cycles of a pipeline: some stages, each for a micro-batch of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np

from popc.ir import Graph, Op, OpSettings, Tensor, TensorType
from popc.ops.build import build
from popc.ops.main_loops import PIPELINE
from popc.placement import chip_of_results
from popc.transforms.loop_states import zeros
from popc.transforms.pipelining.stages import PipelineStage, StagedLoop
from popc.transforms.pipelining.stashes import Stashes
from popc_runtime.format import DType
from popc_runtime.ground.frozen import mutable

__all__ = ["CycleWriter", "Kept"]


@mutable
class Kept:
    """The values that one cycle leaves to the next, in terms of the graph that is written.

    Attributes:
        latest: Values, by the tensors of the body that they are values of.
        rows: Rows of stashed values.
        states: States of the loop over micro-batches, by what the body calls them.
    """

    latest: dict[Tensor, Tensor] = field(default_factory=dict["Tensor", "Tensor"])
    rows: dict[Tensor, Tensor] = field(default_factory=dict["Tensor", "Tensor"])
    states: dict[Tensor, Tensor] = field(default_factory=dict["Tensor", "Tensor"])

    def copy(self) -> Kept:
        """The same, to be changed."""
        return Kept(dict(self.latest), dict(self.rows), dict(self.states))


class CycleWriter:
    """Writes cycles into ``graph``.

    Args:
        graph: Where to.
        staged: The stages.
        keeping: What is kept from cycle to cycle.
        captures: What the body's captures are called in ``graph``.
    """

    def __init__(
        self,
        graph: Graph,
        staged: StagedLoop,
        keeping: Stashes,
        captures: Mapping[Tensor, Tensor],
    ) -> None:
        self.graph = graph
        self.staged = staged
        self.keeping = keeping
        self.captures = captures
        self._constants: dict[int, Tensor] = {}

    def cycle(self, number: int, active: Mapping[int, Tensor | int], before: Kept) -> Kept:
        """Write one cycle.

        Args:
            number: Its place among the cycles that follow each other in the graph.  Ops of a step
                have equal bins: even ones if they compute, odd ones if they copy what is computed.
            active: The stages that run, and which micro-batch each works on: its number, or a
                tensor with it.
            before: What the cycle before has left.

        Returns:
            What this cycle leaves.
        """
        timing = self.staged.timing
        after = before.copy()
        writer = _Writer(self, before, after)
        first_step = number * timing.step_count
        by_step: dict[int, list[int]] = {}
        for stage in timing.in_order():
            if stage in active:
                by_step.setdefault(timing.steps[stage], []).append(stage)
        for step, stages in by_step.items():
            for stage in stages:
                writer.stage(self.staged.stages[stage], active[stage], 2 * (first_step + step))
            for stage in stages:
                bin_ = 2 * (first_step + step) + 1
                writer.copies(self.staged.stages[stage], active[stage], bin_)
        for tensor in self.keeping.latest:
            if tensor in writer.new:
                after.latest[tensor] = writer.new[tensor]
        for _, formal, value in self.staged.states():
            made = self.staged.made_in.get(value)
            if made is None or made in active:
                after.states[formal] = writer.current(value)
        return after

    def constant(self, tensor: Tensor) -> Tensor:
        """A constant of the body, in the graph."""
        assert tensor.data is not None, f"{tensor!r} is not known here"
        key = id(tensor)
        if key not in self._constants:
            self._constants[key] = self.graph.add_constant(tensor.name, tensor.type, tensor.data)
        return self._constants[key]

    def number(self, value: Tensor | int) -> Tensor:
        """The number of a micro-batch as a tensor."""
        if isinstance(value, Tensor):
            return value
        data = np.asarray(value, np.int64)
        return self.graph.add_constant("micro_batch", TensorType(DType.INT64, ()), data)

    def empty_row(self, tensor: Tensor) -> Tensor:
        """A stash without values."""
        size = self.keeping.stashes[tensor].size
        return zeros(self.graph, tensor.type.with_shape((size, *tensor.type.shape)))


class _Writer:
    """One cycle: the values that it has computed so far."""

    def __init__(self, cycles: CycleWriter, before: Kept, after: Kept) -> None:
        self.cycles = cycles
        self.graph = cycles.graph
        self.staged = cycles.staged
        self.before = before
        self.after = after
        self.new: dict[Tensor, Tensor] = {}
        self._restored: dict[tuple[Tensor, int], Tensor] = {}

    def stage(self, stage: PipelineStage, micro_batch: Tensor | int, bin_: int) -> None:
        """Write what a stage computes."""
        number = self.cycles.number(micro_batch)
        self._stash_arrivals(stage, number, bin_)
        twins: dict[Op, Op] = {}
        for op in stage.ops:
            twins[op] = self._clone(op, bin_, lambda t: self._read(t, stage.number, number, bin_))
        self.staged.body.ordering.copy(twins, self.graph.ordering)
        for tensor, stash in self.cycles.keeping.stashes.items():
            if stash.stage == stage.number and not stash.arrives:
                self._put(tensor, self.new[tensor], number, bin_)

    def copies(self, stage: PipelineStage, micro_batch: Tensor | int, bin_: int) -> None:
        """Write the copies of a stage's results to other chips."""
        for op in stage.copies:
            self._clone(op, bin_, self.current)
            stash = self.cycles.keeping.stashes.get(op.output)
            if stash is not None and stash.stage is None:
                number = self.cycles.number(micro_batch)
                self._put(op.output, self.new[op.output], number, bin_)

    def current(self, tensor: Tensor) -> Tensor:
        """``tensor`` of the body as this cycle has computed it."""
        if tensor in self.new:
            return self.new[tensor]
        if tensor in self.before.states:
            return self.before.states[tensor]
        if tensor in self.cycles.captures:
            return self.cycles.captures[tensor]
        return self.cycles.constant(tensor)

    def _read(self, tensor: Tensor, stage: int, number: Tensor, bin_: int) -> Tensor:
        """``tensor`` of the body as ``stage`` reads it."""
        if tensor is self.staged.iteration:
            return number
        made = self.staged.made_in.get(tensor)
        if made is None:
            return self.current(tensor)
        delay = self.staged.timing.delay(made, stage)
        if delay == 0:
            return self.new[tensor]
        stash = self.cycles.keeping.stashes.get(tensor)
        if stash is None or (stash.arrives and delay == 1):
            return self.before.latest[tensor]
        return self._restore(tensor, stage, number, bin_)

    def _restore(self, tensor: Tensor, stage: int, number: Tensor, bin_: int) -> Tensor:
        key = (tensor, stage)
        if key not in self._restored:
            self._restored[key] = build(
                self.graph,
                "Restore",
                [self.after.rows[tensor], number],
                output_names=[f"Restored___{tensor.name}"],
                settings=self._settings_for(tensor, bin_, stage),
            ).output
        return self._restored[key]

    def _stash_arrivals(self, stage: PipelineStage, number: Tensor, bin_: int) -> None:
        for tensor, stash in self.cycles.keeping.stashes.items():
            if stash.arrives and stash.stage == stage.number:
                self._put(tensor, self.before.latest[tensor], number, bin_)

    def _put(self, tensor: Tensor, value: Tensor, number: Tensor, bin_: int) -> None:
        row = self.after.rows.get(tensor)
        row = self.cycles.empty_row(tensor) if row is None else row
        self.after.rows[tensor] = build(
            self.graph,
            "Stash",
            [row, value, number],
            output_names=[f"Stashed___{tensor.name}"],
            settings=self._settings_for(tensor, bin_, self.cycles.keeping.stashes[tensor].stage),
        ).output

    def _settings_for(self, tensor: Tensor, bin_: int, stage: int | None) -> OpSettings:
        """The settings of what keeps ``tensor``, which is done where it is."""
        op = tensor.producer
        assert op is not None, f"{tensor!r} does not change"
        own = op.settings
        return OpSettings(
            origin="pipelineStash",
            virtual_graph=chip_of_results(op),
            pipeline_stage=own.pipeline_stage if stage is None else stage,
            bins=((PIPELINE, bin_),),
            part=own.part,
        )

    def _clone(self, op: Op, bin_: int, read: object) -> Op:
        assert callable(read)
        clone = self.graph.add_op(
            op.op_type,
            [None if tensor is None else read(tensor) for tensor in op.inputs],
            [tensor.type for tensor in op.outputs],
            dict(op.attributes),
            output_names=[tensor.name for tensor in op.outputs],
            settings=replace(op.settings, bins=(*op.settings.bins, (PIPELINE, bin_))),
            subgraphs={name: _copied(subgraph) for name, subgraph in op.subgraphs.items()},
        )
        self.new.update(zip(op.outputs, clone.outputs, strict=True))
        return clone


def _copied(graph: Graph) -> Graph:
    """A copy of a nested graph, with ops that only have an effect too."""
    copy = Graph(graph.name)
    known = {tensor: copy.add_input(tensor.name, tensor.type) for tensor in graph.inputs}

    def twin(tensor: Tensor) -> Tensor:
        if tensor not in known:
            assert tensor.data is not None, f"{tensor!r} has no copy"
            known[tensor] = copy.add_constant(tensor.name, tensor.type, tensor.data)
        return known[tensor]

    twins: dict[Op, Op] = {}
    for op in graph.topological():
        twins[op] = copy.add_op(
            op.op_type,
            [None if tensor is None else twin(tensor) for tensor in op.inputs],
            [tensor.type for tensor in op.outputs],
            dict(op.attributes),
            output_names=[tensor.name for tensor in op.outputs],
            settings=replace(op.settings),
            subgraphs={name: _copied(subgraph) for name, subgraph in op.subgraphs.items()},
        )
        known.update(zip(op.outputs, twins[op].outputs, strict=True))
    graph.ordering.copy(twins, copy.ordering)
    for name, tensor in zip(graph.output_names, graph.outputs, strict=True):
        copy.add_output(name, twin(tensor))
    return copy
