"""Gradient accumulation: what makes up a micro-batch becomes the body of a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from popc.ir import Graph, Op, StepPart, Tensor, TensorType
from popc.ir.attributes import integer, text
from popc.ops import OPS
from popc.ops.build import build
from popc.ops.main_loops import ACCUMULATION_LOOP
from popc.options import ReturnType
from popc.options.anchors import asking_for_all
from popc.transforms.loop_states import (
    MainLoopState,
    capture_variables,
    carry_store,
    make_loop,
    scalar_constant,
    zeros,
)
from popc_runtime.errors import OptionError
from popc_runtime.format import DType

__all__ = ["split_accumulation"]


def split_accumulation(graph: Graph, count: int, *, by_row: bool = False) -> None:
    """Let ``count`` micro-batches add up their gradients before the optimizer sees them.

    Before::

        %x = HostLoad() stream='x'
        %g = Mul(%x, $w)
        %sum = Accumulate(%g) kind='sum'
        %new = Sub($w, %sum)
        CopyVarUpdate($w, %new)

    After::

        %sum = Loop(-, -, %zeros, $w) states=1 trip_count=2
          body = graph accumulationLoop(%iteration, %condition, %sum_state, %w) {
            %x = HostLoad() stream='x'
            %g = Mul(%x, %w)
            %total = Add(%sum_state, %g)
            return True, %total
          }
        %new = Sub($w, %sum)
        CopyVarUpdate($w, %new)

    The ops that need an accumulated gradient stay outside, and so does what only they need.  With
    ``by_row``, rows of all micro-batches are added to a table behind the loop, as far as there are
    fewer of them than the table has.
    """
    _refuse_periodic_stores(graph)
    order = graph.topological()
    state = {op.operand(0) for op in order if _writes_state(op)}
    varying = _followers(
        order, lambda op: _starts_varying(op) or not state.isdisjoint(op.present_inputs)
    )
    inside = _inside(order, varying)
    body = graph.split_off(ACCUMULATION_LOOP)
    outside = [op for op in order if op not in inside]
    _Split(graph, body, outside, varying, by_row=by_row).run(count)


def _refuse_periodic_stores(graph: Graph) -> None:
    periodic = [
        text(op.attributes, "stream")
        for op in graph.ops
        if op.op_type == "HostStore" and op.attributes["return_type"] == ReturnType.EVERY_N.value
    ]
    if periodic:
        raise OptionError(
            f"the return type of {', '.join(periodic)} is every_n, which leaves open what to "
            "return of the micro-batches of a batch",
            subject="accumulation_factor",
            hint=asking_for_all(periodic),
        )


# -- which ops belong to a micro-batch -------------------------------------------------------------


def _inside(order: Sequence[Op], varying: set[Op]) -> set[Op]:
    """The ops that the Accumulates, and the other effects of a micro-batch, depend on."""
    updated = _followers(order, _is_accumulate)
    inside: set[Op] = set()
    for op in reversed(order):
        has_effect = _any_spec(op, lambda spec_op: OPS[spec_op.op_type].side_effect)
        if (
            _is_accumulate(op)
            or _stores_each_sum(op)
            or (has_effect and op in varying and op not in updated)
            or any(user in inside for tensor in op.outputs for user in tensor.uses)
        ):
            inside.add(op)
    return inside


def _followers(order: Iterable[Op], is_start: Callable[[Op], bool]) -> set[Op]:
    """Ops for which ``is_start`` holds, and all that depend on them."""
    found: set[Op] = set()
    for op in order:
        if is_start(op) or any(tensor.producer in found for tensor in op.present_inputs):
            found.add(op)
    return found


def _is_accumulate(op: Op) -> bool:
    return op.op_type == "Accumulate"


def _stores_each_sum(op: Op) -> bool:
    """True if the host gets a sum as it is after each micro-batch, and not the last one alone."""
    if op.op_type != "HostStore" or op.attributes["return_type"] == ReturnType.FINAL.value:
        return False
    source = op.operand(0).producer
    return source is not None and _is_accumulate(source)


def _lookup_gradient(op: Op, count: int) -> Op | None:
    """The op whose result ``op`` adds up, if that is the gradient of few rows of a table."""
    addend = op.operand(0)
    maker = addend.producer
    if op.attributes["kind"] != "sum" or op.optional(1) is not None:
        return None
    if maker is None or maker.op_type != "GatherGrad" or set(addend.uses) != {op}:
        return None
    if any(_stores_each_sum(user) for user in op.output.uses):
        return None
    few = count * maker.operand(1).type.size < addend.type.shape[0]
    return maker if few and integer(maker.attributes, "axis") == 0 else None


def _writes_state(op: Op) -> bool:
    """True if the model itself gives a variable a new value, in every micro-batch."""
    return op.op_type == "CopyVarUpdate" and op.settings.part is not StepPart.UPDATE


def _starts_varying(op: Op) -> bool:
    """True if the op's results may differ from micro-batch to micro-batch by themselves."""
    if _is_accumulate(op) or op.op_type == "CopyVarUpdate":
        return False
    return op.op_type == "HostLoad" or _any_spec(op, lambda inner: OPS[inner.op_type].random)


