"""Measurements in processes of their own: start-up, compile time, peak memory, sizes."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from sysconfig import get_path
from typing import Any

import numpy as np
import zstandard

from benchmarks.random_orders import make_model
from benchmarks.subjects import Subject, branching, trained
from popc_runtime.native import find_library

__all__ = [
    "installed_python",
    "measure_compilation",
    "measure_curve",
    "measure_loading",
    "measure_startup",
    "spent",
]

_ROOT = Path(__file__).resolve().parents[1]
_FEEDS = "import sys, numpy; x = dict(numpy.load(sys.argv[2]))\n"
_POPC = _FEEDS + "import popc_runtime; popc_runtime.load(sys.argv[1]).run(x)"
_ONNXRUNTIME = _FEEDS + "import onnxruntime; onnxruntime.InferenceSession(sys.argv[1]).run(None, x)"
_BUFFERS = """
import sys
x = {path.rpartition("/")[2]: open(path, "rb").read() for path in sys.argv[2:]}
import popc_runtime
popc_runtime.load(sys.argv[1]).run_buffers(x)
assert "numpy" not in sys.modules
"""
_STARTED = ("vad", "magika", "orientation")  # and all others, unless it has to be quick
# Peak memory is read from /proc where there is one: after a fork, ru_maxrss begins with the size
# of the parent.
_PEAK = """
try:
    lines = open("/proc/self/status").read().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
except OSError:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
"""
_COMPILE = """
import json, sys, time
start = time.process_time()
import popc
imported = time.process_time()
archive = popc.compile(sys.argv[1], **json.loads(sys.argv[3]))
compiled = time.process_time()
archive.save(sys.argv[2], force=True)
saved = time.process_time()
{peak}
print(json.dumps([imported - start, compiled - imported, saved - compiled, 1024 * peak]))
"""
_LOAD = """
import json, sys, time, numpy
feeds = dict(numpy.load(sys.argv[2]))
import {}
start = time.perf_counter()
{}
loaded = time.perf_counter()
{}
print(json.dumps([loaded - start, 1024 * peak]))
"""
_LOAD_POPC = _LOAD.format(
    "popc_runtime",
    "model = popc_runtime.load(sys.argv[1], threads=2); model.run(feeds)",
    _PEAK,
)
_LOAD_ONNXRUNTIME = _LOAD.format(
    "onnxruntime",
    """options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.log_severity_level = 2, 3
session = onnxruntime.InferenceSession(sys.argv[1], options)
session.run(None, feeds)""",
    _PEAK,
)


def measure_startup(*, quick: bool) -> list[dict[str, Any]]:
    """From nothing to the first result of small trained models, in turns.

    Packages are found as wheels install them, see `installed_python`.  Inputs are numpy arrays, so
    that a process which only imports numpy is the least there is; or files, read into plain memory,
    which popc-runtime takes without numpy.
    """
    rows: list[dict[str, Any]] = []
    for subject in trained(_STARTED) if quick else trained():
        with tempfile.TemporaryDirectory() as folder:
            rows += _started(subject, Path(folder), 4 if quick else 11)
    return rows


def _started(subject: Subject, folder: Path, turns: int) -> Iterator[dict[str, Any]]:
    feeds, all_feeds = folder / "feeds.npz", folder / "all.npz"
    bound = {name: np.asarray(value) for name, value in subject.bind.items()}
    np.savez(feeds, allow_pickle=False, **subject.feeds)
    np.savez(all_feeds, allow_pickle=False, **subject.feeds, **bound)
    plain = []
    for name, value in subject.feeds.items():
        plain.append(str(folder / name))
        Path(plain[-1]).write_bytes(np.ascontiguousarray(value).tobytes())
    processes = {
        "python alone": ("", []),
        "numpy alone": (_FEEDS, [str(feeds), str(feeds)]),
        "onnxruntime": (_ONNXRUNTIME, [str(subject.model), str(all_feeds)]),
    }
    for weights in ("compressed", "mmap"):
        path = str(subject.compile(weights=weights).save(folder / f"{weights}.popx"))
        processes[f"popc-runtime, weights {weights}"] = (_POPC, [path, str(feeds)])
        if find_library() is not None:
            processes[f"popc-runtime without numpy, weights {weights}"] = (_BUFFERS, [path, *plain])
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in processes}
    for _ in range(turns):
        for name, (code, arguments) in processes.items():
            start = time.perf_counter(), spent()
            installed_python(code, *arguments)
            times[name].append((time.perf_counter() - start[0], spent() - start[1]))
    # The first of each finds the files not yet in memory.
    middle = {
        name: [1e3 * median(column) for column in zip(*each[1:], strict=True)]
        for name, each in times.items()
    }
    theirs = middle["onnxruntime"]
    for name, (ms, used) in middle.items():
        yield {
            "model": subject.name,
            "process": name,
            "ms": ms,
            "ratio": ms / theirs[0],
            "processor ms": used,
            "of onnxruntime's": used / theirs[1],
        }


def spent() -> float:
    """Seconds that processes which have ended took of all processors: less noisy than the clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_loading(*, quick: bool) -> list[dict[str, Any]]:
    """Milliseconds from the file to the first result, and peak memory, of both in turns."""
    rows: list[dict[str, Any]] = []
    for subject in trained():
        with tempfile.TemporaryDirectory() as folder:
            path = subject.compile().save(Path(folder) / "model.popx")
            feeds, all_feeds = Path(folder) / "feeds.npz", Path(folder) / "all.npz"
            bound = {name: np.asarray(value) for name, value in subject.bind.items()}
            np.savez(feeds, allow_pickle=False, **subject.feeds)
            np.savez(all_feeds, allow_pickle=False, **subject.feeds, **bound)
            turns = (
                (_LOAD_POPC, str(path), str(feeds)),
                (_LOAD_ONNXRUNTIME, str(subject.model), str(all_feeds)),
            )
            found: list[list[list[float]]] = [[], []]
            for _ in range(2 if quick else 6):
                for turn, figures in zip(turns, found, strict=True):
                    figures.append(json.loads(_python(*turn)))
        # The first of each finds the files not yet in memory.
        (ours, our_peak), (theirs, their_peak) = (np.median(runs[1:], axis=0) for runs in found)
        rows.append(
            {
                "model": subject.name,
                "popc ms": 1e3 * ours,
                "onnxruntime ms": 1e3 * theirs,
                "ratio": ours / theirs,
                "popc peak MB": our_peak / 1e6,
                "onnxruntime peak MB": their_peak / 1e6,
                "memory ratio": our_peak / their_peak,
            }
        )
    return rows


