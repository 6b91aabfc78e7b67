"""Reports about a program for people, in the order of Poplar's profile summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from popc.cli.report import format_bytes, format_seconds, format_table

__all__ = ["sections_text"]

_ROWS: Final = 12  # of a section without --all


def sections_text(data: Mapping[str, Any], *, show_all: bool) -> str:
    """The sections of ``data``, each under its title."""
    limit = None if show_all else _ROWS
    parts: list[str] = []
    for name, section in data.items():
        title = f"{name.capitalize()} report" if name != "summary" else "Summary"
        parts.append(f"{title}\n{'=' * len(title)}\n{_TEXTS[name](section, limit)}")
    return "\n\n".join(parts)


def _summary(data: Mapping[str, Any], limit: int | None) -> str:
    archive, target = data["archive"], data["target"]
    changed = [row for row in data["options"] if row["origin"] != "default" or limit is None]
    size = f"{target['ipus']} x {target['tiles_per_ipu']:,} tiles"
    rows = [
        ["archive", f"{archive['name']}, {format_bytes(archive['bytes'])}, popc {archive['popc']}"],
        ["model", f"sha256 {archive['model_sha256']}"],
        *([key, value] for key, value in sorted(data["provenance"].items())),
        *(["input", text] for text in data["inputs"]),
        *(["output", text] for text in data["outputs"]),
        ["target", f"{target['name']}, {size} of {target['bytes_per_tile']:,} bytes"],
        ["total cycles", f"{data['total_cycles']:,}"],
        ["time", f"{format_seconds(data['seconds'])} at {target['clock_hz'] / 1e9:.2f} GHz"],
        ["throughput", f"{data['samples_per_second']:,.1f} samples/s"],
        ["max tile", f"{data['max_tile_bytes']:,} bytes"],
        ["memory", "fits" if data["fits"] else "DOES NOT FIT"],
        *(["one iteration assumed", name] for name in data["assumed_loops"]),
        *(["option", f"{row['name']} = {row['value']} (from {row['origin']})"] for row in changed),
    ]
    return format_table(rows)


def _graph(data: Mapping[str, Any], limit: int | None) -> str:
    counts = [
        ["program steps", f"{data['ops']:,}"],
        ["compute sets", f"{data['compute_sets']:,}"],
        ["exchanges", f"{data['exchanges']:,}"],
        ["planned products", f"{data['planned_products']:,}"],
        ["instructions of the runtime", f"{data['instructions']:,}"],
    ]
    types = [["op", "count"], *([name, f"{n:,}"] for name, n in data["ops_by_type"].items())]
    parts = [format_table(counts, right=(1,)), _cut(types, limit, right=(1,))]
    parts += [f"IPU {chip['ipu']}\n{_categories(chip)}" for chip in data["memory"]]
    return "\n\n".join(parts)


def _execution(data: Mapping[str, Any], limit: int | None) -> str:
    cycles = data["cycles"]
    total = cycles["total"]
    rows = [
        [("  " if name != "total" else "") + name.replace("_", " "), f"{n:,}", _share(n, total)]
        for name, n in cycles.items()
    ]
    if data["pipeline"]:
        rows += _pipeline(data["pipeline"])
    if data["hidden_host_cycles"]:
        rows.append(["hidden host exchange", f"{data['hidden_host_cycles']:,}", ""])
    types = [["op type", "cycles", ""]]
    types += [[name, f"{n:,}", _share(n, total)] for name, n in data["cycles_by_op_type"].items()]
    vertices = [["vertex", "compute sets", "compute cycles"]]
    vertices += [
        [row["vertex"], f"{row['compute_sets']:,}", f"{row['compute_cycles']:,}"]
        for row in data["compute_cycles_by_vertex"]
    ]
    steps = data.get("program_steps")
    ops = [["program step", "type", "cycles", "", "plan"]]
    ops += [_op_row(op, total) for op in (data["most_expensive"] if steps is None else steps)]
    tables = (
        _cut(types, limit, (1, 2)),
        _cut(vertices, limit, (1, 2)),
        _cut(ops, limit, (2, 3), of=data["ops"]),
    )
    return "\n\n".join([format_table(rows, right=(1, 2)), *tables])


def _pipeline(data: Mapping[str, Any]) -> list[list[str]]:
    """The distribution of time while chips work at the same time."""
    turns = f"{data['turns']:,} turns of {data['turn_cycles']:,}"
    return [
        ["pipeline, fill", f"{data['fill_cycles']:,}", ""],
        ["  all stages", f"{data['turns'] * data['turn_cycles']:,}", turns],
        ["  flush", f"{data['flush_cycles']:,}", ""],
        *([f"  IPU {chip['ipu']} in a turn", f"{chip['cycles']:,}", ""] for chip in data["chips"]),
        ["  hidden", f"{data['hidden_cycles']:,}", f"{data['utilisation']:.1%} busy"],
    ]


def _op_row(op: Mapping[str, Any], total: int) -> list[str]:
    cycles = op["cycles"]["total"]
    plan = op["plans"][0] if op["plans"] else ""
    return [op["name"], op["op_type"], f"{cycles:,}", _share(cycles, total), plan]


def _memory(data: Mapping[str, Any], limit: int | None) -> str:
    return "\n\n".join(_chip(chip, limit) for chip in data["ipus"])


def _chip(chip: Mapping[str, Any], limit: int | None) -> str:
    step = chip["peak_step"]
    rows = [
        ["limit of a tile", f"{chip['limit_bytes']:,}"],
        ["max tile", f"{chip['max_tile_bytes']:,}"],
        ["  always live", f"{chip['always_live_bytes']:,}"],
        ["  not always live", f"{chip['not_always_live_bytes']:,}"],
        ["tiles over the limit", f"{chip['tiles_over_limit']:,} of {chip['tiles']:,}"],
        ["total of all tiles", f"{chip['total_bytes']:,}"],
    ]
    tensors = [["tensor", "type", "kind", "bytes", "on max tile", "steps"]]
    tensors += [
        [
            row["name"],
            row["type"],
            row["kind"],
            f"{row['bytes']:,}",
            f"{row['bytes_on_max_tile']:,}",
            f"{row['live_from_step']} to {row['live_to_step']}",
        ]
        for row in chip["biggest_tensors"]
    ]
    peak = f"Peak at step {step['step']}: {step['name']}\n" if step else ""
    parts = [
        f"IPU {chip['ipu']}\n{peak}{format_table(rows, right=(1,))}",
        _categories(chip),
        _cut(tensors, limit, (3, 4)),
    ]
    if "liveness" in chip:
        parts.append(_liveness(chip["liveness"]))
    return "\n\n".join(parts)


def _liveness(steps: Sequence[Mapping[str, Any]]) -> str:
    rows = [["step", "not always live", "temporary", "max tile", "name"]]
    rows += [
        [
            str(row["step"]),
            f"{row['not_always_live_bytes']:,}",
            f"{row['temporary_bytes']:,}",
            f"{row['max_tile_bytes']:,}",
            row["name"],
        ]
        for row in steps
    ]
    return format_table(rows, right=(0, 1, 2, 3))


def _categories(chip: Mapping[str, Any]) -> str:
    rows = [["bytes by category", "max tile", "average tile"]]
    rows += [
        [name.replace("_", " "), f"{row['max_tile']:,}", f"{row['average_tile']:,}"]
        for name, row in chip["by_category"].items()
    ]
    return format_table(rows, right=(1, 2))


def _cut(
    rows: list[list[str]], limit: int | None, right: tuple[int, ...], of: int | None = None
) -> str:
    """A table of ``limit`` rows below its head, and how many more there are (``of`` in all)."""
    shown = rows if limit is None else rows[: limit + 1]
    left = (len(rows) - 1 if of is None else of) - (len(shown) - 1)
    return format_table(shown, right) + (f"\n... {left:,} more (--all)" if left else "")


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


_TEXTS: Final[dict[str, Callable[[Mapping[str, Any], int | None], str]]] = {
    "summary": _summary,
    "graph": _graph,
    "execution": _execution,
    "memory": _memory,
}
