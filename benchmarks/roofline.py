"""The share of convolutions and products in what bounds them: what a processor could do at most.

    python -m benchmarks.roofline MODEL... [--threads N] [--json FILE]

A program in C (`peak.c`, compiled here) measures how many products and sums of float32 one core
makes in a second, and how many bytes it reads: of as many as the program has, so that they come
from the same cache.  An instruction takes at least the longer one of both times, and its share is
that part of the time that it took.  Winograd's algorithm makes fewer products: it may exceed 1.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

import popc
import popc_runtime
from popc.cli.report import format_table
from popc.inputs.arrays import random_inputs
from popc_runtime.format import MAIN_PROGRAM, ArchiveFile, Array, Instruction, Slot, decode_program

_PEAK: Final = Path(__file__).with_name("peak.c")
_PROFILES: Final = 50
_INPUTS: Final = {"Conv": 2, "ConvTranspose": 2, "MatMul": 2, "Gemm": 2}
"""Instructions that are shown, and how many of their operands are multiplied."""


@dataclass(frozen=True)
class Peak:
    """Peaks of a number of cores, per second."""

    flops: float
    bytes: float

    def bound(self, work: Work) -> tuple[float, str]:
        """The least time, and what takes it."""
        by_sums, by_reads = work.flops / self.flops, work.bytes / self.bytes
        return max((by_sums, "products"), (by_reads, "memory"))


@dataclass(frozen=True)
class Work:
    """The work of an instruction: products and sums, and bytes that it reads and writes."""

    name: str
    flops: float
    bytes: float


def main() -> None:
    """Print a row for each convolution and product of each model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roofline")
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL", help="ONNX or archive")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    arguments = parser.parse_args()
    rows = [row for path in arguments.models for row in _rows(path, arguments.threads)]
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if rows:
        cells = [[_cell(value) for value in row.values()] for row in rows]
        print(format_table([list(rows[0]), *cells], right=(2, 3, 4, 5, 7)))


def measure_peak(of_bytes: int, threads: int = 1) -> Peak:
    """Peaks where ``of_bytes`` are read again and again.

    Threads count as cores that share nothing, which memory is not: then the bound is too low.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        sys.exit("the roofline needs a C compiler, cc, which is not there: install one")
    flags = ["-O3", "-march=native", "-ffp-contract=fast"]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "peak"
        subprocess.run([compiler, *flags, str(_PEAK), "-o", str(program)], check=True)
        command = [str(program), str(of_bytes)]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    flops, read = map(float, text.split())
    return Peak(threads * flops, threads * read)


def work_of(instruction: Instruction, slots: Sequence[Slot]) -> Work:
    """The work of a convolution or product: that of windows within the image, padding too."""
    operands = [slots[i] for i in (*instruction.inputs, *instruction.outputs) if i >= 0]
    x, w = (slots[i] for i in instruction.inputs[: _INPUTS[instruction.opcode]])
    y = slots[instruction.outputs[0]]
    if instruction.opcode == "Conv":
        products = prod(y.shape) * prod(w.shape[1:])
    elif instruction.opcode == "ConvTranspose":
        products = prod(x.shape) * prod(w.shape[1:])
    else:
        inner = -2 if instruction.attributes.get("transA") else -1
        products = prod(y.shape) * x.shape[inner]
    name = " ".join("x".join(map(str, slot.shape)) for slot in (x, w, y))
    moved = sum(slot.dtype.itemsize * prod(slot.shape) for slot in operands)
    return Work(name, 2.0 * products, float(moved))


def _rows(path: Path, threads: int) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        archive, feeds = path, _feeds(path)
        if path.suffix == ".onnx":
            shapes = {name: list(value.shape) for name, value in feeds.items()}
            archive = popc.compile(path, shapes=shapes).save(Path(folder) / "model.popx")
        with ArchiveFile.open(archive) as file:
            image = decode_program(file.read("program"))
        executable = popc_runtime.load(archive, threads=threads)
        seconds = _seconds(executable, feeds or random_inputs(executable, ()))
    peak = measure_peak(image.constant_bytes + image.arena_bytes, threads)
    for item in image.programs[MAIN_PROGRAM]:
        if isinstance(item, Instruction) and item.opcode in _INPUTS:
            work, spent = work_of(item, image.slots), seconds[item.opcode, item.name].pop(0)
            bound, by = peak.bound(work)
            yield {
                "model": path.stem,
                "instruction": f"{item.opcode} {work.name}",
                "MFLOP": work.flops / 1e6,
                "kB": work.bytes / 1e3,
                "us": 1e6 * spent,
                "GFLOP/s": work.flops / spent / 1e9,
                "bound by": by,
                "share": bound / spent,
            }


def _feeds(path: Path) -> dict[str, Array]:
    """Inputs that lie beside the model, as `benchmarks.corpus` has them."""
    file = path.with_suffix(".npz")
    if not file.exists():
        return {}
    with np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def _seconds(
    executable: popc_runtime.Executable, feeds: dict[str, Array]
) -> dict[tuple[str, str], list[float]]:
    """The best times of the instructions of each opcode and name, in their order."""
    runs = [executable.profile(feeds) for _ in range(_PROFILES)]
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for steps in zip(*runs, strict=True):
        best = min(step.seconds for step in steps)
        found[steps[0].opcode, steps[0].name].append(best)
    return found


def _cell(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