def _any_spec(op: Op, holds: Callable[[Op], bool]) -> bool:
    """True if ``holds`` is true of ``op`` or of any op nested in it."""
    if op.subgraphs:
        return any(
            _any_spec(inner, holds) for graph in op.subgraphs.values() for inner in graph.ops
        )
    return holds(op)


# -- taking the graph apart ------------------------------------------------------------------------


class _Split:
    """Moves ops out of the body, and finds or makes outside what they read."""

    def __init__(
        self,
        outer: Graph,
        body: Graph,
        outside: Sequence[Op],
        varying: set[Op],
        *,
        by_row: bool,
    ) -> None:
        self.by_row = by_row
        self.outer = outer
        self.body = body
        self.outside = dict.fromkeys(outside)
        self.varying = varying
        self.values: dict[Tensor, Tensor] = {}  # tensor of the body -> the same outside
        self.twins: dict[Op, Op] = {}  # op of the body -> its copy outside
        self.states: list[MainLoopState] = []

    def run(self, count: int) -> None:
        """Leave the body of a micro-batch in ``body``, and the rest around its loop."""
        body = self.body
        iteration = body.add_input("iteration", TensorType(DType.INT64, ()))
        body.add_input("condition", TensorType(DType.BOOL, ()))
        captures = capture_variables(self.outer, body)
        self.values.update((inner, variable) for variable, inner in captures)
        accumulates = [op for op in body.ops if _is_accumulate(op)]
        for op in accumulates:
            lookup = _lookup_gradient(op, count) if self.by_row else None
            if lookup is None:
                self._carry_sum(op, iteration)
            else:
                self._carry_rows(op, lookup, iteration, count)
        for tensor in self._crossing():
            self._carry_last(tensor)
        for op in [op for op in body.ops if op.op_type == "HostStore" and op not in self.outside]:
            kind = ReturnType(text(op.attributes, "return_type"))
            if kind is not ReturnType.ALL:
                self.states.append(carry_store(self.outer, body, op, kind))
        loop = make_loop(self.outer, body, self.states, captures, count)
        for state, result in zip(self.states, loop.outputs, strict=True):
            state.finish(result)
        for op in self.outside:
            self._copy_out(op)
        body.ordering.copy(self.twins, self.outer.ordering)
        for op in [*reversed(self.outside), *accumulates]:
            body.remove_op(op)

    def _crossing(self) -> list[Tensor]:
        """The tensors that ops outside read and that have to be carried out of the loop."""
        found: dict[Tensor, None] = {}
        for op in self.outside:
            for tensor in op.present_inputs:
                source = tensor.producer
                if source is None or source in self.outside or _is_accumulate(source):
                    continue
                if source in self.varying or source.subgraphs:
                    found[tensor] = None
        return list(found)

    def _carry_sum(self, op: Op, iteration: Tensor) -> None:
        addend, start, result = op.operand(0), op.optional(1), op.output
        initial = zeros(self.outer, addend.type) if start is None else self._outside(start)
        formal = self.body.add_input(f"{result.name}_state", addend.type)
        total = self._total(op, formal, addend, iteration)
        for store in [user for user in result.uses if _stores_each_sum(user)]:
            self.body.set_input(store, 0, total)
        self.states.append(
            MainLoopState(initial, formal, total, lambda value: self._found(result, value))
        )

    def _carry_rows(self, op: Op, lookup: Op, iteration: Tensor, count: int) -> None:
        """Carry the operands of a lookup's gradient in place of it: those of all micro-batches."""
        found: list[Tensor] = []

        def finish(value: Tensor) -> None:
            found.append(value)
            if len(found) == len(present):
                values = iter(found)
                operands = [None if tensor is None else next(values) for tensor in lookup.inputs]
                attributes, settings = dict(lookup.attributes), op.settings
                whole = build(self.outer, lookup.op_type, operands, attributes, settings=settings)
                self._found(op.output, whole.output)

        present = lookup.present_inputs
        for tensor in present:
            rows = tensor.type.with_shape((count, *tensor.type.shape))
            formal = self.body.add_input(f"{tensor.name}_rows", rows)
            kept = build(self.body, "Stash", [formal, tensor, iteration], settings=op.settings)
            self.states.append(MainLoopState(zeros(self.outer, rows), formal, kept.output, finish))

    def _total(self, op: Op, formal: Tensor, addend: Tensor, iteration: Tensor) -> Tensor:
        def emit(op_type: str, *operands: Tensor, **attributes: str) -> Tensor:
            settings = op.settings
            return build(self.body, op_type, operands, {**attributes}, settings=settings).output

        if op.attributes["kind"] == "sum":
            return emit("Add", formal, addend)
        dtype = addend.type.dtype
        earlier = emit("Cast", iteration, to=dtype.value)  # micro-batches that are in the mean
        count = emit(
            "Cast",
            emit("Add", iteration, scalar_constant(self.body, 1, DType.INT64)),
            to=dtype.value,
        )
        kept = emit("Mul", formal, emit("Div", earlier, count))
        return emit("Add", kept, emit("Div", addend, count))

    def _carry_last(self, tensor: Tensor) -> None:
        formal = self.body.add_input(f"{tensor.name}_state", tensor.type)
        initial = zeros(self.outer, tensor.type)
        self.states.append(
            MainLoopState(initial, formal, tensor, lambda value: self._found(tensor, value))
        )

    def _found(self, tensor: Tensor, value: Tensor) -> None:
        self.outer.rename(value, tensor.name)
        self.values[tensor] = value

    def _outside(self, tensor: Tensor) -> Tensor:
        """``tensor`` of the body as a tensor of the outer graph; computed there if need be."""
        if tensor not in self.values:
            if tensor.data is not None:
                self.values[tensor] = self.outer.add_constant(tensor.name, tensor.type, tensor.data)
            else:
                assert tensor.producer is not None, f"{tensor!r} is not known outside"
                self._copy_out(tensor.producer)
        return self.values[tensor]

    def _copy_out(self, op: Op) -> None:
        twin = self.outer.add_op(
            op.op_type,
            [None if tensor is None else self._outside(tensor) for tensor in op.inputs],
            [tensor.type for tensor in op.outputs],
            dict(op.attributes),
            output_names=[tensor.name for tensor in op.outputs],
            settings=replace(op.settings),
            subgraphs=dict(op.subgraphs),
        )
        self.twins[op] = twin
        self.values.update(zip(op.outputs, twin.outputs, strict=True))
