"""All tests of native kernels on libraries that watch memory, undefined behaviour and threads."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from runpy import run_path

import pytest

from popc_runtime.native import variants

_RUNTIME = Path(__file__).parents[2] / "runtime"
_SOURCES = _RUNTIME / "csrc"
_SETUP = run_path(str(_RUNTIME / "setup.py"))
_VARIANTS = _SETUP["VARIANTS"].get(platform.machine(), {})
# The last of several -O counts.
_WATCHED = ["-fPIC", "-g", "-O1", "-fno-omit-frame-pointer"]
# Python itself keeps memory until the end, and reads freed memory of its own allocator.  Sizes that
# no memory holds are refused by whoever asks for them, as without a sanitizer.
_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "PYTHONMALLOC": "malloc",
    "OPENBLAS_NUM_THREADS": "1",
}
# What was built without the sanitizer synchronises in ways that it cannot see.
_SUPPRESSED = "called_from_lib:libscipy_openblas\ncalled_from_lib:_multiarray_umath\n"
# These run other processes, with a library of their own; of what sanitizers know of threads
# nothing survives a fork.
_ALONE = "not fork and not pool_hands and not sanitizer and not valgrind"
# The same code on more operands than it takes minutes for: they are tried without a sanitizer.
_MANY = "not many_other_sizes and not test_more_"
# A sanitizer of threads has nothing to watch where one thread runs: hostile records are tried on
# one, in forked children.  The slow tests run the kernels of the others on more operands.
_ONE_THREAD = ["--ignore-glob=*/test_hostile_*.py", "-m", "not slow"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc"),
    pytest.mark.skipif(not variants(), reason="there are no kernels for this processor"),
]


def _compile(source: Path, target: Path, flags: list[str]) -> Path:
    command = ["gcc", *_SETUP["FLAGS"], *flags, "-c", str(source), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


def _build(folder: Path, sanitizers: str) -> Path:
    watched = [*_WATCHED, f"-fsanitize={sanitizers}"]
    python = [*watched, f"-I{sysconfig.get_paths()['include']}"]
    jobs = [
        partial(_compile, _SOURCES / f"{name}.c", folder / f"{name}.o", python)
        for name in _SETUP["CORE"]
    ]
    # The module refers to all kinds of kernels, whatever this processor is.
    for name, chosen in _VARIANTS.items():
        flags = [*_SETUP["FAST"], *watched, *chosen, f"-DPOPC_ISA={name}"]
        jobs += [
            partial(_compile, source, folder / f"{source.stem}_{name}.o", flags)
            for source in sorted((_SOURCES / "kernels").rglob("*.c"))
        ]
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(lambda job: str(job()), jobs))
    library = folder / "_native.so"
    linked = ["gcc", "-shared", "-pthread", f"-fsanitize={sanitizers}", *objects, "-lm"]
    subprocess.run([*linked, "-o", str(library)], check=True)
    return library


def _preloaded(name: str) -> str:
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


@pytest.mark.parametrize(
    ("sanitizers", "runtime", "without"),
    [("address,undefined", "libasan.so", []), ("thread", "libtsan.so", _ONE_THREAD)],
)
def test_kernels_under_a_sanitizer(
    tmp_path: Path, sanitizers: str, runtime: str, without: list[str]
) -> None:
    library = _build(tmp_path, sanitizers)
    suppressions = tmp_path / "suppressions"
    suppressions.write_text(_SUPPRESSED)
    environment = {
        **os.environ,
        **_ENVIRONMENT,
        "TSAN_OPTIONS": f"halt_on_error=1:suppressions={suppressions}",
        # onnx throws exceptions of C++, which the runtime has to know.
        "LD_PRELOAD": " ".join(map(_preloaded, (runtime, "libstdc++.so"))),
    }
    tests = ["tests/native", "-k", f"{_ALONE} and {_MANY}", *without]
    done = subprocess.run(
        [sys.executable, "-m", "tests.native.sanitized", str(library), *tests],
        env=environment,
        cwd=_RUNTIME.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    report = done.stdout[-4000:] + done.stderr[-8000:]
    assert done.returncode == 0, report
    assert "SUMMARY: " not in done.stderr, report  # the end of what sanitizers complain about
