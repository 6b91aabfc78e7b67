"""Measure training in several processes, and compute what many would take.

    python -m benchmarks.scale [--processes 1,2,4] [--replicas 1000] [--write] [--json FILE]

Needs mpi4py and mpiexec.  A step of a network with four replicas is timed in 1, 2 and 4 processes,
and how much of it is waiting for others and for transfers; two processes send each other messages,
whose latency and bandwidth the model of `benchmarks.scale_model` is given, or those of a network:
--latency-us, --gigabits.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import numpy as np

import popc
import popc_runtime
from benchmarks.scale_model import Network, all_reduce_seconds, simulated_step
from benchmarks.tables import DOCS, write_table
from popc.cli.report import format_table
from popc_runtime.groups import Group, GroupExchange, join
from samples.networks import digits_cnn, digits_mlp

_REPLICAS: Final = 4
_BATCH: Final = 32
_STEPS: Final = 30
_ROUNDS: Final = 200
_LARGE: Final = 8 << 20  # bytes
_STEP_HEADS: Final = (
    "network",
    "processes",
    "ms a step",
    "of it waiting",
    "exchanges",
    "bytes sent",
)
_MESSAGE_HEADS: Final = ("small message, there and back", "large messages", "additions")
_NETWORKS: Final = {"digits_mlp": digits_mlp, "digits_cnn": digits_cnn}


def main() -> None:
    """Measure, or do the work of one process of a measurement."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("--processes", default="1,2,4")
    parser.add_argument("--replicas", type=int, default=1000, help="of the model")
    parser.add_argument("--megabytes", type=float, default=100, help="of gradients, for the model")
    parser.add_argument("--step-ms", type=float, default=100, help="of computing, for the model")
    parser.add_argument("--latency-us", type=float, help="instead of what is measured")
    parser.add_argument("--gigabits", type=float, help="instead of what is measured")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--write", action="store_true", help="what is measured, to docs/scale.md")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        _work(arguments.worker)
        return
    steps, network = _measured([int(word) for word in arguments.processes.split(",")])
    print(_table(steps))
    if arguments.write:
        _write(steps, network)
    if arguments.latency_us:
        network["latency"] = arguments.latency_us * 1e-6
    if arguments.gigabits:
        network["bandwidth"] = arguments.gigabits * 1e9 / 8
    print(", ".join(f"{name} {value:.3g}" for name, value in network.items()))
    rows = _modelled(Network(**network), arguments)
    print(_table(rows))
    if arguments.json:
        figures = {"steps": steps, "network": network, "model": rows}
        arguments.json.write_text(json.dumps(figures, indent=2))


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [[f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()]
             for row in rows]  # fmt: skip
    return format_table([list(rows[0]), *lines])


def _write(steps: Sequence[Mapping[str, Any]], network: Mapping[str, float]) -> None:
    """Put what was measured into the tables of the document."""
    rows, before = [], ""
    for step in steps:
        name = step["network"] if step["network"] != before else ""
        before = step["network"]
        rows.append([
            *(name, str(step["processes"]), f"{step['ms']:.1f}"),
            *(f"{step['share waiting']:.0%}".replace("%", " %"), str(step["exchanges"])),
            f"{step['bytes sent']:,}",
        ])  # fmt: skip
    write_table(DOCS / "scale.md", _STEP_HEADS, rows)
    if network:
        there_and_back = 1e6 * (network["latency"] + network["overhead"])
        rates = [f"{network[name] / 1e9:.2f} GB/s" for name in ("bandwidth", "adding")]
        write_table(DOCS / "scale.md", _MESSAGE_HEADS, [[f"{there_and_back:.0f} us", *rates]])


# -- measuring -------------------------------------------------------------------------------------


