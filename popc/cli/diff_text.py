"""Two programs compared, for people: what matters most comes first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from popc.cli.report import format_seconds, format_table

__all__ = ["difference_text"]

_ROWS: Final = 12  # of a table without --all
_ALSO: Final = ("executions", "ipu", "temporary_bytes", "plans")
_Rows = Sequence[Mapping[str, Any]]


def difference_text(data: Mapping[str, Any], names: tuple[str, str], *, show_all: bool) -> str:
    """Everything that differs between the programs of the names."""
    limit = None if show_all else _ROWS
    if data["same"] and names[0] == names[1]:
        return f"{names[0]} is compared with itself: it is the same program"
    if data["same"]:
        return f"{names[0]} and {names[1]} are the same program"
    without = [
        f"costs are not compared: {name} has no cost report" for name in data["without_costs"]
    ]
    costs = data.get("costs", {})
    parts = ["\n".join([_headline(data, names), *without]), *_cost_parts(costs, limit)]
    parts += _numbers("Instructions of the runtime", data.get("instructions", ()), limit)
    parts += _numbers("Memory of the runtime", data.get("memory_of_runtime", ()), limit)
    for name, rows in data.get("interface", {}).items():
        parts += _values(name.capitalize().replace("_", " "), rows, limit)
    parts += _values("Options", data.get("options", ()), limit)
    parts += _values("Provenance", data.get("provenance", ()), limit)
    parts += _numbers("Stored bytes", data["blob_bytes"], limit)
    changed = [row["name"] for row in data.get("content", ())]
    if changed:
        parts.append(f"Content that differs: {', '.join(changed)}")
    return "\n\n".join(parts)


def _headline(data: Mapping[str, Any], names: tuple[str, str]) -> str:
    """The one sentence that a hurried reader needs."""
    costs = data.get("costs", {})
    facts: list[str] = []
    cycles = _row(costs.get("cycles", ()), "total")
    if cycles:
        facts.append(f"{_relative(cycles)} cycles")
    for chip, rows in costs.get("tiles", {}).items():
        tile = _row(rows, "max tile")
        if tile:
            place = "" if chip == "IPU 0" and len(costs["tiles"]) == 1 else f" of {chip}"
            facts.append(f"{_relative(tile)} bytes on the busiest tile{place}")
    sizes = data["archive_bytes"]
    if abs(sizes["after"] - sizes["before"]) * 1000 >= sizes["before"]:
        facts.append(f"an archive of {_relative(sizes)} bytes")
    fits = costs.get("fits")
    if fits:
        facts.append("which fits now" if fits[0]["after"] else "which NO LONGER FITS")
    told = ", ".join(facts) or "as many cycles and bytes"
    return f"{names[1]}, compared with {names[0]}: {told}"


def _row(rows: _Rows, name: str) -> Mapping[str, Any] | None:
    return next((row for row in rows if row["name"] == name), None)


def _relative(change: Mapping[str, Any]) -> str:
    before, after = change["before"], change["after"]
    if not before:
        return f"{after:+,}"
    more = "more" if after > before else "fewer"
    return f"{abs(after - before) / before:.1%} {more}"


def _cost_parts(costs: Mapping[str, Any], limit: int | None) -> Iterator[str]:
    yield from _values("Target", costs.get("target", ()), limit)
    yield from _numbers("Cycles", costs.get("cycles", ()), limit)
    for change in costs.get("seconds", ()):
        times = format_seconds(change["before"]), format_seconds(change["after"])
        yield f"Time for a run: {times[0]} before, {times[1]} after"
    for chip, rows in costs.get("tiles", {}).items():
        yield from _numbers(f"Bytes of the busiest tile, {chip}", rows, limit)
    ops = costs.get("ops", {})
    if ops.get("changed"):
        yield _titled("Ops that changed", _changed_ops(ops["changed"]), limit, (2, 3, 4))
    for which in ("added", "removed"):
        rows = [[row["name"], row["op_type"], f"{row['cycles']:,}"] for row in ops.get(which, ())]
        if rows:
            head = ["name", "type", "cycles"]
            yield _titled(f"Ops that were {which}", [head, *rows], limit, (2,))
    yield from _numbers("Ops by type", costs.get("op_types", ()), limit)


def _changed_ops(rows: _Rows) -> list[list[str]]:
    table = [["name", "type", "before", "after", "difference", "also"]]
    for row in rows:
        cycles = row["cycles"]
        also = [f"{name.replace('_', ' ')} {_both(row[name])}" for name in _ALSO if name in row]
        table.append([row["name"], row["op_type"], *_counted(cycles), "; ".join(also)])
    return table


def _both(change: Mapping[str, Any]) -> str:
    return f"{_shown(change['before'])} to {_shown(change['after'])}"


def _numbers(title: str, rows: _Rows, limit: int | None) -> list[str]:
    if not rows:
        return []
    table = [["", "before", "after", "difference"]]
    table += [[row["name"].replace("_", " "), *_counted(row)] for row in rows]
    return [_titled(title, table, limit, (1, 2, 3))]


def _counted(change: Mapping[str, Any]) -> list[str]:
    before, after = change["before"], change["after"]
    percent = f" ({(after - before) / before:+.1%})" if before else ""
    return [f"{before:,}", f"{after:,}", f"{after - before:+,}{percent}"]


def _values(title: str, rows: _Rows, limit: int | None) -> list[str]:
    if not rows:
        return []
    table = [["", "before", "after"]]
    table += [[row["name"], _shown(row["before"]), _shown(row["after"])] for row in rows]
    return [_titled(title, table, limit, ())]


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def _titled(title: str, table: list[list[str]], limit: int | None, right: tuple[int, ...]) -> str:
    shown = table if limit is None else table[: limit + 1]
    left = len(table) - len(shown)
    note = f"\n... {left:,} more (--all)" if left else ""
    return f"{title}\n{format_table(shown, right)}{note}"
