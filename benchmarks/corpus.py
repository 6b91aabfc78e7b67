"""Compile a folder of exported models, compare results with onnxruntime's, and measure both.

    python -m benchmarks.corpus FOLDER [--only TEXT] [--rounds N] [--again N] [--threads N]
        [--json FILE]

FOLDER holds NAME.onnx and NAME.npz (the inputs), as `tools.network_exports` and
`tools.classical_exports` write them.  A model that onnxruntime does not run is left out.

Means are of the first measurement of each model.  One by which popc is slower is measured again
when all others have been, so that what another process did meanwhile is told from what is so.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime

import popc
import popc_runtime
from benchmarks.rivals import THREADS, onnxruntime_turn
from benchmarks.subjects import Subject
from benchmarks.timing import compare_times, geometric_mean
from popc.cli.report import format_table

_TOLERANCES: Final = {"halves": 2e-2, "dynamic": 3e-2, "static": 3e-2}
"""Tolerances of results, as parts of the largest one; 1e-3 for other forms.

Half-precision rounds once in a thousand, and onnxruntime computes in other precisions between; a
float near the middle of two bytes may become either.
"""

_CLASSES: Final = (
    ("above 0.2 ms", 0.2, 1e9),
    ("0.05 to 0.2 ms", 0.05, 0.2),
    ("below 0.05 ms", 0, 0.05),
)


def main() -> None:
    """Print a row for each model, and means by how long onnxruntime takes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.corpus")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", metavar="TEXT", help="names that hold TEXT")
    parser.add_argument("--rounds", type=int, default=3, help="of both engines; 0: do not measure")
    parser.add_argument("--again", type=int, default=2, help="measurements of what is slower")
    parser.add_argument("--threads", type=int, default=THREADS, help="of both engines")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    arguments = parser.parse_args()
    rows = []
    for path in sorted(arguments.folder.glob("*.onnx")):
        if arguments.only not in path.name:
            continue
        row = _row(path, arguments.rounds, arguments.threads)
        rows.append(row)
        print(_line(row), flush=True)
    slower = [row for row in rows if row.get("ratio", 0) > 1]
    for row in slower:
        path = arguments.folder / f"{row['model']}.onnx"
        row["again"] = [
            _ratio_again(path, arguments.rounds, arguments.threads) for _ in range(arguments.again)
        ]
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    print()
    print(
        ", ".join(
            f"{count} {state}" for state, count in Counter(row["state"] for row in rows).items()
        )
    )
    print(format_table([["", "models", "ratio", "worst", ""], *_means(rows)], right=(1, 2, 3)))
    always = [row for row in slower if min(row["again"], default=2.0) > 1]
    print(f"slower in all {1 + arguments.again} measurements: {len(always)}")
    for row in always:
        ratios = (f"{ratio:.2f}" for ratio in (row["ratio"], *row["again"]))
        print(f"  {row['model']:36}{' '.join(ratios)}")


def _subject(path: Path) -> Subject:
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as file:
        feeds = dict(file)
    return Subject(path.stem, path, feeds, {name: list(x.shape) for name, x in feeds.items()})


def _row(path: Path, rounds: int, threads: int) -> dict[str, Any]:
    subject = _subject(path)
    feeds = subject.feeds
    row: dict[str, Any] = {"model": path.stem, "state": "agrees"}
    try:
        session = _exact_session(path)
        expected = session.run(None, feeds)
    except Exception as error:  # noqa: BLE001 - its classes have no base of their own
        return row | {"state": "not run by onnxruntime", "note": _first_line(error)}
    try:
        executable = _executable(subject, threads)
    except popc.PopcError as error:
        return row | {"state": "refused", "note": _first_line(error)}
    names = [output.name for output in session.get_outputs()]
    found = executable.run(feeds)
    row["error"] = max(map(_error, (found[name] for name in names), expected), default=0.0)
    if not row["error"] <= _TOLERANCES.get(path.stem.rpartition(".")[2], 1e-3):
        row["state"] = "differs"
    if rounds:
        ours, theirs = _times(subject, executable, rounds, threads)
        row |= {"popc ms": ours, "onnxruntime ms": theirs, "ratio": ours / theirs}
    return row


def _times(
    subject: Subject, executable: popc_runtime.Executable, rounds: int, threads: int
) -> tuple[float, float]:
    """Milliseconds of a run of popc and of onnxruntime, medians."""
    turns: list[Callable[[], object]] = [
        partial(executable.run, subject.feeds),
        onnxruntime_turn(subject, threads),
    ]
    ours, theirs = compare_times(turns, rounds=rounds, seconds=0.05)
    return 1e3 * ours.median, 1e3 * theirs.median


def _ratio_again(path: Path, rounds: int, threads: int) -> float:
    subject = _subject(path)
    ours, theirs = _times(subject, _executable(subject, threads), rounds, threads)
    return ours / theirs


def _exact_session(path: Path) -> onnxruntime.InferenceSession:
    """A session whose products of bytes do not saturate, as the fastest ones do without VNNI.

    Weights that several nodes share are too much for that mode: then one without rewrites, which
    computes models of the form "static" in floats.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", "1")
    providers = ["CPUExecutionProvider"]
    try:
        return onnxruntime.InferenceSession(path, options, providers=providers)
    except Exception:  # noqa: BLE001 - its classes have no base of their own
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return onnxruntime.InferenceSession(path, options, providers=providers)


def _executable(subject: Subject, threads: int) -> popc_runtime.Executable:
    with tempfile.TemporaryDirectory() as folder:
        path = subject.compile().save(Path(folder) / "model.popx")
        return popc_runtime.load(path, threads=threads)


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _error(found: Any, expected: Any) -> float:
    """The largest difference, as part of the largest expected number; of words, 0 or infinite."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return float("inf")
    if not expected.size:
        return 0.0
    if expected.dtype.kind not in "fiub":
        return 0.0 if np.array_equal(found, expected) else float("inf")
    a, b = found.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.abs(a - b)[finite].max() / (np.abs(b[finite]).max() + 1e-6))


def _line(row: dict[str, Any]) -> str:
    parts = [f"{row['model']:36}", f"{row['state']:8}"]
    if "error" in row:
        parts.append(f"error {row['error']:.1e}")
    if "ratio" in row:
        parts.append(
            f"{row['popc ms']:8.3f} / {row['onnxruntime ms']:8.3f} ms = {row['ratio']:.2f}"
        )
    return "  ".join([*parts, row.get("note", "")]).rstrip()


def _means(rows: Sequence[dict[str, Any]]) -> Iterator[list[str]]:
    for title, least, most in _CLASSES:
        chosen = [row for row in rows if "ratio" in row and least <= row["onnxruntime ms"] < most]
        if chosen:
            worst = max(chosen, key=lambda row: float(row["ratio"]))
            mean = geometric_mean([row["ratio"] for row in chosen])
            yield [title, str(len(chosen)), f"{mean:.2f}", f"{worst['ratio']:.2f}", worst["model"]]


if __name__ == "__main__":
    main()
