"""Summary, graph, execution and memory report of a compiled program, as plain data.

Words are those of Poplar's profiles: program steps, compute sets, exchange, sync, always live.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from popc.cost import CostReport, Cycles, OpCost, Phase
from popc.reporting.memory import memory_section
from popc.reporting.profile import Profile
from popc.reporting.timeline import starts_of

__all__ = ["SECTIONS", "cycles_of", "report_data"]


def report_data(profile: Profile, sections: Sequence[str], *, full: bool = False) -> dict[str, Any]:
    """The named sections; with ``full``, every program step, tile and step of liveness.

    Raises:
        UsageError: the archive does not know what the program costs.
    """
    costs = profile.known_costs()
    return {name: SECTIONS[name](profile, costs, full) for name in sections}


def cycles_of(cycles: Cycles) -> dict[str, int]:
    """Cycles by what they are spent on, as plain data."""
    return {
        "total": cycles.total,
        "compute": cycles.compute,
        "vertex_launch": cycles.launch,
        "exchange": cycles.exchange,
        "sync": cycles.sync,
        "host_exchange": cycles.host,
    }


def _summary(profile: Profile, costs: CostReport, full: bool) -> dict[str, Any]:  # noqa: FBT001
    del full
    manifest, target = profile.manifest, costs.target
    return {
        "archive": {
            "name": profile.name,
            "bytes": profile.bytes,
            "popc": manifest.compiler_version,
            "model_sha256": manifest.model_sha256,
            "replicas": manifest.replicas,
        },
        "provenance": dict(manifest.provenance),
        "inputs": [str(input_) for input_ in manifest.inputs],
        "outputs": [str(output) for output in manifest.outputs],
        "options": [
            {"name": row.name, "value": row.value, "origin": row.origin.value}
            for row in manifest.options
        ],
        "target": {
            "name": target.name,
            "ipus": target.num_ipus,
            "tiles_per_ipu": target.tiles_per_ipu,
            "io_tiles": target.num_io_tiles,
            "bytes_per_tile": target.tile.memory_bytes,
            "clock_hz": target.tile.clock_hz,
        },
        "fits": costs.fits,
        "total_cycles": costs.cycles.total,
        "device_cycles": costs.device_cycles,
        "seconds": costs.seconds,
        "samples": costs.samples,
        "samples_per_second": costs.throughput,
        "max_tile_bytes": max((chip.peak_bytes for chip in costs.memory), default=0),
        "assumed_loops": list(costs.assumed),
    }


def _graph(profile: Profile, costs: CostReport, full: bool) -> dict[str, Any]:  # noqa: FBT001
    phases = [phase for op in costs.ops for phase in op.phases]
    types = Counter(op.op_type for op in costs.ops)
    return {
        "ops": len(costs.ops),
        "instructions": sum(profile.instructions.values()),
        "compute_sets": sum(bool(phase.launches) for phase in phases),
        "exchanges": sum(bool(phase.exchanges) for phase in phases),
        "planned_products": costs.plans,
        "ops_by_type": dict(sorted(types.items(), key=lambda item: (-item[1], item[0]))),
        "vertices_by_type": _by_vertex(costs),
        "memory": memory_section(costs.memory, full=False)["ipus"],
        **({"plans": {op.name: list(op.plans) for op in costs.ops if op.plans}} if full else {}),
    }


def _by_vertex(costs: CostReport) -> list[dict[str, Any]]:
    """Compute sets and their cycles, by the type of their vertices; most cycles first."""
    sets: Counter[str] = Counter()
    cycles: Counter[str] = Counter()
    for op in costs.ops:
        for phase in op.phases:
            if phase.launches:
                sets[phase.vertex or "other"] += 1
                cycles[phase.vertex or "other"] += phase.compute * op.times
    ranked = sorted(sets, key=lambda name: (-cycles[name], name))
    return [
        {"vertex": name, "compute_sets": sets[name], "compute_cycles": cycles[name]}
        for name in ranked
    ]


def _execution(profile: Profile, costs: CostReport, full: bool) -> dict[str, Any]:  # noqa: FBT001
    del profile
    by_type: Counter[str] = Counter()
    for op in costs.ops:
        by_type[op.op_type] += op.cycles.total
    ranked = sorted(costs.ops, key=lambda op: (-op.cycles.total, op.name))
    data: dict[str, Any] = {
        "cycles": cycles_of(costs.cycles),
        "hidden_host_cycles": costs.hidden,
        "pipeline": costs.pipeline.to_dict() if costs.pipeline else None,
        "seconds": costs.seconds,
        "ops": len(costs.ops),
        "cycles_by_op_type": dict(sorted(by_type.items(), key=lambda item: (-item[1], item[0]))),
        "compute_cycles_by_vertex": _by_vertex(costs),
        "most_expensive": [_op(op) for op in ranked[:20]],
    }
    if full:
        data["program_steps"] = _steps(costs)
    return data


def _op(op: OpCost) -> dict[str, Any]:
    return {
        "name": op.name,
        "op_type": op.op_type,
        "node": op.origin,
        "ipu": op.ipu,
        "executions": op.times,
        "cycles": cycles_of(op.cycles),
        "hidden_host_cycles": op.hidden,
        "temporary_bytes": op.temporary_bytes,
        "plans": list(op.plans),
    }


def _steps(costs: CostReport) -> list[dict[str, Any]]:
    """The ops in order, each with what it consists of."""
    return [
        {
            "step": number,
            "start_cycle": start,
            **_op(op),
            "phases": [_phase(phase, costs) for phase in op.phases],
        }
        for number, (op, start) in enumerate(zip(costs.ops, starts_of(costs.ops), strict=True))
    ]


def _phase(phase: Phase, costs: CostReport) -> dict[str, Any]:
    cycles = phase.cycles(costs.target)
    return {"name": phase.name, "vertex": phase.vertex, "cycles": cycles_of(cycles)}


def _memory(profile: Profile, costs: CostReport, full: bool) -> dict[str, Any]:  # noqa: FBT001
    del profile
    return memory_section(costs.memory, full=full)


SECTIONS: Final[dict[str, Callable[[Profile, CostReport, bool], dict[str, Any]]]] = {
    "summary": _summary,
    "graph": _graph,
    "execution": _execution,
    "memory": _memory,
}
