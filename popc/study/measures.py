"""A compiled program in numbers, to compare it with others."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from popc.archive import Content, build_archive
from popc.compiler import Compiled
from popc.ops.streaming import constants_off_chip
from popc.reporting.estimation import costs_of, cycles_of, encode_report
from popc.schedule import measure_liveness
from popc_runtime.format import instructions_of
from popc_runtime.ground.frozen import frozen

__all__ = ["Measures", "measure"]


@frozen
class Measures:
    """A compiled program in numbers.

    Attributes:
        numbers: Ops, instructions, bytes, cycles on the target, by name.
        op_types: Ops by type.
        digest: Of everything that the archive says about the program.
    """

    numbers: Mapping[str, int]
    op_types: Mapping[str, int]
    digest: str


def measure(compiled: Compiled) -> Measures:
    """The numbers of a program."""
    planned = compiled.planned
    graph, plan, options = planned.graph, planned.plan, planned.options
    liveness = measure_liveness(graph, planned.schedule.orders, inplace=options.enable_inplace)
    costs = costs_of(planned)
    report = encode_report(costs) if options.cost_report else b""
    size, digest = _archived(compiled, report)
    op_types = Counter(op.op_type for nested in graph.walk() for op in nested.ops)
    blocks = compiled.image.programs.values()
    far = sum(constant.type.nbytes for constant in constants_off_chip(graph))
    numbers = {
        "ops": op_types.total(),
        "instructions": sum(len(instructions_of(block)) for block in blocks),
        "peak liveness": liveness.peak,
        "sum liveness": liveness.total,
        "operands overwritten": len(plan.inplace),
        "arena bytes": plan.arena_bytes,
        "state bytes": plan.state_bytes,
        "constant bytes": plan.constant_bytes,
        "on-chip bytes": plan.arena_bytes + plan.state_bytes + plan.constant_bytes - far,
        "remote bytes": plan.remote_bytes + far,
        "archive bytes": size,
        "busiest tile": max(chip.peak_bytes for chip in costs.memory),
        "cycles": costs.cycles.total,
    }
    return Measures(numbers, dict(op_types), digest)


def _archived(compiled: Compiled, report: bytes) -> tuple[int, str]:
    """Size and digest of the archive, without the options that it lists."""
    archive = build_archive([Content(compiled, report, cycles_of(compiled.planned))])
    archive.manifest = replace(archive.manifest, options=())
    with tempfile.TemporaryDirectory() as folder:
        content = archive.save(Path(folder) / "program.popx").read_bytes()
    return len(content), sha256(content).hexdigest()
