"""Cycles of single layers beside those that Poplar's own model of an IPU gives them.

    python -m benchmarks.layers            families of layers
    python -m benchmarks.layers --all      every layer

`vendor_layers.csv` has the figures that Graphcore keeps in the tests of its libraries
(github.com/graphcore/poplibs, tests/benchmark_results.csv, IpuModel2), for the layers that
tests/CMakeLists.txt there describes: sums are 32 bits wide.  Products, reductions and recurrent
layers run forward only; the others are a step of training, which is forward, both gradients and the
update of the weights, if there are any.  It models phases as this project does, but not the launch
of vertices, and no conflicts of exchanges.  Its tools run what is forward and what is backward one
after the other, and each run begins with a sync, which costs here count with transfers from the
host.  Operands of its pools lie in groups of 8 channels.  Its products are planned as poplin did
then, with columns for the field (`vendor_layers.toml`).
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable
from math import exp, log
from pathlib import Path
from statistics import mean
from typing import Any, Final

from benchmarks.layer_models import Layer, model_of
from popc.compiler import Planned, plan_program
from popc.cost.machine import CostMemo, Machine
from popc.cost.mapping import Layout
from popc.cost.planner import Planner
from popc.cost.rules import RULES
from popc.cost.settings import CostSettings
from popc.cost.transfers import op_cycles
from popc.cost.work import Work
from popc.reporting.estimation import costs_of, target_of
from popc.request import CompileRequest
from popc.target import Target

__all__ = ["Layer", "cycles_of", "deviations", "read_layers"]

_LAYERS: Final = Path(__file__).with_name("vendor_layers.csv")
_TARGET: Final = str(_LAYERS.with_suffix(".toml"))
# What moves data between host and chip, and in training the loss; Poplar's figures have neither.
_HOST: Final = frozenset({"HostLoad", "HostStore"})
_LOSS: Final = frozenset({"Mul", "ReduceSum"})
_POOLS: Final = frozenset({"MaxPool", "MaxPoolGrad"})
_OTHER_UPDATES: Final = {"UpdatedVar___x", "UpdatedVar___dy"}


def read_layers(path: Path = _LAYERS) -> list[Layer]:
    """The layers of a file with a line for each."""
    with path.open(encoding="utf-8", newline="") as file:
        return [_layer(row) for row in csv.DictReader(file)]


def _layer(row: dict[str, str]) -> Layer:
    def number(name: str) -> int:
        return int(row[name] or 0)

    def numbers(name: str) -> tuple[int, ...]:
        return tuple(map(int, row[name].split("x"))) if row[name] else ()

    return Layer(
        row["kind"],
        row["type"],
        number("groups"),
        number("rows"),
        (number("height"), number("width")),
        number("inputs"),
        number("outputs"),
        (number("kernel_height"), number("kernel_width")),
        number("stride"),
        (number("pad_rows"), number("pad_columns")),
        bool(number("pads_ends")),
        number("steps"),
        numbers("shape"),
        numbers("axes"),
        row["operation"],
        number("tiles"),
        number("cycles"),
    )


def cycles_of(layer: Layer, target: str = _TARGET) -> int:
    """The cycles of a layer by popc's model."""
    training: dict[str, Any] = {}
    if layer.trained:
        training = {
            "loss": {"type": "identity", "input": "loss"},
            "optimizer": {"type": "sgd", "learning_rate": 0.01},
        }
    options: dict[str, Any] = {"target": target}
    if layer.kind == "product":  # both operands lie as it wants them
        options["states"] = {"a": "hold"}
    if layer.tiles:
        options["tiles_per_ipu"] = layer.tiles
    request = CompileRequest.of(model_of(layer), options=options, **training)
    planned = plan_program(request, request.load())
    if layer.kind == "pool":
        return _of_pool(planned) + _starts(layer, target_of(planned.options))
    report = costs_of(planned)
    beside = _HOST | _LOSS if layer.trained else _HOST
    layer_ops = (op for op in report.ops if op.op_type not in beside)
    cycles = sum(op.cycles.total for op in layer_ops if str(op.name) not in _OTHER_UPDATES)
    return cycles + _starts(layer, report.target)


def _starts(layer: Layer, target: Target) -> int:
    """Syncs of all tiles with which runs begin: of a pass forward, and of one backward."""
    return (1 + layer.trained) * target.exchange.sync_cycles


def _of_pool(planned: Planned) -> int:
    """The cycles of a pool and its gradient, whose operands lie in groups of eight channels."""
    target = target_of(planned.options)
    machine = Machine(target, CostSettings(), CostMemo(Planner(target)))
    given = Layout("given", block=8, image=True)
    layouts = dict.fromkeys(planned.graph.variables, given)
    cycles = 0
    for op in planned.schedule.orders[planned.graph]:
        if op.op_type in _POOLS:
            work = Work(op, machine, layouts)
            RULES[op.op_type](work)
            layouts |= dict.fromkeys(op.outputs, work.layout or given)
            cycles += op_cycles(work.phases, target).total
    return cycles


def deviations(layers: Iterable[Layer]) -> dict[str, list[float]]:
    """Ratios of popc's cycles to the vendor's, less one, by family."""
    found: dict[str, list[float]] = {}
    for layer in layers:
        found.setdefault(layer.family, []).append(cycles_of(layer) / layer.cycles - 1)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Cycles of layers beside Poplar's model.")
    parser.add_argument("--all", action="store_true", help="every layer")
    if parser.parse_args().all:
        for layer in read_layers():
            ours = cycles_of(layer)
            print(f"{ours:9,} {layer.cycles:9,} {ours / layer.cycles - 1:+7.1%}  {layer}")
        return
    print(f"{'family':18}{'layers':>7}{'mean':>8}{'mean size':>11}{'least':>8}{'most':>8}")
    for family, off in deviations(read_layers()).items():
        average = exp(mean(log(1 + value) for value in off)) - 1
        size = mean(map(abs, off))
        print(f"{family:18}{len(off):7}{average:+8.1%}{size:11.1%}{min(off):+8.1%}{max(off):+8.1%}")


if __name__ == "__main__":
    main()
