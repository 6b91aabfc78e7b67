"""Ops that share their code, as graphs that are called: what PopART's outlining makes of them.

popc outlines parts of two ops or more; the code of single ops that are alike is there once anyway.
PopART has a graph for such an op too, which its JSON shows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from popc.ir import Op, StepPart
from popc.ops import OPS
from popc.transforms.outlining.sequence import code_value
from popc_runtime.ground.frozen import frozen

__all__ = ["Entry", "Shown", "with_functions"]

Entry: TypeAlias = dict[str, Any]
_SUMS: Final = frozenset({"Accumulate", "Add", "Sum"})
_PARTS: Final = list(StepPart)
# Attributes in which ops may differ that share their code.
_APART: Final = ("labels", "results", "schedulePriority")


@frozen
class Shown:
    """An entry, and the op that it shows or a part of which it shows.

    Attributes:
        op: The op.
        number: Its place among the ops of its graph, as they were made.
        entry: The entry.
        is_whole: False for what an op does beside what it is called for.
    """

    op: Op
    number: int
    entry: Entry
    is_whole: bool = True


def with_functions(
    graphs: Mapping[str, list[Shown]],
    called: Collection[str],
    threshold: float | None,
    *,
    by_time: bool,
) -> dict[str, list[Entry]]:
    """The entries of all graphs; ops that share their code are called.

    Args:
        graphs: The entries of each graph, the main one first.
        called: The graphs that popc has outlined.
        threshold: The worth of an op from which on it gets a graph; ``None`` if none does.
        by_time: Whether graphs are numbered by when they are called first in each part of a step;
            otherwise by when their ops were made, those whose results are added up at once before
            others.  PopART's order of execution comes to that without and with micro-batches.
    """
    alike = {} if threshold is None else _alike(graphs, threshold)
    readers = _readers(graphs)
    found: dict[str, tuple[int, bool, int]] = {}
    for place, shown in enumerate(_all(graphs)):
        name = _function_of(shown, alike, called)
        if name:
            part = _PARTS.index(shown.op.settings.part)
            late = not by_time and not _is_summed(shown, readers)
            rank = (part, late, place if by_time else shown.number)
            found[name] = min(rank, found.get(name, rank))
    ranked = sorted(found, key=lambda name: found[name])
    names = {name: f"call_subgraph({number})" for number, name in enumerate(ranked)}
    result: dict[str, list[Entry]] = {
        names.get(graph, graph): [_written(shown, alike, names) for shown in entries]
        for graph, entries in graphs.items()
    }
    for shown in _all(graphs):
        own = alike.get(_key(shown), "")
        if own:
            result.setdefault(names[own], [shown.entry])
    return result


def _all(graphs: Mapping[str, list[Shown]]) -> Iterator[Shown]:
    for entries in graphs.values():
        yield from entries


def _alike(graphs: Mapping[str, list[Shown]], threshold: float) -> dict[Hashable, str]:
    """A name for each kind of op that occurs more than once and is worth a graph."""
    counts: dict[Hashable, int] = {}
    for shown in _all(graphs):
        if shown.is_whole and _is_worth_it(shown.op, threshold):
            key = _key(shown)
            counts[key] = counts.get(key, 0) + 1
    kept = [key for key, count in counts.items() if count > 1]
    return {key: f"op {number}" for number, key in enumerate(kept)}


def _is_worth_it(op: Op, threshold: float) -> bool:
    spec = OPS.get(op.op_type)
    if spec is None or op.subgraphs or spec.random or spec.side_effect:
        return False
    return not (spec.transfer or spec.collective) and code_value(op) > threshold


def _key(shown: Shown) -> Hashable:
    entry, settings = shown.entry, shown.op.settings
    attributes = {name: value for name, value in entry["attributes"].items() if name not in _APART}
    operands = [(operand["shape"], operand["type"]) for operand in entry["inputs"]]
    said = (settings.outline, settings.exclude_patterns, settings.part.name)
    return json.dumps([entry["type"], attributes, operands, said], sort_keys=True)


def _function_of(shown: Shown, alike: Mapping[Hashable, str], called: Collection[str]) -> str:
    """The graph that an entry calls, or that it becomes; "" if there is none."""
    callee = shown.entry["attributes"].get("callee", "")
    if callee in called:
        return str(callee)
    return alike.get(_key(shown), "") if shown.is_whole else ""


def _readers(graphs: Mapping[str, list[Shown]]) -> dict[str, list[Shown]]:
    found: dict[str, list[Shown]] = {}
    for shown in _all(graphs):
        for operand in shown.entry["inputs"]:
            found.setdefault(operand["name"], []).append(shown)
    return found


def _is_summed(shown: Shown, readers: Mapping[str, list[Shown]]) -> bool:
    """True if the result of an op is added up at once, if only behind a Cast."""
    entry: Entry | None = shown.entry
    while entry is not None and entry["outputs"]:
        after = readers.get(entry["outputs"][0]["name"], [])
        if any(reader.entry["type"] in _SUMS for reader in after):
            return True
        entry = next((reader.entry for reader in after if reader.entry["type"] == "Cast"), None)
    return False


def _written(shown: Shown, alike: Mapping[Hashable, str], names: Mapping[str, str]) -> Entry:
    entry = shown.entry
    own = alike.get(_key(shown), "") if shown.is_whole else ""
    callee = own or entry["attributes"].get("callee", "")
    if callee not in names:
        return entry
    attributes = {**entry["attributes"], "callee": names[callee]}
    return {**entry, "type": "Call" if own else entry["type"], "attributes": attributes}
