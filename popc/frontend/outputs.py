"""Outputs of a model, with the sizes that data decides behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from popc.frontend import messages as onnx
from popc.frontend.bindings import Bindings
from popc.frontend.names import listed
from popc.frontend.sizes import SizeTable
from popc.frontend.states import States
from popc.frontend.values import (
    OptionalValue,
    SequenceValue,
    SizedValue,
    TableValue,
    TextValue,
    Value,
)
from popc.ir import Graph, Tensor, free_name
from popc_runtime.errors import ModelError, UsageError

__all__ = ["add_outputs", "require_bounds_of_sizes", "wanted_outputs"]


def wanted_outputs(graph: onnx.GraphProto, bindings: Bindings, states: States) -> list[str]:
    """The names of outputs: those that are asked for, or else those of the model; and anchors."""
    wanted = list(dict.fromkeys(bindings.outputs))
    if not wanted and bindings.model_outputs:
        next_values = states.results
        wanted = [info.name for info in graph.output if info.name not in next_values]
    return wanted + [name for name in dict.fromkeys(bindings.anchors) if name not in wanted]


def add_outputs(
    graph: Graph, results: Iterable[tuple[str, Value]]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    """Add the wanted outputs; the element names of those that are sequences, and their sizes.

    No two outputs have one name, but one may have that of an input.  Sizes that data decides are
    outputs behind all others.
    """
    taken = set[str]()
    sequences: dict[str, tuple[str, ...]] = {}
    sized: dict[str, SizedValue] = {}
    for name, value in results:
        parts = [(_unique(part, taken), found) for part, found in _flatten(name, value)]
        for part, found in parts:
            graph.add_output(part, found.padded if isinstance(found, SizedValue) else found)
            if isinstance(found, SizedValue):
                sized[part] = found
        if isinstance(value, SequenceValue):
            sequences[name] = tuple(part for part, _ in parts)
    return sequences, _add_sizes(graph, sized, taken)


def _add_sizes(
    graph: Graph, sized: Mapping[str, SizedValue], taken: set[str]
) -> dict[str, tuple[str, ...]]:
    """Add an output for each size; for each axis of the tensors the name of its size, or ""."""
    names: dict[Tensor, str] = {}
    for part, value in sized.items():
        for axis, count in enumerate(value.counts):
            if count is not None and count not in names:
                names[count] = _unique(f"{part}.size{axis}", taken)
                graph.add_output(names[count], count)
    return {
        part: tuple("" if count is None else names[count] for count in value.counts)
        for part, value in sized.items()
    }


def _unique(name: str, taken: set[str]) -> str:
    unique = free_name(name, taken, first=2, form="{name}.{number}")
    taken.add(unique)
    return unique


def _flatten(name: str, value: Value) -> list[tuple[str, Tensor | SizedValue]]:
    if isinstance(value, Tensor | SizedValue):
        return [(name, value)]
    if isinstance(value, TextValue):
        if value.is_open:
            raise ModelError(
                f"output {name!r} holds strings of an input, which may be any",
                hint="leave it out: name the outputs that are wanted",
            )
        return [(name, value.numbers)]
    if isinstance(value, TableValue):
        return [(name, value.rows)]
    if isinstance(value, SequenceValue):
        parts = [_flatten(f"{name}.{i}", item) for i, item in enumerate(value.items)]
        return [pair for part in parts for pair in part]
    if isinstance(value, OptionalValue):
        return [] if value.value is None else _flatten(name, value.value)
    raise AssertionError(value)  # an Unknown would have been reported


def require_bounds_of_sizes(sizes: SizeTable) -> None:
    """Raise UsageError if a bound is given for what has no size that data decides."""
    unknown = [
        pattern
        for pattern in sizes.bounds
        if pattern not in sizes.bounded
        and not any(fnmatchcase(name, pattern) for name in sizes.bounded)
    ]
    if unknown:
        raise UsageError(
            f"bounds: data does not decide the size of {', '.join(map(repr, unknown))}",
            subject=unknown[0],
            hint=f"it decides that of {listed(list(sizes.bounded)) or 'no tensor'}",
        )
