"""Insert the transfers of one graph after the other."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from popc.ir import Graph, Op, OpSettings, Recompute, StepPart, Tensor
from popc.ops.build import build
from popc.ops.control import captured_as, first_capture, inner_names, loop_states
from popc.ops.load import find_load_ops
from popc.ops.main_loops import PIPELINE, is_pipeline
from popc.ops.sequencer import Sequencer
from popc.ops.streaming import LOAD, STORE, UPDATE_ROWS
from popc.placement import is_main_loop
from popc.transforms.streaming.contexts import Context, Contexts
from popc.transforms.streaming.phases import PhaseRules
from popc.transforms.streaming.rows import (
    ROW_OPS,
    is_row_update,
    read_rows,
    reads_rows,
    update_rows,
)
from popc.transforms.streaming.sources import COMPUTE, StreamedValue, StreamedValues, TileSets
from popc.transforms.streaming.storage import StorageMap
from popc.transforms.streaming.views import base_of, copied_from, is_view

__all__ = ["Transfers"]


class Transfers:
    """Adds loads and stores; counts them."""

    def __init__(
        self, storage: StorageMap, orders: Mapping[Graph, Sequence[Op]], rules: PhaseRules
    ) -> None:
        self.orders = orders
        self.rules = rules
        self._storage = storage
        self._at_load = frozenset(find_load_ops(storage.graph))
        self.effects: dict[str, int] = {"loads": 0, "stores": 0}

    def visit(self, graph: Graph, given: Iterable[StreamedValue] = ()) -> None:
        """Let the ops of ``graph`` fetch ``given``, and what it holds itself that is kept away."""
        _Visit(self, self._storage, graph, self._at_load).run([*given])

    def count(self, op_type: str) -> None:
        """Note that an op has been added."""
        self.effects["loads" if op_type == LOAD else "stores"] += 1


class _Visit:
    """The work on one graph."""

    def __init__(
        self, transfers: Transfers, storage: StorageMap, graph: Graph, at_load: frozenset[Op]
    ) -> None:
        self._transfers = transfers
        self._storage = storage
        self._graph = graph
        self._order = [op for op in transfers.orders[graph] if op not in at_load]
        self._at_load = at_load
        self._contexts = Contexts(self._order, transfers.rules.gap)
        self._sources = StreamedValues(graph, self._contexts, transfers.rules)
        self._stored: list[tuple[Tensor, Op]] = []
        self._holds_pipeline = any(map(is_pipeline, self._order))

    def run(self, given: Sequence[StreamedValue]) -> None:
        """Do it."""
        sources = self._sources
        for source in [*given, *self._own()]:
            sources.add(source)
        sums = {op: self._keep_sums(op) for op in self._order if is_main_loop(op)}
        self._keep_activations()
        for op in self._order:
            if not is_view(op):
                self._rewrite(op, sums.get(op, []))
        self._fetch_outputs()
        self._take_parts()
        self._drop_views()
        sequencer = Sequencer(self._graph, self._storage.graph)
        self._store_last(sequencer)
        self._put_off(sequencer)

    def _fetch_outputs(self) -> None:
        graph, sources, end = self._graph, self._sources, Context()
        for index, tensor in enumerate(graph.outputs):
            if sources.needs_fetching(tensor, end):
                graph.outputs[index] = sources.fetched(tensor, end, OpSettings())

    def _take_parts(self) -> None:
        """Read what this replica holds; last, for it may be read as it is, unlike the source."""
        for op in [part for part in self._order if self._sources.is_part(part)]:
            settings = _plain(op.settings)
            part = self._sources.part(op.operand(0), self._contexts.of(op), settings)
            self._graph.replace_uses(op.output, part)
            self._graph.remove_op(op)

    def _store_last(self, sequencer: Sequencer) -> None:
        """Write what is kept only when all have fetched it."""
        for remote, loads in self._sources.loads.items():
            for load in loads:
                self._transfers.count(LOAD)
                for target, store in self._stored:
                    if target is remote:
                        sequencer.require(load, store)

    def _put_off(self, sequencer: Sequencer) -> None:
        """Let what is fetched wait for what one of its readers has to wait for anyway.

        Without, it could be fetched at any time, and would take memory from then on.
        """
        graph = self._graph
        places = {op: index for index, op in enumerate(self._order) if op in graph}
        before: dict[Op, Op | None] = {}
        latest: Op | None = None
        for op in self._order:
            before[op] = latest
            gives = bool(op.outputs) and not is_view(op)
            if op in places and gives and not self._is_ordered_later(op):
                latest = op
        for op in self._sources.fetches:
            waits = [
                self._awaited(reader, places) or before[reader]
                for reader in _readers_of(op, places)
            ]
            known = [wait for wait in waits if wait is not None]
            if known and len(known) == len(waits):
                sequencer.wish(min(known, key=places.__getitem__), op)

    def _awaited(self, reader: Op, places: Mapping[Op, int]) -> Op | None:
        """The last op that ``reader`` waits for, unless that is one of an earlier half."""
        makers = [base_of(tensor).producer for tensor in reader.present_inputs]
        last = max(
            (op for op in makers if op in places and op is not None),
            key=places.__getitem__,
            default=None,
        )
        half = self._contexts.of(reader).half
        if last is None or (half != "forward" and self._contexts.of(last).half == "forward"):
            return None
        return last

    def _is_ordered_later(self, op: Op) -> bool:
        """True if `OuterFragment` will say when ``op`` runs, or the store that it waits for."""
        is_update = op.settings.part is StepPart.UPDATE and op.settings.pipeline_stage is not None
        return is_update or (self._holds_pipeline and op.op_type == "CopyVarUpdate")

    def _drop_views(self) -> None:
        """Views of what has to be fetched: whoever read them reads others now."""
        graph = self._graph
        for op in reversed(self._order):
            used = any(output.uses or graph.is_output(output) for output in op.outputs)
            if is_view(op) and not used:
                graph.remove_op(op)

    # -- what is kept elsewhere ------------------------------------------------------------------

    def _own(self) -> list[StreamedValue]:
        """The sources that the graph itself holds: variables, constants, results of load time."""
        found: list[StreamedValue] = []
        for tensor in [
            value for value in self._graph.tensors.values() if value in self._storage.stored
        ]:
            source = self._storage.stored[tensor].source(tensor)
            if tensor.producer is not None:
                store = self._store(tensor, OpSettings(), COMPUTE, at_load=1)
                source = replace(source, remote=store.output)
            found.append(source)
        return found

    def _keep_activations(self) -> None:
        """Store results of the forward pass that the backward pass reads."""
        if self._contexts.has_one:
            return
        for op in self._order:
            made_in = self._contexts.of(op)
            if made_in.half != "forward" or is_view(op) or is_main_loop(op):
                continue
            for tensor in op.outputs:
                location = self._storage.keeps_activation(tensor)
                self._contexts.note(tensor, made_in)
                if location is None or not self._contexts.is_read_later(tensor, made_in):
                    continue
                tiles = self._storage.tiles(location)
                remote = self._store(tensor, op.settings, tiles).output
                source = StreamedValue(tensor, "activation", remote, made_in=made_in, tiles=tiles)
                self._sources.add(source)

    def _keep_sums(self, op: Op) -> list[StreamedValue]:
        """Keep sums of gradients off chip between the iterations of ``op``; they, in its body."""
        inner: list[StreamedValue] = []
        body = op.subgraphs["body"]
        for index, state in enumerate(loop_states(op)):
            location = self._storage.keeps_sum(op, index)
            if location is None:
                continue
            tiles = self._storage.tiles(location)
            value = body.outputs[1 + index]
            assert value.producer is not None, "sums are computed"
            chip = value.producer.settings.virtual_graph  # the loop itself is on all of them
            own = replace(op.settings, virtual_graph=chip)
            initial = self._store(self._readable(op, state.operand), own, tiles)
            self._graph.set_input(op, state.operand, initial.output)
            self._sources.add(StreamedValue(state.result, "accumulator", state.result, tiles=tiles))
            settings = replace(_plain(value.producer.settings), tile_set=tiles.store)
            stored = build(body, STORE, [value], settings=settings)
            self._transfers.count(STORE)
            body.outputs[1 + index] = stored.output
            inner.append(StreamedValue(state.inner, "accumulator", state.inner, tiles=tiles))
        return inner

    def _store(
        self, tensor: Tensor, settings: OpSettings, tiles: TileSets, **attributes: int
    ) -> Op:
        self._transfers.count(STORE)
        name, origin = f"{tensor.name}_stored", f"store of {tensor.name}"
        settings = replace(_plain(settings), origin=origin, tile_set=tiles.store)
        return build(
            self._graph, STORE, [tensor], {**attributes}, output_names=[name], settings=settings
        )

    # -- who reads and writes it -----------------------------------------------------------------

    def _rewrite(self, op: Op, inner: Sequence[StreamedValue]) -> None:
        """Let ``op``, and what is nested in it, read what is fetched."""
        graph, sources = self._graph, self._sources
        if sources.is_part(op) or self._touches_rows(op):
            return
        entered = self._enter(op, inner)
        writes = op.op_type == "CopyVarUpdate" and op.operand(0) in sources
        for index, operand in enumerate(op.inputs):
            if operand is None or index in entered or (writes and index == 0):
                continue
            readable = self._readable(op, index)
            if readable is not operand:
                graph.set_input(op, index, readable)
        if writes:
            self._keep(op)

    def _touches_rows(self, op: Op) -> bool:
        """Let a lookup fetch its rows, and a step update them, where that is all that it needs."""
        source = self._sources.find(op.operand(0)) if op.op_type in ROW_OPS else None
        if source is None or source.remote is None:
            return False
        settings = replace(_plain(op.settings), tile_set=source.tiles.load)
        if reads_rows(op, source):
            read = read_rows(self._graph, op, source.remote, settings)
            self._sources.loads.setdefault(source.remote, []).append(read)
            return True
        if is_row_update(op, source):
            update = update_rows(self._graph, op, source.remote, settings)
            self._stored.append((source.remote, update))
            self._transfers.count(STORE)
            return True
        return False

    def _readable(self, op: Op, index: int) -> Tensor:
        """Operand ``index`` of ``op``, fetched if need be."""
        operand, context = op.operand(index), self._contexts.of(op)
        if not self._sources.needs_fetching(operand, context):
            return operand
        return self._sources.fetched(operand, context, _plain(op.settings))

    def _enter(self, op: Op, inner: Sequence[StreamedValue]) -> set[int]:
        """Visit the graphs nested in ``op``; the operands that are fetched only there."""
        entered: set[int] = set()
        given = {subgraph: [*inner] for subgraph in op.subgraphs.values()}
        for index in range(first_capture(op), len(op.inputs)) if op.subgraphs else ():
            source = self._captured(op, index)
            if source is None or not self._goes_inside(op, index):
                continue
            entered.add(index)
            if source.remote is not None:
                self._graph.set_input(op, index, source.remote)
            for subgraph, name in zip(given, captured_as(op, index), strict=True):
                name.type = source.tensor.type  # of a copy: that of a whole so far
                given[subgraph].append(source.renamed(name))
        for subgraph, sources in given.items():
            self._transfers.visit(subgraph, sources)
        return entered

    def _captured(self, op: Op, index: int) -> StreamedValue | None:
        """The source that ``op`` captures; off chip, one of which it captures a copy will do."""
        operand = op.operand(index)
        source = self._sources.find(operand)
        if source is None and is_main_loop(op):
            source = self._sources.find(copied_from(operand))
            return None if source is None or source.remote is None else source
        return source

    def _goes_inside(self, op: Op, index: int) -> bool:
        """True if what ``op`` captures is fetched inside, because it is main or writes to it."""
        return is_main_loop(op) or any(map(_is_written, captured_as(op, index)))

    def _keep(self, op: Op) -> None:
        """Store what ``op`` gives a variable that is kept elsewhere."""
        source = self._sources.find(op.operand(0))
        assert source is not None, op
        value = op.operand(1)
        if value.producer is not None and value.producer.op_type == UPDATE_ROWS:
            return
        if source.whole is not None:
            value = source.own_part(self._graph, value, _plain(op.settings))
        if source.remote is not None:
            store = self._store(value, op.settings, source.tiles)
            self._stored.append((source.remote, store))
            value = store.output
        self._graph.set_input(op, 1, value)


def _readers_of(op: Op, known: Container[Op]) -> list[Op]:
    """The ``known`` ops, but for views, that read what ``op`` leads to without others."""
    found: dict[Op, None] = {}
    pending = [op]
    for moved in pending:  # grows while it is walked
        for user in (user for tensor in moved.outputs for user in tensor.uses):
            if user in known and not is_view(user):
                found[user] = None
            else:
                pending.append(user)
    return list(found)


def _plain(settings: OpSettings) -> OpSettings:
    """``settings`` for a transfer that belongs to an op with these, and to its pipeline step."""
    return replace(
        settings,
        schedule_priority=0.0,
        exclude_patterns=(),
        bins=tuple(bin_ for bin_ in settings.bins if bin_[0] == PIPELINE),
        recompute=Recompute.UNDEFINED,
    )


def _is_written(tensor: Tensor) -> bool:
    return any(
        (op.op_type == "CopyVarUpdate" and op.operand(0) is tensor)
        or any(map(_is_written, inner_names(op, tensor)))
        for op in tensor.uses
    )
