"""The tensors to fetch before ops can read them, and the way to fetch them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from math import prod
from typing import Final, NamedTuple

from popc.ir import AttributeMap, Graph, Op, OpSettings, Tensor
from popc.ops.build import build
from popc.ops.streaming import LOAD
from popc.transforms.streaming.contexts import Context, Contexts
from popc.transforms.streaming.phases import PhaseRules
from popc.transforms.streaming.views import base_of
from popc_runtime.ground.frozen import frozen

__all__ = ["COMPUTE", "StreamedValue", "StreamedValues", "TileSets"]


class TileSets(NamedTuple):
    """The tiles that fetch a tensor, and those that store it: "compute" or "io"."""

    load: str = "compute"
    store: str = "compute"


COMPUTE: Final = TileSets()


@frozen
class StreamedValue:
    """A value that ops cannot read as it is.

    Attributes:
        tensor: What it is in the graph in question.
        kind: "weight", "optimizer_state", "accumulator" or "activation".
        remote: What lies in streaming memory; ``None``: it is kept on the chip.
        whole: If replicas hold a part each, the shape of the whole.
        group: Size and stride of the groups of these replicas.
        made_in: The context in which it need not be fetched.
        tiles: The tiles that move it.
    """

    tensor: Tensor
    kind: str
    remote: Tensor | None
    whole: tuple[int, ...] | None = None
    group: tuple[int, int] = (1, 1)
    made_in: Context | None = None
    tiles: TileSets = COMPUTE

    @property
    def attributes(self) -> AttributeMap:
        """The group as collectives are told it."""
        return {"size": self.group[0], "stride": self.group[1]}

    def renamed(self, tensor: Tensor) -> StreamedValue:
        """The same in a graph where it is called ``tensor``."""
        return replace(self, tensor=tensor, remote=None if self.remote is None else tensor)

    def _is_part(self, op: Op) -> bool:
        """True if ``op`` gathers parts as those that replicas hold of this."""
        own = op.operand(0).type == self.tensor.type
        return own and dict(op.attributes) == self.attributes

    def own_part(self, graph: Graph, value: Tensor, settings: OpSettings) -> Tensor:
        """This replica's part of ``value``, which is the whole."""
        gather = value
        while gather.producer is not None and gather.producer.op_type in ("Reshape", "Slice"):
            gather = gather.producer.operand(0)
        op = gather.producer
        if op is not None and op.op_type == "ReplicatedAllGather" and self._is_part(op):
            return op.operand(0)
        attributes: AttributeMap = {"op": "local", **self.attributes}
        return build(
            graph, "ReplicatedReduceScatter", [value], attributes, settings=settings
        ).output


