"""The costs of a program, part by part, for counting the cycles of a run by what has run in it.

The document has the form of the program: loops and branches say how often they were thought to run,
and have a number by which the runtime says how often they did.  Numbers are given in the order in
which loops and branches begin; `popc_runtime.cycles.execution` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from popc.cost.chips import chip_of
from popc.cost.phases import Cycles, Phase
from popc.cost.transfers import op_cycles
from popc.ir import Graph, Op
from popc.ops.main_loops import main_loops
from popc.schedule import Schedule
from popc.target import Target
from popc_runtime.ground.frozen import frozen

__all__ = ["Execution", "encode_execution"]


@frozen
class Execution:
    """The costs of every op when it runs once.

    ``hidden`` cycles of transfers are none of it; of a whole run, ``beside`` pass while a slower
    chip works.
    """

    graph: Graph
    schedule: Schedule
    target: Target
    phases: Mapping[Op, Sequence[Phase]]
    hidden: Mapping[Op, int]
    beside: Cycles


def encode_execution(execution: Execution, instrumentations: Sequence[str]) -> bytes:
    """The document as JSON; ``instrumentations`` says what may be asked for."""
    document = {
        "schema": "popc.cycles/1",
        "target": execution.target.name,
        "clock_hz": execution.target.tile.clock_hz,
        "instrumentations": list(instrumentations),
        "beside": astuple(execution.beside),
        "program": _Writer(execution).steps(execution.graph),
    }
    return json.dumps(document, separators=(",", ":"), sort_keys=True).encode()


@dataclass(slots=True)
class _Writer:
    """Turns graphs into lists of steps."""

    execution: Execution
    blocks: int = 0
    innermost: Op | None = field(init=False)

    def __post_init__(self) -> None:
        loops = main_loops(self.execution.graph)
        self.innermost = loops[-1].op if loops else None

    def steps(self, graph: Graph) -> list[dict[str, Any]]:
        """The steps of ``graph``; views and what else costs nothing are left out."""
        steps = [self._step(op) for op in self.execution.schedule.orders[graph]]
        return [
            step for step in steps if any(step["cycles"]) or "bodies" in step or "hidden" in step
        ]

    def _step(self, op: Op) -> dict[str, Any]:
        execution = self.execution
        target = execution.target
        cycles = op_cycles(execution.phases.get(op, ()), target)
        hidden = execution.hidden.get(op, 0)
        step: dict[str, Any] = {
            "name": op.outputs[0].name if op.outputs else _read_by(op),
            "type": op.op_type,
            "origin": op.settings.origin,
            "ipu": chip_of(op, target.num_ipus),
            "cycles": astuple(replace(cycles, host=cycles.host - hidden)),
        }
        if hidden:
            step["hidden"] = hidden
        if op.op_type in ("If", "Loop"):
            step["block"] = self.blocks
            self.blocks += 1
        if op.op_type == "Loop":
            trips = op.attributes.get("trip_count", -1)
            step["trips"] = trips if isinstance(trips, int) else -1
            step["innermost"] = op is self.innermost
        if op.subgraphs:
            step["bodies"] = [self.steps(nested) for nested in op.subgraphs.values()]
        if "taken" in op.attributes:
            step["taken"] = op.attributes["taken"]
        return step


def _read_by(op: Op) -> str:
    return op.present_inputs[0].name if op.present_inputs else op.op_type
