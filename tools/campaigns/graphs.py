"""Random models against onnxruntime: what popc computes, refuses or fails on.

python -m tools.campaigns.graphs --count 20000 --seed 0 --jobs 2

Each seed is a model, inputs and options: the same in every run.  A model is compiled with default
options and with drawn ones, and run on both engines; results may differ from those of onnxruntime
without optimisations by as much as follows from what is computed.  With --small they are models of
a few nodes, each compiled once, so that there can be many.  What goes wrong is made smaller and
written into a folder of its own under --out: the model, its inputs and the options.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tools.campaigns.random_models.campaign import Outcome, check_seed, reproduce, write_finding
from tools.campaigns.random_models.trial import Finding

__all__ = ["main"]

_SECONDS = 120.0  # of a processor, that a seed may take, shrinking included


@dataclass
class _Worker:
    """A process that is given one seed after the other."""

    process: Any
    pipe: Connection
    seed: int = -1
    since: float = 0.0

    def used(self) -> float:
        """Seconds of a processor so far, where Linux tells them: others may want it more."""
        try:
            text = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        except OSError:
            return time.monotonic()
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@dataclass
class _Tally:
    counts: Counter[str] = field(default_factory=Counter[str])
    operators: Counter[str] = field(default_factory=Counter[str])


def _serve(pipe: Connection, is_small: bool) -> None:  # noqa: FBT001 - processes take no names
    """Check seeds until there are no more."""
    while (seed := pipe.recv()) is not None:
        pipe.send(check_seed(seed, is_small=is_small))


def _start(*, is_small: bool) -> _Worker:
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs, is_small), daemon=True
    )
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _give(worker: _Worker, seeds: list[int]) -> bool:
    """Hand out the next seed; False if there is none."""
    worker.seed = seeds.pop() if seeds else -1
    worker.since = worker.used()
    worker.pipe.send(worker.seed if worker.seed >= 0 else None)
    return worker.seed >= 0


def run_campaign(
    seeds: Iterable[int], jobs: int, out: Path, *, is_small: bool = False
) -> Counter[str]:
    """Check all seeds; what each of them came to."""
    waiting = sorted(seeds, reverse=True)
    tally = _Tally()
    workers = [_start(is_small=is_small) for _ in range(min(jobs, len(waiting)))]
    for worker in workers:
        _give(worker, waiting)
    while workers:
        ready = wait([worker.pipe for worker in workers], timeout=5)
        for worker in list(workers):
            outcome = _outcome(worker, is_ready=worker.pipe in ready)
            if outcome is None:
                continue
            _note(tally, outcome, out)
            going_on = worker if worker.process.is_alive() else _start(is_small=is_small)
            workers.remove(worker)
            if _give(going_on, waiting):
                workers.append(going_on)
    print("operators:", dict(tally.operators.most_common()))
    return tally.counts


def _outcome(worker: _Worker, *, is_ready: bool) -> Outcome | None:
    """The outcome of a worker's seed; ``None`` if it is still at it."""
    if is_ready:
        try:
            outcome: Outcome = worker.pipe.recv()
        except EOFError:
            worker.process.join()
            what = f"the process ended with {worker.process.exitcode}"
            return Outcome(worker.seed, "crashes", Finding("crashes", "", what))
        return outcome
    if worker.used() - worker.since < _SECONDS:
        return None
    worker.process.kill()
    worker.process.join()
    return Outcome(worker.seed, "hangs", Finding("hangs", "", f"longer than {_SECONDS:g} s"))


def _note(tally: _Tally, outcome: Outcome, out: Path) -> None:
    tally.counts[outcome.verdict] += 1
    tally.operators.update(outcome.operators)
    done = tally.counts.total()
    if outcome.finding is not None:
        folder = write_finding(outcome, out)
        print(f"seed {outcome.seed} {outcome.verdict}: {folder}", flush=True)
        print("   ", outcome.summary, flush=True)
    if done % 500 == 0:
        print(f"{done} done: {dict(tally.counts)}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=1000, help="how many models")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--small", action="store_true", help="of a few nodes, compiled once")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    parser.add_argument("--out", type=Path, default=Path("build/campaign"), help="for findings")
    parser.add_argument("--again", type=Path, help="a folder of a finding: run that one only")
    given = parser.parse_args(arguments)
    if given.again:
        finding = reproduce(given.again)
        print(finding.what if finding else "all is well")
        return int(finding is not None)
    started = time.monotonic()
    seeds = range(given.seed, given.seed + given.count)
    counts = run_campaign(seeds, given.jobs, given.out, is_small=given.small)
    print(json.dumps(dict(counts)), f"in {time.monotonic() - started:.0f} s")
    return int(any(kind not in {"well", "without options", "empty"} for kind in counts))


if __name__ == "__main__":
    sys.exit(main())