def _measured(sizes: list[int]) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Times of steps by network and number of processes; and of messages."""
    mpiexec = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if mpiexec is None:
        sys.exit("there is no mpiexec: pip install mpich, or install an MPI")
    rows: list[dict[str, Any]] = []
    network: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, make in _NETWORKS.items():
            archive = popc.compile(
                make(),
                dims={"batch": _BATCH},
                loss={"type": "cross_entropy", "input": "logits", "label": "label"},
                optimizer={"type": "adam", "learning_rate": 1e-3},
                options={
                    "replicated_graph_count": _REPLICAS,
                    "merge_all_reduce_collectives": True,
                    "prepare_schedule_for_merging_collectives": True,
                },
            ).save(Path(folder) / f"{name}.popx")
            for size in sizes:
                words = [mpiexec, "-n", str(size), sys.executable, "-m", "benchmarks.scale"]
                environment = {**os.environ, "POPC_NUM_THREADS": "1"}
                done = subprocess.run(
                    [*words, "--worker", str(archive)],
                    stdout=subprocess.PIPE, text=True, check=True, env=environment,
                )  # fmt: skip
                found = json.loads(done.stdout)
                rows.append({"network": name, **found["step"]})
                network.update(found["network"])
    return rows, network


def _work(archive: Path) -> None:
    """The work of one process of a measurement; the first one prints the figures."""
    with join() as group:
        executable = popc_runtime.load(archive, group=group)
        rng = np.random.default_rng(0)
        feeds = {
            spec.name: rng.random(spec.shape, np.float32)
            if spec.dtype.is_float
            else rng.integers(0, 10, spec.shape, spec.dtype.storage)
            for spec in executable.inputs
        }
        executable.run(feeds)
        seconds, waits = [], []
        before = group.exchanges, group.sent_bytes
        for _ in range(_STEPS):
            start, waited = perf_counter(), group.waiting_ns
            executable.run(feeds)
            seconds.append(perf_counter() - start)
            waits.append((group.waiting_ns - waited) / 1e9)
        step = {
            "processes": group.size,
            "ms": 1e3 * median(seconds),
            "ms waiting": 1e3 * median(waits),
            "share waiting": sum(waits) / sum(seconds),
            "exchanges": (group.exchanges - before[0]) // _STEPS,
            "bytes sent": (group.sent_bytes - before[1]) // _STEPS,
        }
        network = _messages(group) if group.size == 2 else {}
        if group.rank == 0:
            print(json.dumps({"step": step, "network": network}))


def _messages(group: Group) -> dict[str, float]:
    """Latency, overhead and bandwidth of messages between two processes, in seconds and bytes."""

    def seconds(nbytes: int, rounds: int) -> float:
        exchange = GroupExchange(group, f"{nbytes} bytes", [nbytes] * 2, [nbytes] * 2)
        times = []
        for _ in range(rounds):
            start = perf_counter()
            exchange.run()
            times.append(perf_counter() - start)
        return median(times)

    small = seconds(8, _ROUNDS)
    large = seconds(_LARGE, 10)
    a, b = np.ones(_LARGE // 4, np.float32), np.ones(_LARGE // 4, np.float32)
    start = perf_counter()
    for _ in range(10):
        np.add(a, b, out=a)
    adding = 10 * a.nbytes / (perf_counter() - start)
    bandwidth = _LARGE / max(large - small, 1e-9)
    # How a small message's time divides is not seen from outside: half and half.
    return {
        "latency": small / 2,
        "overhead": small / 2,
        "bandwidth": bandwidth,
        "adding": adding,
    }


# -- the model -------------------------------------------------------------------------------------


def _modelled(network: Network, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Steps of more and more processes with one replica each, by formula and by simulation."""
    nbytes, compute = arguments.megabytes * 1e6, arguments.step_ms / 1e3
    rows = []
    for size in (1, 10, 100, arguments.replicas):
        spread = [float(factor) for factor in np.random.default_rng(0).normal(1, 0.02, size)]
        formula = all_reduce_seconds(network, size, 1, nbytes)
        even, _ = simulated_step(network, size, 1, [nbytes], lambda _: 0.0)
        seconds = [compute * factor for factor in spread]
        step, waits = simulated_step(network, size, 1, [nbytes], seconds.__getitem__)
        rows.append(
            {
                "replicas": size,
                "all-reduce ms": 1e3 * formula,
                "simulated ms": 1e3 * even,
                "step ms": 1e3 * step,
                "share waiting": waits / step,
                "efficiency": compute / step,
            }
        )
    return rows


if __name__ == "__main__":
    main()