class StreamedValues:
    """The sources of one graph; fetches each once per context.

    Attributes:
        loads: From each tensor in streaming memory.
        fetches: All ops with which a fetch begins.
    """

    def __init__(self, graph: Graph, contexts: Contexts, rules: PhaseRules) -> None:
        self.graph = graph
        self._contexts = contexts
        self._rules = rules
        self.loads: dict[Tensor, list[Op]] = {}
        self.fetches: list[Op] = []
        self._sources: dict[Tensor, StreamedValue] = {}
        self._fetched: dict[tuple[Tensor, Hashable], Tensor] = {}
        self._parts: dict[tuple[Tensor, Hashable], Tensor] = {}

    def __contains__(self, tensor: Tensor) -> bool:
        return tensor in self._sources

    def add(self, source: StreamedValue) -> None:
        """One more."""
        self._sources[source.tensor] = source
        self._contexts.note(source.tensor, source.made_in)

    def find(self, tensor: Tensor) -> StreamedValue | None:
        """The source that ``tensor`` is, if it is kept from run to run, or between iterations."""
        source = self._sources.get(tensor)
        return None if source is None or source.made_in is not None else source

    def needs_fetching(self, tensor: Tensor, context: Context) -> bool:
        """True if an op of ``context`` cannot read ``tensor`` as it is."""
        source = self._sources.get(base_of(tensor))
        if source is None:
            return False
        label = self._contexts.label
        base, made_in = source.tensor, source.made_in
        return made_in is None or label(base, made_in) != label(base, context)

    def fetched(self, tensor: Tensor, context: Context, settings: OpSettings) -> Tensor:
        """``tensor`` as ops of ``context`` may read it."""
        key = (tensor, self._contexts.key(base_of(tensor), context))
        if key not in self._fetched:
            if tensor in self._sources:
                self._fetched[key] = self._whole(self._sources[tensor], context, settings)
            else:
                self._look_again(tensor, context, settings)
        return self._fetched[key]

    def part(self, tensor: Tensor, context: Context, settings: OpSettings) -> Tensor:
        """The part that this replica holds of a source that is divided."""
        source = self._sources[tensor]
        return self._on_chip(source, context, self._rules.for_load(source.kind, settings))

    def is_part(self, op: Op) -> bool:
        """True if ``op`` takes just the part of a source that this replica holds."""
        if op.op_type != "ReplicatedReduceScatter" or op.operand(0) not in self._sources:
            return False
        source = self._sources[op.operand(0)]
        own = {"op": "local", **source.attributes}
        return source.whole is not None and dict(op.attributes) == own

    # -- making it -------------------------------------------------------------------------------

    def _on_chip(self, source: StreamedValue, context: Context, settings: OpSettings) -> Tensor:
        if source.remote is None:
            return source.tensor
        key = (source.tensor, self._contexts.key(source.tensor, context))
        if key not in self._parts:
            origin = f"load of {source.tensor.name}"
            load = build(
                self.graph,
                LOAD,
                [source.remote],
                settings=replace(settings, origin=origin, tile_set=source.tiles.load),
                output_names=[f"{source.tensor.name}_loaded"],
            )
            self.loads.setdefault(source.remote, []).append(load)
            self._note_fetch(load, source)
            self._parts[key] = load.output
        return self._parts[key]

    def _note_fetch(self, op: Op, source: StreamedValue) -> None:
        """Note a fetch; one in an earlier phase need not wait for an op."""
        self._rules.note_load(op, source.kind)
        if op.settings.execution_phase is None or not self._rules.preloads(
            source.kind, op.settings
        ):
            self.fetches.append(op)

    def _whole(self, source: StreamedValue, context: Context, settings: OpSettings) -> Tensor:
        settings = self._rules.for_load(source.kind, settings)
        held = self._on_chip(source, context, settings)
        if source.whole is None:
            return held
        settings = replace(settings, origin=f"gathering of {source.tensor.name}")

        def emit(op_type: str, x: Tensor, attributes: AttributeMap) -> Tensor:
            return build(self.graph, op_type, [x], attributes, settings=settings).output

        rows = emit("ReplicatedAllGather", held, source.attributes)
        if source.remote is None and rows.producer is not None:
            self._note_fetch(rows.producer, source)
        flat = emit("Reshape", rows, {"shape": (rows.type.size,)})
        size = prod(source.whole)
        if flat.type.size != size:
            flat = emit("Slice", flat, {"starts": (0,), "sizes": (size,), "steps": (1,)})
        return emit("Reshape", flat, {"shape": source.whole})

    def _look_again(self, tensor: Tensor, context: Context, settings: OpSettings) -> None:
        """Repeat the view by which ``tensor`` shows what is fetched."""
        op = tensor.producer
        assert op is not None, f"{tensor!r} is no view"
        there = context
        if op.op_type == "IpuCopy":
            if self._sources[base_of(tensor)].remote is not None:  # every chip can fetch
                shown = self.fetched(op.operand(0), context, settings)
                self._fetched[tensor, self._contexts.key(base_of(tensor), context)] = shown
                return
            # Parts that replicas hold on a chip are gathered there.
            there = context._replace(chip=op.settings.virtual_graph)
            settings = replace(settings, virtual_graph=there.chip)
        shown = self.fetched(op.operand(0), there, settings)
        twin = self.graph.add_op(
            op.op_type,
            [shown, *op.inputs[1:]],
            [output.type for output in op.outputs],
            dict(op.attributes),
            output_names=[output.name for output in op.outputs],
            settings=replace(settings, origin=op.settings.origin),
        )
        for old, new in zip(op.outputs, twin.outputs, strict=True):
            self._fetched[old, self._contexts.key(base_of(old), context)] = new
