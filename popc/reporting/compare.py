"""Two compiled programs compared: what they take, what they do, what they were made with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from popc.cost import CostReport, MemoryReport, OpCost
from popc.reporting.memory import CATEGORIES
from popc.reporting.profile import Profile
from popc.reporting.sections import cycles_of
from popc_runtime.format import Origin, TensorSpec, VariableSpec

__all__ = ["compare_costs", "compare_profiles"]

# {"before": .., "after": ..}; ``None`` where there is none.
Change: TypeAlias = dict[str, Any]

# Options that say what is checked and told, not what is compiled.
_OF_COMPILING: Final = ("allow_out_of_memory", "budget", "cost_report", "verify_ir")


def compare_profiles(before: Profile, after: Profile) -> dict[str, Any]:
    """All differences as plain data; parts that are equal are empty, or not there.

    ``same`` says whether there are none.  Costs are compared if both programs have a cost report;
    ``without_costs`` names those that do not.  Sizes of archives count for nothing by themselves.
    """
    one, other = before.manifest, after.manifest
    parts = {
        "costs": _costs(before, after),
        "instructions": _numbers(before.instructions, after.instructions),
        "memory_of_runtime": _numbers(one.memory, other.memory),
        "interface": {
            "inputs": _specs(one.inputs, other.inputs),
            "outputs": _specs(one.outputs, other.outputs),
            "other_programs": _values(_variants(before), _variants(after)),
            "variables": _specs(one.variables, other.variables),
        },
        "options": _options(before, after),
        "provenance": _values(_provenance(before), _provenance(after)),
        "content": _values(_content(before), _content(after)),
    }
    found = {name: part for name, part in parts.items() if _any_in(part)}
    return {
        "same": not found,
        "archive_bytes": {"before": before.bytes, "after": after.bytes},
        "blob_bytes": _numbers(_stored(before), _stored(after)),
        "without_costs": list(
            dict.fromkeys(side.name for side in (before, after) if side.costs is None)
        ),
        **found,
    }


def _any_in(part: Any) -> bool:
    """True if there is anything in tables of tables."""
    return any(map(_any_in, part.values())) if isinstance(part, dict) else bool(part)


def _change(before: Any, after: Any) -> Change:
    return {"before": before, "after": after}


def _values(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of what differs, by name."""
    names = sorted({*before, *after})
    return [
        {"name": name, **_change(before.get(name), after.get(name))}
        for name in names
        if before.get(name) != after.get(name)
    ]


def _numbers(before: Mapping[str, int], after: Mapping[str, int]) -> list[dict[str, Any]]:
    """Rows of what differs, the largest difference first; nothing counts as 0."""
    rows = [
        {"name": name, **_change(before.get(name, 0), after.get(name, 0))}
        for name in {*before, *after}
        if before.get(name, 0) != after.get(name, 0)
    ]
    return sorted(rows, key=lambda row: (-abs(row["after"] - row["before"]), row["name"]))


def _options(before: Profile, after: Profile) -> list[dict[str, Any]]:
    """The options that one side has set and the other has not, or otherwise.

    An option that only one of the two versions of popc knows counts if it was set.
    """
    ours, theirs = ({row.name: row for row in side.manifest.options} for side in (before, after))
    unknown = {*ours} ^ {*theirs}
    defaults = {
        name for name in unknown if (ours.get(name) or theirs[name]).origin is Origin.DEFAULT
    }
    left_out = defaults.union(_OF_COMPILING)
    rows = _values(*({name: row.value for name, row in side.items()} for side in (ours, theirs)))
    return [row for row in rows if row["name"] not in left_out]


def _provenance(profile: Profile) -> dict[str, Any]:
    manifest = profile.manifest
    facts = {
        **manifest.provenance,
        "compiler": manifest.compiler_version,
        "model sha256": manifest.model_sha256,
        "programs": list(manifest.programs),
        "replicas": manifest.replicas,
    }
    training = manifest.training
    return facts if training is None else {**facts, "trains by": training.optimizer}


def _stored(profile: Profile) -> dict[str, int]:
    return {blob.name: blob.stored_bytes for blob in profile.blobs.values()}


def _content(profile: Profile) -> dict[str, str]:
    """The contents of blobs, by their hashes; what a program costs is compared by itself."""
    return {
        blob.name: blob.sha256.hex() for blob in profile.blobs.values() if blob.kind != "report"
    }


def _specs(
    before: Sequence[TensorSpec | VariableSpec], after: Sequence[TensorSpec | VariableSpec]
) -> list[dict[str, Any]]:
    def types(specs: Iterable[TensorSpec | VariableSpec]) -> dict[str, str]:
        return {spec.name: f"{spec.dtype}[{','.join(map(str, spec.shape))}]" for spec in specs}

    return _values(types(before), types(after))


