"""Speed of programs: models beside onnxruntime, and what the engine adds to numpy."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import popc_runtime
from benchmarks.rivals import THREADS, onnxruntime_turn, openvino_turn
from benchmarks.subjects import Subject, synthetic, tiny_additions, trained
from benchmarks.timing import compare_times, geometric_mean
from popc_runtime.format import Array

__all__ = ["measure_overhead", "measure_speed", "measure_threads"]

_ADDITIONS = 1000


def measure_speed(*, quick: bool) -> list[dict[str, Any]]:
    """Milliseconds per run of each model, and geometric means of the ratios."""
    rows = _rows(trained(), quick=quick)
    others = _rows(synthetic(quick=quick), quick=quick)
    return [*rows, *_mean("trained models", rows), *others, *_mean("synthetic models", others)]


def _rows(subjects: Iterable[Subject], *, quick: bool) -> list[dict[str, Any]]:
    return [_row(subject, rounds=3 if quick else 7) for subject in subjects]


def _row(subject: Subject, rounds: int) -> dict[str, Any]:
    turns = [_popc(subject), onnxruntime_turn(subject)]
    second = openvino_turn(subject)
    if second is not None:
        turns.append(second)
    ours, theirs, *others = compare_times(turns, rounds=rounds, seconds=0.15)
    row = {
        "model": subject.name,
        "popc ms": 1e3 * ours.median,
        "onnxruntime ms": 1e3 * theirs.median,
        "ratio": ours.median / theirs.median,
        "best popc ms": 1e3 * ours.best,
        "best onnxruntime ms": 1e3 * theirs.best,
        "best ratio": ours.best / theirs.best,
    }
    for other in others:
        row |= {"openvino ms": 1e3 * other.median, "ratio to openvino": ours.median / other.median}
    return row


def _mean(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not rows:
        return []
    ratios = {
        key: [row[key] for row in rows if key in row]
        for key in ("ratio", "best ratio", "ratio to openvino")
    }
    means = {key: geometric_mean(found) for key, found in ratios.items() if found}
    return [{"model": f"mean of {name}", **means}]


def _popc(subject: Subject) -> Callable[[], object]:
    return partial(_executable(subject).run, subject.feeds)


def _executable(subject: Subject, threads: int | None = None) -> popc_runtime.Executable:
    with tempfile.TemporaryDirectory() as folder:
        path = subject.compile().save(Path(folder) / "model.popx")
        return popc_runtime.load(path, threads=threads)


def measure_threads(*, quick: bool) -> list[dict[str, Any]]:
    """The gain of each model from a second thread, in both engines."""
    rows: list[dict[str, Any]] = []
    for subject in (*trained(), *synthetic(quick=quick)):
        turns: list[Callable[[], object]] = [
            *(partial(_executable(subject, count).run, subject.feeds) for count in (1, THREADS)),
            *(onnxruntime_turn(subject, count) for count in (1, THREADS)),
        ]
        one, two, *theirs = compare_times(turns, rounds=3 if quick else 7, seconds=0.1)
        rows.append(
            {
                "model": subject.name,
                "1 thread ms": 1e3 * one.median,
                "2 threads ms": 1e3 * two.median,
                "gain": one.median / two.median,
                "gain of onnxruntime": theirs[0].median / theirs[1].median,
                "ratio on 1 thread": one.median / theirs[0].median,
            }
        )
    return rows


def measure_overhead(*, quick: bool) -> list[dict[str, Any]]:
    """A program of many tiny additions beside the same numpy calls in a bare loop."""
    x = np.ones((1, 8), np.float32)
    executable = _executable(Subject("additions", tiny_additions(_ADDITIONS), {"x": x}))
    turns: list[Callable[[], object]] = [
        partial(executable.run, {"x": x}),
        partial(_call_all, _additions(x)),
    ]
    program, bare = compare_times(turns, rounds=3 if quick else 15, seconds=0.1)
    return [
        {
            "instructions": _ADDITIONS,
            "program us": 1e6 * program.best,
            "numpy calls us": 1e6 * bare.best,
            "ns per instruction": 1e9 * program.best / _ADDITIONS,
        }
    ]


def _additions(x: Array) -> list[Callable[[], object]]:
    # Two buffers in turns: the compiler's plan touches as little memory.
    results = [np.empty_like(x), np.empty_like(x)] * (_ADDITIONS // 2)
    constants = [np.full(8, 1 + i / 1000, np.float32) for i in range(_ADDITIONS)]
    return [
        partial(np.add, source, constant, out=result)
        for source, constant, result in zip([x, *results], constants, results, strict=False)
    ]


def _call_all(calls: list[Callable[[], object]]) -> None:
    for call in calls:
        call()
