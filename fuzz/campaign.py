"""Fuzz all targets: python -m fuzz.campaign FOLDER --minutes 10 --jobs 2.

FOLDER holds what `make fuzz` has put there: native targets in native/, seeds in corpus/.  What new
inputs reach is kept in found/TARGET/, inputs that end badly in findings/; a later campaign goes on
from there.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fuzz.targets import TARGETS

__all__ = ["main"]

_NATIVE: Final = ("kernels", "programs")
_STATISTIC: Final = re.compile(r"^stat::(\w+):\s+(\d+)", re.MULTILINE)
_COVERED: Final = re.compile(r" cov: (\d+) ")
# Numbers of an input may be taken for addresses: fuzz/native/kernels.c looks at what they lead to.
_FAULTS: Final = "handle_segv=0:handle_sigbus=0:allow_user_segv_handler=1:detect_leaks=0"


@dataclass(frozen=True)
class _Outcome:
    name: str
    executions: int
    per_second: int
    edges: int
    findings: int


def main(arguments: list[str]) -> int:
    """Run the campaign, and print what each target did; 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(arguments)
    names = (*TARGETS, *_NATIVE)
    seconds = max(1, round(60 * given.minutes * given.jobs / len(names)))
    with ThreadPoolExecutor(given.jobs) as jobs:
        outcomes = list(jobs.map(lambda name: _fuzz(given.folder, name, seconds), names))
    print(f"{'target':10} {'executions':>12} {'a second':>9} {'edges':>7} {'findings':>8}")
    for each in outcomes:
        print(
            f"{each.name:10} {each.executions:12,} {each.per_second:9,} {each.edges:7,} "
            f"{each.findings:8}"
        )
    return 1 if any(each.findings for each in outcomes) else 0


def _fuzz(folder: Path, name: str, seconds: int) -> _Outcome:
    found, findings = folder / "found" / name, folder / "findings"
    found.mkdir(parents=True, exist_ok=True)
    findings.mkdir(exist_ok=True)
    before = {*findings.iterdir()}
    native = name in _NATIVE
    command = [str(folder / "native" / name)] if native else [sys.executable, "-m", "fuzz", name]
    command += [
        *(f"-max_total_time={seconds}", "-print_final_stats=1", "-timeout=60"),
        *("-rss_limit_mb=6000", "-handle_segv=0", "-handle_bus=0", "-detect_leaks=0"),
        *(f"-artifact_prefix={findings}/{name}-", str(found), str(folder / "corpus" / name)),
    ]
    environment = {**os.environ, "ASAN_OPTIONS": _FAULTS} if native else None
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    statistics = dict(_STATISTIC.findall(run.stderr))
    new = len({*findings.iterdir()} - before) or int(run.returncode != 0)
    if new:
        print(f"{name} ended with {run.returncode}:\n{run.stderr[-3000:]}")
    return _Outcome(
        name,
        int(statistics.get("number_of_executed_units", 0)),
        int(statistics.get("average_exec_per_sec", 0)),
        int((_COVERED.findall(run.stderr) or ["0"])[-1]),
        new,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
