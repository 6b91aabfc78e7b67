"""Transfers of a loop body move to the iteration before or behind."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field, replace
from typing import Final

from popc.ir import AttributeMap, Graph, Op, OpSettings, Tensor, TensorType
from popc.ir.attributes import integer
from popc.ops.build import build
from popc.ops.main_loops import MainLoop
from popc.transforms.loop_states import scalar_constant, zeros
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen, mutable

__all__ = ["Rotation"]

_ORIGIN: Final = OpSettings(origin="overlapIo")


@frozen
class _Carried:
    """A state of every loop of a chain.

    Attributes:
        places: Where the bodies give it back, by loop, the outermost first.
        formal: What the innermost body sees.
        results: The results of the loops.
    """

    places: tuple[int, ...]
    formal: Tensor
    results: tuple[Tensor, ...]


@mutable
class Rotation:
    """Moves transfers of the innermost of some nested loops.

    Attributes:
        loops: The loops that samples pass through, the outermost first.
        transfers: The ops of the innermost body that make transfers now.
        others: What decides there whether they do.
    """

    loops: tuple[MainLoop, ...]
    transfers: list[Op] = field(default_factory=list[Op])
    others: list[Op] = field(default_factory=list[Op])

    def run(self, loads: Sequence[Op], stores: Sequence[Op]) -> int:
        """Move ``loads`` to the iteration before, ``stores`` to the one behind; how many."""
        if loads:
            self._load_ahead(loads)
        plain = [op for op in stores if op.op_type == "HostStore"]
        if plain:
            self._store_behind(plain)
        for op in stores:
            if op.op_type == "If":
                self._store_due(op)
        return len(loads) + len(stores)

    @property
    def _body(self) -> Graph:
        return self.loops[-1].body

    @property
    def _count(self) -> int:
        """Iterations of all loops together."""
        total = 1
        for loop in self.loops:
            total *= loop.trips
        return total

    def _load_ahead(self, loads: Sequence[Op]) -> None:
        carried: list[_Carried] = []
        for op in loads:
            name = op.output.name
            first = build(
                self.loops[0].outer,
                "HostLoad",
                [],
                _plain(op),
                output_names=[f"{name}_first"],
                settings=op.settings,
            ).output
            state = self._open(first, name)
            self._body.replace_uses(op.output, state.formal)
            self._body.remove_op(op)
            self._body.rename(state.formal, name)
            carried.append(state)
        is_more = self._flag(last=True)
        following: dict[_Carried, Tensor] = {}
        for ops, states in _by_place(loads, carried):
            loaded, kept = Graph("load"), Graph("keep")
            for op, state in zip(ops, states, strict=True):
                _load_or_keep(op, state.formal, loaded, kept)
            choice = self._choose(is_more, ops[0], states, (loaded, kept))
            following.update(zip(states, choice.outputs, strict=True))
        for state in carried:
            self._close(state, following[state])

    def _store_behind(self, stores: Sequence[Op]) -> None:
        values = [op.operand(0) for op in stores]
        outermost = self.loops[0].outer
        carried = [
            self._open(zeros(outermost, value.type), f"{value.name}_before") for value in values
        ]
        was_more = self._flag(last=False)
        for ops, states in _by_place(stores, carried):
            self._choose(was_more, ops[0], states, (_storing(ops, states), _idle(states)))
        for op, state, value in zip(stores, carried, values, strict=True):
            self._body.remove_op(op)
            self._finish(op, self._close(state, value))

    def _store_due(self, op: Op) -> None:
        """Store what was due of a store that is made now and then, an iteration later.

        The last iteration ends a period, so that its value is always due behind the loop.
        """
        (store,) = op.subgraphs["then_branch"].ops
        due, value = op.operand(0), op.operand(1)
        outermost = self.loops[0].outer
        was_due = self._open(scalar_constant(outermost, 0, DType.BOOL), "due_before")
        state = self._open(zeros(outermost, value.type), f"{value.name}_before")
        period = integer(store.attributes, "period")
        taken = (self._count // period - 1, self._count)
        branches = _storing([store], [state]), _idle([state])
        self._choose(was_due.formal, store, [state], branches, taken=taken)
        self._body.remove_op(op)
        self._close(was_due, due)
        self._finish(store, self._close(state, value))

    def _finish(self, store: Op, value: Tensor) -> None:
        """Store what the last iteration has computed."""
        build(self.loops[0].outer, "HostStore", [value], _plain(store), settings=store.settings)

    def _choose(
        self,
        condition: Tensor,
        transfer: Op,
        carried: Sequence[_Carried],
        branches: tuple[Graph, Graph],
        taken: tuple[int, int] | None = None,
    ) -> Op:
        """One of two branches, where ``transfer`` is."""
        then_branch, else_branch = branches
        formals = [state.formal for state in carried]
        if condition.producer is not None and condition.producer not in self.others:
            self.others.append(condition.producer)
        op = self._body.add_op(
            "If",
            [condition, *formals],
            [tensor.type for tensor in then_branch.outputs],
            {"taken": taken or (self._count - 1, self._count), "unrolled": 1},
            output_names=[f"{formal.name}_next" for formal in formals],
            settings=_beside(transfer),
            subgraphs={"then_branch": then_branch, "else_branch": else_branch},
        )
        self.transfers.append(op)
        return op

    # -- whether there is something to transfer --------------------------------------------------

    def _flag(self, *, last: bool) -> Tensor:
        """True in all iterations but the last one, or the first one, of all loops together."""
        outer: Tensor | None = None
        for loop in self.loops:
            body = loop.body
            bound = loop.trips - 1 if last else 0
            number = scalar_constant(body, bound, DType.INT64)
            op_type = "Less" if last else "Greater"
            own = _decide(body, op_type, body.inputs[0], number)
            if outer is not None:
                loop.outer.append_input(loop.op, outer)
                inner = body.add_input("otherwise", TensorType(DType.BOOL, ()))
                if loop is self.loops[-1] and own.producer is not None:
                    self.others.append(own.producer)
                own = _decide(body, "Or", own, inner)
            outer = own
        assert outer is not None, "there is a loop"
        return outer

    # -- states of loops -------------------------------------------------------------------------

    def _open(self, initial: Tensor, name: str) -> _Carried:
        """Add a state to every loop; its new value follows."""
        places: list[int] = []
        results: list[Tensor] = []
        for loop in self.loops:
            states = integer(loop.op.attributes, "states")
            loop.op.attributes = {**loop.op.attributes, "states": states + 1}
            loop.outer.insert_input(loop.op, 2 + states, initial)
            formal = loop.body.add_input(name, initial.type)
            loop.body.inputs.insert(2 + states, loop.body.inputs.pop())
            results.append(loop.outer.insert_output(loop.op, states, f"{name}_last", initial.type))
            places.append(1 + states)
            initial = formal
        return _Carried(tuple(places), initial, tuple(results))

    def _close(self, state: _Carried, value: Tensor) -> Tensor:
        """Let ``value`` be what the bodies give back; what the outermost loop gives in the end."""
        for loop, place, result in reversed(
            list(zip(self.loops, state.places, state.results, strict=True))
        ):
            loop.body.outputs.insert(place, value)
            loop.body.output_names.insert(place, value.name)
            value = result
        return value


def _decide(body: Graph, op_type: str, *operands: Tensor) -> Tensor:
    """A decision by the iteration alone: an IPU would have written out the first and the last."""
    return build(body, op_type, operands, {"unrolled": 1}, settings=_ORIGIN).output


def _plain(op: Op) -> AttributeMap:
    """The attributes of a transfer without the wish that it overlaps."""
    return {name: value for name, value in op.attributes.items() if name != "exchange"}


def _beside(op: Op) -> OpSettings:
    """The settings of an op that decides about ``op``: those of the place alone."""
    own = op.settings
    return replace(
        _ORIGIN,
        virtual_graph=own.virtual_graph,
        pipeline_stage=own.pipeline_stage,
        execution_phase=own.execution_phase,
    )


def _by_place(
    ops: Sequence[Op], carried: Sequence[_Carried]
) -> Iterator[tuple[list[Op], list[_Carried]]]:
    """Transfers at one place, with what they load or store."""
    groups: dict[Hashable, tuple[list[Op], list[_Carried]]] = {}
    for op, state in zip(ops, carried, strict=True):
        group = groups.setdefault(op.settings.place, ([], []))
        group[0].append(op)
        group[1].append(state)
    yield from groups.values()


def _load_or_keep(op: Op, formal: Tensor, loaded: Graph, kept: Graph) -> None:
    """In ``loaded`` the next sample is what ``op`` loads, in ``kept`` it is what there is."""
    attributes = {**_plain(op), "overlapped": 1}
    loaded.add_input(formal.name, formal.type)
    sample = build(loaded, "HostLoad", [], attributes, settings=op.settings).output
    loaded.add_output(formal.name, sample)
    kept.add_output(formal.name, kept.add_input(formal.name, formal.type))


def _storing(stores: Sequence[Op], carried: Sequence[_Carried]) -> Graph:
    graph = Graph("store")
    for op, state in zip(stores, carried, strict=True):
        value = graph.add_input(state.formal.name, state.formal.type)
        attributes = {**_plain(op), "overlapped": 1}
        build(graph, "HostStore", [value], attributes, settings=replace(op.settings))
    return graph


def _idle(carried: Sequence[_Carried]) -> Graph:
    graph = Graph("skip")
    for state in carried:
        graph.add_input(state.formal.name, state.formal.type)
    return graph
