"""Compare what the cost model says with what has been measured.

    python -m benchmarks.predictions                       the vendor's figures, and predictions
    python -m benchmarks.predictions --public              published measurements, and deviations
    python -m benchmarks.predictions --measured FILE       the same for those in FILE
    python -m benchmarks.predictions --batches 1,16 --networks resnet50 --target bow

FILE is TOML; every [[measurement]] has network, type and batch, one of cycles, milliseconds or
samples_per_second, or only fits = true or false; and perhaps target, partials (float or half), a
table of other options, a table training of loss and optimizer, the source, host = false if
transfers with the host are not part of it, and memory = false if it says nothing about memory.
Figures are those of one replica, and batches are micro-batches.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import mean
from time import process_time
from typing import Any, Final

import onnx

from benchmarks.causes import cause_rows
from benchmarks.eight_bits import in_eight_bits
from popc.compiler import plan_program
from popc.cost import CostReport, OpCost
from popc.reporting.estimation import costs_of
from popc.request import CompileRequest
from popc.target import find_target
from samples.pretraining import TRAINED_NETWORKS
from samples.published import NETWORKS, bert_large_joint

__all__ = [
    "PUBLIC",
    "Measurement",
    "Prediction",
    "deviations",
    "predict",
    "profile_rows",
    "read_measurements",
    "vendor_rows",
    "vertex_rows",
]

_BATCHES: Final = (1, 4, 16, 32, 64, 96)
_TYPES: Final = ("float16", "float32")
_NETWORKS: Final = ("resnet50", "bert_base", "vit_base")
PUBLIC: Final = Path(__file__).with_name("measured.toml")


@dataclass(frozen=True, slots=True)
class Measurement:
    """Somebody's measurement; cycles are those of a batch.

    Attributes:
        cycles: None if they are not known; or the program did not fit.
        fits: Whether the program did; None if that is not known either.
        training: Loss and optimizer, if it is a training step.
        host: Whether cycles include transfers with the host.
    """

    network: str
    type: str
    batch: int
    cycles: float | None
    target: str = "ipu2"
    partials: str = "float"
    fits: bool | None = True
    host: bool = True
    source: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    training: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Prediction:
    """The model's report, and the seconds of a processor that it took."""

    report: CostReport
    seconds: float


@lru_cache(maxsize=1)  # batches of one network follow each other
def _model(network: str, type_: str) -> onnx.ModelProto:
    if type_ == "float8":
        return in_eight_bits(_model(network, "float16"))
    return (NETWORKS | TRAINED_NETWORKS)[network](type_)


def predict(
    network: str,
    type_: str,
    batch: int,
    target: str = "ipu2",
    partials: str = "float",
    others: Mapping[str, Any] | None = None,
    training: Mapping[str, Any] | None = None,
) -> Prediction:
    """The costs of a network of `samples`, or of a step of training it."""
    chosen = {"target": target, "partials_type": partials, "partials_type_matmuls": partials}
    request = CompileRequest.of(
        _model(network, type_),
        options={**chosen, **(others or {})},
        dims={"batch": batch},
        **(training or {}),
    )
    planned = plan_program(request, request.load())
    start = process_time()
    report = costs_of(planned)
    return Prediction(report, process_time() - start)


def read_measurements(path: Path) -> list[Measurement]:
    """The measurements in a file."""
    with path.open("rb") as file:
        rows = tomllib.load(file).get("measurement", [])
    return [_measurement(row) for row in rows]


def _measurement(row: dict[str, Any]) -> Measurement:
    target = row.get("target", "ipu2")
    clock = find_target(target).tile.clock_hz
    cycles: float | None = None
    if "cycles" in row:
        cycles = float(row["cycles"])
    elif "milliseconds" in row:
        cycles = row["milliseconds"] / 1e3 * clock
    elif "samples_per_second" in row:
        cycles = row["batch"] / row["samples_per_second"] * clock
    return Measurement(
        row["network"],
        row["type"],
        row["batch"],
        cycles,
        target,
        row.get("partials", "float"),
        row.get("fits", True) if row.get("memory", True) else None,
        row.get("host", True),
        row.get("source", ""),
        row.get("options", {}),
        row.get("training", {}),
    )


def deviations(measurements: Iterable[Measurement]) -> tuple[list[list[str]], float, int]:
    """A table, the mean absolute deviation of cycles, and how many answers about fit are wrong."""
    table: list[list[str]] = []
    errors: list[float] = []
    wrong = 0
    for measurement in measurements:
        report = predict(
            measurement.network,
            measurement.type,
            measurement.batch,
            measurement.target,
            measurement.partials,
            measurement.options,
            measurement.training,
        ).report
        cycles = (
            report.cycles.total if measurement.host else report.cycles.total - report.cycles.host
        )
        total = cycles * measurement.batch // report.samples  # of one of the batches of a run
        row = [
            measurement.network,
            measurement.type,
            str(measurement.batch),
            f"{total:,}",
            _fit(report.fits),
        ]
        if measurement.cycles is None:
            row += ["-", ""]
        else:
            error = total / measurement.cycles - 1
            errors.append(abs(error))
            row += [f"{measurement.cycles:,.0f}", f"{error:+.1%}"]
        wrong += measurement.fits is not None and report.fits != measurement.fits
        table.append([*row, _fit(measurement.fits), measurement.source])
    return table, mean(errors) if errors else 0.0, wrong


def _fit(fits: bool | None) -> str:  # noqa: FBT001
    return "" if fits is None else "fits" if fits else "no"


