"""Variables for the inputs that a program keeps, and their next values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from popc.frontend.bindings import Bindings, resolve
from popc.frontend.load import LoadedModel
from popc.frontend.open_graph import OpenGraph
from popc.frontend.states import StatePair, States, find_states
from popc.frontend.values import SizedValue, Unknown, Value
from popc.ir import AttributeMap, OpSettings, Tensor, TensorType, VariableRole
from popc.ops.build import build
from popc_runtime.errors import UsageError
from popc_runtime.format import Array, DType

__all__ = ["define_states", "first_values", "write_states"]


def define_states(importer: OpenGraph, states: States, types: Mapping[str, TensorType]) -> None:
    """Let the inputs that are kept be variables, which begin as zeros.

    ``types`` are those of the inputs: caches as long as they may become, masks with new rows alone.
    """
    for name in states.held:
        importer.define(name, _variable(importer, name, types[name]))
    count = _rows_before(importer, states) if states.most else None
    for pair in states.pairs:
        variable = _variable(importer, pair.past, types[pair.past])
        if pair.axis is None or count is None:
            importer.define(pair.past, variable)
            continue
        importer.context.caches[variable] = (pair.axis, states.rows)
        importer.define(pair.past, _sized(variable, pair.axis, count))
    for name, axis in states.appended.items():
        assert count is not None, "masks are kept beside caches"
        new = importer.graph.tensors[name]
        shape = list(new.type.shape)
        shape[axis] = states.most
        variable = _variable(importer, f"{name}.past", new.type.with_shape(tuple(shape)))
        window: AttributeMap = {"axes": (axis,), "sizes": (states.rows,)}
        whole = _op(importer, states, "DynamicUpdate", [variable, count, new], window)
        rows = importer.constant(np.array(states.rows), DType.INT64)
        after = _op(importer, states, "Add", [count, rows])
        importer.define(name, _sized(whole, axis, after))
        importer.updates.write(variable, whole)


def first_values(loaded: LoadedModel, bindings: Bindings) -> dict[str, Array]:
    """The inputs that a program keeps, as they are before its first run.

    Raises:
        UsageError: see `find_states`; or sizes of inputs stay open.
    """
    states, bindings = find_states(loaded, bindings)
    if not states.names:
        return {}
    types = resolve(loaded, bindings).types
    found = {name: np.zeros(types[name].shape, types[name].dtype.storage) for name in states.held}
    for pair in states.pairs:
        shape = list(types[pair.past].shape)
        if pair.axis is not None:
            shape[pair.axis] = 0
        found[pair.past] = np.zeros(shape, types[pair.past].dtype.storage)
    return found


def _rows_before(importer: OpenGraph, states: States) -> Tensor:
    """The rows that caches have when a run begins, which leave room for those that it adds."""
    held = _variable(importer, states.name, TensorType(DType.INT64, ()))
    rows = importer.constant(np.array(states.rows), DType.INT64)
    bound: AttributeMap = {"bound": states.most, "tensor": states.name}
    total = _op(importer, states, "Add", [held, rows])
    total = _op(importer, states, "CheckSize", [total], bound)
    before = _op(importer, states, "Sub", [total, rows])
    sizes = importer.context.sizes
    sizes.is_used = True
    sizes.bounded.update(dict.fromkeys(states.used))
    sizes.limit(before, states.most - states.rows)
    importer.updates.write(held, total)
    return before


def write_states(importer: OpenGraph, states: States) -> None:
    """Let the outputs be what the inputs are in the next run.

    Raises:
        UsageError: types or sizes do not fit; lists every problem.
    """
    problems: list[str] = []
    for pair in states.pairs:
        value = importer.lookup(pair.present)
        if isinstance(value, Unknown):
            return  # which has been reported
        before = importer.lookup(pair.past)
        variable = before.padded if isinstance(before, SizedValue) else before
        assert isinstance(variable, Tensor), pair
        found = _next_value(importer, states, pair, value, variable.type)
        if isinstance(found, Tensor):
            importer.updates.write(variable, found)
        else:
            problems.append(f"{pair.past} and {pair.present}: {found}")
    if problems:
        several = f"{len(problems)} outputs are not the next values of their inputs"
        raise UsageError(
            several if len(problems) > 1 else problems[0],
            subject="states",
            details=tuple(problems) if len(problems) > 1 else (),
            hint="name the pairs: --set states.INPUT=OUTPUT",
        )


def _next_value(
    importer: OpenGraph, states: States, pair: StatePair, value: Value, type_: TensorType
) -> Tensor | str:
    """The next value of the variable of a pair, or else the fault of the output."""
    padded = value.padded if isinstance(value, SizedValue) else value
    if not isinstance(padded, Tensor):
        return "the output is no tensor"
    counts = value.counts if isinstance(value, SizedValue) else (None,) * padded.type.rank
    moving = [axis for axis, count in enumerate(counts) if count is not None]
    grows = [] if pair.axis is None else [pair.axis]
    if moving != grows or padded.type.with_shape(()) != type_.with_shape(()):
        return f"the output is {_told(padded.type, counts)}, the input {_told(type_, (), grows)}"
    if pair.axis is None:
        return padded if padded.type == type_ else f"the output is {padded.type}, not {type_}"
    sizes, count = importer.context.sizes, counts[pair.axis]
    before = importer.lookup(pair.past)
    assert isinstance(before, SizedValue)
    start = before.counts[pair.axis]
    assert count is not None
    assert start is not None
    added = sizes.sub(sizes.scalar(count), sizes.scalar(start)).known
    if added != states.rows:
        how = "not by a number that is known" if added is None else f"by {added} rows"
        return f"a run makes the cache longer {how}, but {states.rows} are given to it"
    if padded.type != type_:
        return f"the output is {padded.type}, not {type_}"
    return padded


def _told(
    type_: TensorType, counts: tuple[Tensor | None, ...], grows: list[int] | None = None
) -> str:
    axes = grows or [axis for axis, count in enumerate(counts) if count is not None]
    dims = [f"<={dim}" if axis in axes else str(dim) for axis, dim in enumerate(type_.shape)]
    return f"{type_.dtype}[{','.join(dims)}]"


def _variable(importer: OpenGraph, name: str, type_: TensorType) -> Tensor:
    variable = importer.graph.add_variable(name, type_, VariableRole.WEIGHT)
    context = importer.context
    context.written = {*context.written, variable.name}
    context.known.written = context.written
    return variable


def _sized(padded: Tensor, axis: int, count: Tensor) -> SizedValue:
    counts: list[Tensor | None] = [None] * padded.type.rank
    counts[axis] = count
    return SizedValue(padded, tuple(counts))


def _op(
    importer: OpenGraph,
    states: States,
    op_type: str,
    operands: list[Tensor | None],
    attributes: AttributeMap | None = None,
) -> Tensor:
    settings = OpSettings(origin=states.name)
    return build(importer.graph, op_type, operands, attributes or {}, settings=settings).output
