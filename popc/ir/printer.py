"""The text form of a graph: stable, sorted by program order, no addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from popc.ir.graph import Graph, Op, Tensor
from popc.ir.settings import OpSettings, ProductCut, Recompute, StepPart
from popc.ir.types import TensorKind
from popc.printable import printable
from popc_runtime.format import format_attribute

__all__ = ["format_graph"]

_SIGILS: Final = {TensorKind.CONSTANT: "@", TensorKind.VARIABLE: "$"}


def format_graph(graph: Graph, order: Sequence[Op] | None = None) -> str:
    """One line per op, in ``order`` or else topologically; subgraphs indented below their op.

    A graph that several ops hold follows behind all others.
    """
    holders = Counter(
        nested for inner in graph.walk() for op in inner.ops for nested in op.subgraphs.values()
    )
    shared = [nested for nested in graph.walk() if holders[nested] > 1]
    lines = _graph_lines(graph, order, shared)
    for nested in shared:
        lines.extend(_graph_lines(nested, None, shared))
    return "\n".join(map(printable, lines)) + "\n"


def _graph_lines(graph: Graph, order: Sequence[Op] | None, shared: Sequence[Graph]) -> list[str]:
    inputs = ", ".join(f"%{tensor.name}: {tensor.type}" for tensor in graph.inputs)
    lines = [f"graph {graph.name}({inputs}) {{"]
    lines.extend(f"  ${tensor.name}: {tensor.type}, {tensor.role}" for tensor in graph.variables)
    for op in order if order is not None else graph.topological():
        lines.append(f"  {_op_line(op)}")
        for name, subgraph in op.subgraphs.items():
            if subgraph in shared:
                lines.append(f"    {name} = graph {subgraph.name}")
                continue
            nested = _graph_lines(subgraph, None, shared)
            lines.append(f"    {name} = {nested[0]}")
            lines.extend(f"    {line}" for line in nested[1:])
    lines.extend(
        f"  {_reference(pair.first)} before {_reference(pair.second)}"
        f"{', tied' if pair.tied else ''}{', if that can be' if pair.wished else ''}"
        for pair in graph.ordering
    )
    results = ", ".join(
        name if tensor.name == name and not tensor.is_constant else f"{name} = {_operand(tensor)}"
        for name, tensor in zip(graph.output_names, graph.outputs, strict=True)
    )
    lines.append(f"  return {results}" if results else "  return")
    lines.append("}")
    return lines


def _op_line(op: Op) -> str:
    outputs = ", ".join(f"%{tensor.name}: {tensor.type}" for tensor in op.outputs)
    operands = ", ".join(_operand(tensor) for tensor in op.inputs)
    attributes = "".join(
        f" {key}={format_attribute(item)}" for key, item in sorted(op.attributes.items())
    )
    notes = _settings(op.settings)
    return f"{outputs}{' = ' if outputs else ''}{op.op_type}({operands}){attributes}{notes}"


def _reference(op: Op) -> str:
    """An op by its results, or by its operands if it has none."""
    return repr(op) if op.outputs else f"{op.op_type}({', '.join(map(_operand, op.inputs))})"


def _settings(settings: OpSettings) -> str:
    """The place and time of an op, and the user's settings for it."""
    said = {
        "schedule_priority": settings.schedule_priority or None,
        "exclude_patterns": ",".join(settings.exclude_patterns) or None,
        "virtual_graph": settings.virtual_graph,
        "pipeline_stage": settings.pipeline_stage,
        "execution_phase": settings.execution_phase,
        "batch_phase": settings.batch_phase,
        "tile_set": settings.tile_set if settings.tile_set != "compute" else None,
        "part": settings.part.name.lower() if settings.part is not StepPart.FORWARD else None,
        "bins": _bins(settings) or None,
        "recompute": _recompute(settings.recompute),
        "cut": None if settings.cut is None else _cut(settings.cut),
        "inplace": ",".join(f"{index}:{rank}" for index, rank in settings.inplace) or None,
        "location": settings.location.replace(" ", "+") or None,
        "available_memory": settings.available_memory,
        "stochastic_rounding": settings.stochastic_rounding,
        "call": "/".join(map(str, settings.call)).replace(" ", "+") or None,
        "outline": ",".join(settings.outline) or None,
    }
    shown = [f"{name}={value}" for name, value in said.items() if value is not None]
    return f"  # {' '.join(shown)}" if shown else ""


def _recompute(wish: Recompute) -> str | None:
    return None if wish is Recompute.UNDEFINED else wish.value


def _bins(settings: OpSettings) -> str:
    return ",".join(f"{name.replace(' ', '+')}:{number}" for name, number in settings.bins)


def _cut(cut: ProductCut) -> str:
    return f"{cut.mode}:{cut.factor}{':keep_precision' if cut.keep_precision else ''}"


def _operand(tensor: Tensor | None) -> str:
    if tensor is None:
        return "-"
    if tensor.is_constant and tensor.data is not None and tensor.type.size == 1:
        shown = tensor.type if tensor.type.shape else tensor.type.dtype
        return f"{shown}({tensor.data.reshape(()).item()})"
    return f"{_SIGILS.get(tensor.kind, '%')}{tensor.name}"