# Average bytes of a tile: the first twelve layers of a BERT-Large of PopART, in half precision, for
# rows of 128 tokens (graphcore/popliner, tests/test_popart_bert_inf.py, for 1,472 tiles).
_PROFILE: Final = {
    "vertex_code": 9_664_672 / 1472,
    "vertex_state": 12_826_418 / 1472,
    "exchange_code": 15_544_264 / 1472,
    "control_code": 16_535_740 / 1472,
}


def profile_rows() -> list[list[str]]:
    """Code of twelve layers of BERT: averages of a published profile beside a prediction.

    Both normalisations of a layer are one function there: the rows of a layer add up to its total
    only if they are counted once.
    """
    model = bert_large_joint("float16", layers=12, norms=1)
    options = {"target": "ipu2", "partials_type": "half", "partials_type_matmuls": "half"}
    request = CompileRequest.of(model, options=options, dims={"batch": 1})
    average = costs_of(plan_program(request, request.load())).memory[0].average
    return [
        _row(f"{name} of 12 layers, bytes of a tile", measured, getattr(average, name))
        for name, measured in _PROFILE.items()
    ]


_LAYER: Final = 3
# Cycles of the vertices of that layer, from the profile that measured.toml names.
_VERTICES: Final = {
    "joint.product": 37_277,
    "scores": 8_488,
    "mixed": 12_900,
    "mix.product": 14_153,
    "up.product": 48_248,
    "down.product": 52_187,
}


def vertex_rows() -> list[list[str]]:
    """Vertices of products: a published profile of a vision transformer beside a prediction."""
    report = predict("vit_so400m", "float16", 1, "bow", "half").report
    found = {op.name: sum(_products(op)) for op in report.ops}
    attention = [_products(op) for op in report.ops if op.op_type == "Attention"][_LAYER]
    found |= dict(zip((f"layer{_LAYER}.scores", f"layer{_LAYER}.mixed"), attention, strict=True))
    return [
        _row(f"vertices of a product, {name}, cycles", measured, found[f"layer{_LAYER}.{name}"])
        for name, measured in _VERTICES.items()
    ]


def _products(op: OpCost) -> list[int]:
    """Cycles of each product that an op is made of."""
    return [phase.compute for phase in op.phases if phase.name == "convolve"]


def vendor_rows() -> list[list[str]]:
    """Single figures that are public, beside what the model has for them."""
    ipu2, bow = find_target("ipu2"), find_target("bow")
    peak = ipu2.peak_flops(ipu2.conv.fp16_in_fp16_out_units, 4) / 1e12
    bow_peak = bow.peak_flops(bow.conv.fp16_in_fp16_out_units, 4) / 1e12
    memory = find_target("ipu1").memory_bytes / 2**20
    phase = ipu2.exchange.setup_cycles + ipu2.exchange.sync_cycles
    rows = [
        ("fp16 peak of a GC200, TFLOP/s", 250.0, peak),
        ("fp16 peak of a Bow, TFLOP/s", 350.0, bow_peak),
        ("memory of a GC2, MiB", 304.0, memory),
        (
            "cycles of a transfer of 40 MB to the host",
            6_663_551.0,
            40e6 / ipu2.host_bytes_per_cycle,
        ),
        ("exchange phase without payload, cycles", (237 + 600) / 2, float(phase)),
    ]
    return [_row(*row) for row in rows]


def _row(name: str, public: float, ours: float) -> list[str]:
    return [name, f"{public:,.1f}", f"{ours:,.1f}", f"{ours / public - 1:+.1%}"]


def prediction_rows(
    networks: Sequence[str], batches: Sequence[int], target: str, partials: str
) -> Iterable[list[str]]:
    """A row for every network, type and batch."""
    for network in networks:
        for type_ in _TYPES:
            for batch in batches:
                found = predict(network, type_, batch, target, partials)
                report, chip = found.report, found.report.memory[0]
                yield [
                    network,
                    type_,
                    str(batch),
                    f"{report.cycles.total:,}",
                    f"{report.seconds * 1e3:,.3f} ms",
                    f"{report.throughput:,.0f}/s",
                    f"{chip.peak_bytes:,}",
                    _fit(report.fits),
                    f"{found.seconds:.2f} s",
                ]


def _print(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    for row in table:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Compare predicted with measured costs.")
    parser.add_argument("--measured", type=Path)
    parser.add_argument("--public", dest="measured", action="store_const", const=PUBLIC)
    parser.add_argument("--networks", default=",".join(_NETWORKS))
    parser.add_argument("--batches", default=",".join(map(str, _BATCHES)))
    parser.add_argument("--target", default="ipu2")
    parser.add_argument("--partials", choices=["float", "half"], default="float")
    arguments = parser.parse_args()
    if arguments.measured:
        rows, error, wrong = deviations(read_measurements(arguments.measured))
        header = ["network", "type", "batch", "cycles", "", "measured", "deviation", "", "source"]
        _print(header, rows)
        print(f"mean absolute deviation {error:.1%}; {wrong} wrong answers about memory")
        return
    _print(
        ["figure", "public", "popc", "deviation"],
        [*vendor_rows(), *(_row(*row) for row in cause_rows()), *profile_rows(), *vertex_rows()],
    )
    print()
    header = [
        "network", "type", "batch", "cycles", "time", "samples", "bytes per tile", "", "planned in",
    ]  # fmt: skip
    batches = [int(size) for size in arguments.batches.split(",")]
    networks = arguments.networks.split(",")
    _print(header, prediction_rows(networks, batches, arguments.target, arguments.partials))


if __name__ == "__main__":
    main()
