"""Graphs in the language of Graphviz: ops as boxes, tensors as arrows, subgraphs as frames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from popc.ir.graph import Graph, Op, Tensor
from popc.ir.settings import Recompute
from popc.ir.types import TensorKind
from popc_runtime.format import format_attribute

__all__ = ["format_dot"]

_SHORT: Final = 24  # characters of an attribute's value that are shown
_COLOURS: Final = ("#cfe2f3", "#d9ead3", "#fff2cc", "#f4cccc", "#d9d2e9", "#fce5cd")


def format_dot(
    graph: Graph, order: Sequence[Op] | None = None, *, first: int = 0, last: int | None = None
) -> str:
    """``graph`` for ``dot``: an arrow for each tensor that one op hands to another.

    Args:
        graph: The top graph.
        order: Of its ops; topological if not given.
        first, last: Show only the ops of the top graph from number ``first`` up to, but without,
            number ``last``.
    """
    return "\n".join(_Drawing(graph, order, first, last).lines()) + "\n"


class _Drawing:
    """Numbers ops in the order in which they are drawn."""

    def __init__(
        self, graph: Graph, order: Sequence[Op] | None, first: int, last: int | None
    ) -> None:
        self._graph = graph
        self._ops = list(order if order is not None else graph.topological())[first:last]
        self._names: dict[Op, str] = {}
        self._drawn: set[Graph] = set()
        self._frames = 0

    def lines(self) -> Iterator[str]:
        """The text, line by line."""
        yield f"digraph {_quoted(self._graph.name)} {{"
        yield '  node [shape=box, fontname="sans-serif"];'
        yield '  edge [fontname="sans-serif", fontsize=10];'
        yield from (f"  {line}" for line in self._body(self._graph, self._ops))
        yield "}"

    def _body(self, graph: Graph, ops: Sequence[Op]) -> Iterator[str]:
        for op in ops:
            self._names[op] = f"op{len(self._names)}"
            yield f"{self._names[op]} [label={_quoted(_label(op))}{_style(op)}];"
            for name, subgraph in op.subgraphs.items():
                if subgraph in self._drawn:  # another op holds it too
                    continue
                self._drawn.add(subgraph)
                self._frames += 1
                yield f"subgraph cluster_{self._frames} {{"
                yield f"  label={_quoted(f'{name} of {_title(op)}: {subgraph.name}')};"
                inner = self._body(subgraph, subgraph.topological())
                yield from (f"  {line}" for line in inner)
                yield "}"
        yield from self._arrows(graph, ops)

    def _arrows(self, graph: Graph, ops: Sequence[Op]) -> Iterator[str]:
        for op in ops:
            for tensor in op.outputs:
                for user in tensor.uses:
                    if user in self._names:
                        ends = f"{self._names[op]} -> {self._names[user]}"
                        yield f"{ends} [label={_quoted(f'{tensor.name}: {tensor.type}')}];"
        for pair in graph.ordering:
            if pair.first in self._names and pair.second in self._names:
                style = "bold" if pair.tied else "dashed"
                yield f"{self._names[pair.first]} -> {self._names[pair.second]} [style={style}];"


def _title(op: Op) -> str:
    return op.outputs[0].name if op.outputs else op.op_type


def _label(op: Op) -> str:
    """Type, name, what it reads that no op computes, attributes and place."""
    lines = [op.op_type, _title(op)]
    lines += [f"{operand.kind} {operand.name}" for operand in _leaves(op)]
    lines += [f"{name} {subgraph.name}" for name, subgraph in op.subgraphs.items()]
    lines += [
        f"{key}={_shortened(format_attribute(item))}" for key, item in sorted(op.attributes.items())
    ]
    place = {
        "virtual graph": op.settings.virtual_graph,
        "stage": op.settings.pipeline_stage,
        "phase": op.settings.execution_phase,
    }
    lines += [f"{name} {number}" for name, number in place.items() if number is not None]
    return "\n".join(lines)


def _leaves(op: Op) -> list[Tensor]:
    """The operands of ``op`` that no op computes, constants of one element aside."""
    found = dict.fromkeys(operand for operand in op.present_inputs if operand.producer is None)
    return [
        tensor
        for tensor in found
        if not (tensor.kind is TensorKind.CONSTANT and tensor.type.size == 1)
    ]


def _style(op: Op) -> str:
    """Chips differ in colour; repetitions for the backward pass have dashed frames."""
    number = op.settings.virtual_graph
    parts = [] if number is None else [f'fillcolor="{_COLOURS[number % len(_COLOURS)]}"']
    styles = [] if number is None else ["filled"]
    if op.settings.recompute is Recompute.RECOMPUTED:
        styles.append("dashed")
    if styles:
        parts.append(f'style="{",".join(styles)}"')
    return "".join(f", {part}" for part in parts)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 3]}..."


def _quoted(text: str) -> str:
    r"""A string of the language, in which ``\n`` ends a line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