def measure_compilation(*, quick: bool) -> list[dict[str, Any]]:
    """Compile time, peak memory and archive size of every trained model."""
    return list(_compilations(quick=quick))


def _compilations(*, quick: bool) -> Iterator[dict[str, Any]]:
    for subject in trained():
        assert isinstance(subject.model, Path), "trained models are files"
        keywords = {"shapes": subject.shapes, "bind": subject.bind}
        seconds, peak, size = _compile(subject.model, keywords)
        data = subject.model.read_bytes()
        row = {
            "model": subject.name,
            "compile s": seconds[1],
            "with import and save s": sum(seconds),
            "model MB": len(data) / 1e6,
            "peak MB": peak / 1e6,
            "allowed MB": 3 * len(data) / 1e6 + 200,
            "archive MB": size / 1e6,
        }
        if not quick:
            packed = len(zstandard.ZstdCompressor(level=19).compress(data))
            row |= {"zstd -19 MB": packed / 1e6, "archive ratio": size / packed}
        yield row


def measure_curve(*, quick: bool) -> list[dict[str, Any]]:
    """Compile time of synthetic graphs of growing size, of one core."""
    makers: dict[str, Callable[[int], bytes]] = {"branching": branching}
    for family in ("chain", "transformer", "layered", "series_parallel", "scattered", "tree"):
        makers[family] = partial(make_model, family, seed=0)
    return [
        _point(family, make(count), count)
        for count in ((1000, 5000) if quick else (1000, 5000, 20_000, 100_000))
        for family, make in makers.items()
    ]


def _point(family: str, model: bytes, count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(model)
        seconds, peak, _ = _compile(path, {})
    return {
        "graph": family,
        "ops": count,
        "compile s": seconds[1],
        "us per op": 1e6 * seconds[1] / count,
        "peak MB": peak / 1e6,
    }


def _compile(model: Path, keywords: dict[str, Any]) -> tuple[list[float], int, int]:
    """Seconds of processors to import, compile and save; peak bytes in memory; the archive's."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.popx"
        *seconds, peak = json.loads(
            _python(_COMPILE.format(peak=_PEAK), str(model), str(path), json.dumps(keywords))
        )
        return seconds, int(peak), path.stat().st_size


def _python(code: str, *arguments: str) -> str:
    return _run("-c", code, *arguments)


def installed_python(code: str, *arguments: str) -> None:
    """Run a program without the links of editable installs, which cost a process milliseconds.

    They are what `site` reads at the start of a process; packages are found on the path instead.
    """
    places = (str(_ROOT / "runtime"), get_path("platlib"))
    _run("-S", "-c", f"import site\n{code}", *arguments, PYTHONPATH=os.pathsep.join(places))


def _run(*arguments: str, **variables: str) -> str:
    # Compiled modules are kept, as they are for an installed package.
    environment = {**os.environ, **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env=environment,
    )
    return done.stdout