def _variants(profile: Profile) -> dict[str, str]:
    """The programs beside main, by what they take."""
    return {
        variant.name: ", ".join(map(str, variant.inputs)) for variant in profile.manifest.variants
    }


# -- costs -----------------------------------------------------------------------------------------


def _costs(before: Profile, after: Profile) -> dict[str, Any]:
    if before.costs is None or after.costs is None:
        return {}
    return compare_costs(before.costs, after.costs)


def compare_costs(before: CostReport, after: CostReport) -> dict[str, Any]:
    """Cycles, bytes by tile and ops; tables and lists are empty where nothing differs."""
    return {
        "target": _values(_target(before), _target(after)),
        "cycles": _numbers(cycles_of(before.cycles), cycles_of(after.cycles)),
        "seconds": [_change(before.seconds, after.seconds)]
        if before.seconds != after.seconds
        else [],
        "fits": [_change(before.fits, after.fits)] if before.fits != after.fits else [],
        "tiles": _tiles(before.memory, after.memory),
        "op_types": _numbers(_types(before), _types(after)),
        "ops": _ops(before.ops, after.ops),
    }


def _target(report: CostReport) -> dict[str, Any]:
    target = report.target
    return {
        "name": target.name,
        "ipus": target.num_ipus,
        "tiles per ipu": target.tiles_per_ipu,
        "bytes per tile": target.tile.memory_bytes,
        "clock": target.tile.clock_hz,
    }


def _types(report: CostReport) -> Counter[str]:
    return Counter(op.op_type for op in report.ops)


def _tiles(
    before: Sequence[MemoryReport], after: Sequence[MemoryReport]
) -> dict[str, list[dict[str, Any]]]:
    """By chip: bytes of the busiest tile, in all and by category."""
    chips = max(len(before), len(after))
    found: dict[str, list[dict[str, Any]]] = {}
    for chip in range(chips):
        one, other = (_tile(memory[chip : chip + 1]) for memory in (before, after))
        rows = _numbers(one, other)
        if rows:
            found[f"IPU {chip}"] = rows
    return found


def _tile(chips: Sequence[MemoryReport]) -> dict[str, int]:
    if not chips:
        return {}
    (chip,) = chips
    sizes = {name: getattr(chip.busiest, name) for name in CATEGORIES}
    return {
        "max tile": chip.peak_bytes,
        "always live": max(chip.always_live, default=0),
        "all tiles": sum(chip.peak),
        **{name.replace("_", " "): bytes_ for name, bytes_ in sizes.items()},
    }


def _ops(before: Sequence[OpCost], after: Sequence[OpCost]) -> dict[str, list[dict[str, Any]]]:
    """Added, removed and changed ops, most cycles first; those of one name are told by order."""
    mine, theirs = _by_name(before), _by_name(after)
    found: dict[str, list[dict[str, Any]]] = {"changed": [], "added": [], "removed": []}
    for key in {**mine, **theirs}:
        ours, others = mine.get(key, []), theirs.get(key, [])
        both = min(len(ours), len(others))
        found["changed"] += [
            _changed(one, other)
            for one, other in zip(ours, others, strict=False)
            if _facts(one) != _facts(other)
        ]
        found["added"] += [_named(op) for op in others[both:]]
        found["removed"] += [_named(op) for op in ours[both:]]
    found["changed"].sort(
        key=lambda row: (-abs(row["cycles"]["after"] - row["cycles"]["before"]), row["name"])
    )
    for rows in (found["added"], found["removed"]):
        rows.sort(key=lambda row: (-row["cycles"], row["name"]))
    return found


def _by_name(ops: Sequence[OpCost]) -> dict[tuple[str, str], list[OpCost]]:
    found: defaultdict[tuple[str, str], list[OpCost]] = defaultdict(list)
    for op in ops:
        found[op.name, op.op_type].append(op)
    return found


def _facts(op: OpCost) -> tuple[object, ...]:
    return op.times, op.cycles, op.plans, op.ipu, op.temporary_bytes


def _named(op: OpCost) -> dict[str, Any]:
    return {
        "name": op.name,
        "op_type": op.op_type,
        "node": op.origin,
        "cycles": op.cycles.total,
    }


def _changed(before: OpCost, after: OpCost) -> dict[str, Any]:
    row: dict[str, Any] = {"name": after.name, "op_type": after.op_type, "node": after.origin}
    row["cycles"] = _change(before.cycles.total, after.cycles.total)
    pairs = {
        "temporary_bytes": (before.temporary_bytes, after.temporary_bytes),
        "executions": (before.times, after.times),
        "ipu": (before.ipu, after.ipu),
        "plans": (list(before.plans), list(after.plans)),
    }
    return row | {name: _change(*pair) for name, pair in pairs.items() if pair[0] != pair[1]}
