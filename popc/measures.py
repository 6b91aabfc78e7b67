"""A compiled program in numbers, to compare it with others."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from popc.archive import build_archive
from popc.compiler import Compilation
from popc.estimation import costs_of, cycles_of, encode_report
from popc.frontend import LoadedModel
from popc.ops.streaming import constants_off_chip
from popc.options import Options
from popc.schedule import measure_liveness
from popc_runtime.format import instructions_of

__all__ = ["Measures", "measure"]


@dataclass(frozen=True, slots=True)
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


def measure(loaded: LoadedModel, done: Compilation, options: Options) -> Measures:
    """The numbers of a compilation that went through all stages.

    Args:
        loaded: The model.
        done: What the stages have made of it.
        options: With these.
    """
    assert done.schedule is not None, "the last stage has run"
    assert done.plan is not None, "the last stage has run"
    assert done.image is not None, "the last stage has run"
    liveness = measure_liveness(done.graph, done.schedule.orders, inplace=options.enable_inplace)
    costs = costs_of(done, options)
    report = encode_report(costs) if options.cost_report else b""
    size, digest = _archived(loaded, done, options, report)
    op_types = Counter(op.op_type for graph in done.graph.walk() for op in graph.ops)
    blocks = done.image.programs.values()
    plan, far = done.plan, sum(one.type.nbytes for one in constants_off_chip(done.graph))
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
        "cycles": costs.cycles.total,
    }
    return Measures(numbers, dict(op_types), digest)


def _archived(
    loaded: LoadedModel, done: Compilation, options: Options, report: bytes
) -> tuple[int, str]:
    """Size and digest of the archive, without the options that it lists."""
    assert done.model is not None, "the last stage has run"
    assert done.plan is not None, "the last stage has run"
    assert done.image is not None, "the last stage has run"
    cycles = cycles_of(done, options)
    archive = build_archive(
        loaded, done.model, done.plan, done.image, options, done.training, report, cycles
    )
    archive.manifest = replace(archive.manifest, options=())
    with tempfile.TemporaryDirectory() as folder:
        content = archive.save(Path(folder) / "program.popx").read_bytes()
    return len(content), sha256(content).hexdigest()
