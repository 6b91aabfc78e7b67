"""Random sets of options on tiny networks, against the programs without them.

    python -m tools.campaigns.options [--count 10000] [--seed 0] [--jobs 2] [--journal FILE]

Set number i of a seed is the same whatever else is tried.  With a journal, sets that it lists are
not tried again.  A set that popc refuses by the name of an option counts as refused; a bug, or
another result than without the options, is shrunk to as few settings as it takes, and kept as a
model with options files and a command line in the folder of ``--keep``.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from pathlib import Path
from typing import Any, Final

import onnx

from tests.options.combinations import (
    BATCH,
    Subject,
    check,
    draw_case,
    is_wrong,
    network,
    shrunk,
    training,
)
from tests.options.settings import find, merged

__all__ = ["main"]

_SHOWN: Final = 400  # characters of a message


def main() -> None:
    """Run; exit with 1 if anything is wrong."""
    arguments = _parsed()
    if arguments.settings:
        found = is_wrong(Subject(*arguments.subject), find(arguments.settings))
        print(found or check(Subject(*arguments.subject), find(arguments.settings)) or "equal")
        raise SystemExit(bool(found))
    seen = _read(arguments.journal, arguments.seed)
    numbers = (n for n in range(arguments.first, arguments.first + arguments.count))
    left = (n for n in numbers if n not in seen)
    counts: Counter[str] = Counter(row["outcome"] for row in seen.values())
    findings = {row["minimal"]: row for row in seen.values() if row["outcome"] == "wrong"}
    for row in _tried(left, arguments):
        counts[row["outcome"]] += 1
        if arguments.journal:
            with arguments.journal.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        if row["outcome"] == "wrong" and row["minimal"] not in findings:
            findings[row["minimal"]] = row
            _show(row, arguments.keep)
    print(", ".join(f"{counts[verdict]} {verdict}" for verdict in ("equal", "refused", "wrong")))
    print(f"{len(findings)} different minimal sets are wrong")
    raise SystemExit(bool(findings))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.campaigns.options")
    parser.add_argument("--count", type=int, default=10_000, help="how many sets")
    parser.add_argument("--first", type=int, default=0, help="the number of the first set")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing later")
    parser.add_argument("--journal", type=Path, metavar="FILE", help="what has been tried")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where findings are kept")
    parser.add_argument("--subject", nargs=2, metavar=("NETWORK", "OPTIMIZER"))
    parser.add_argument("--settings", nargs="*", metavar="NAME", help="try this set only")
    return parser.parse_args()


def _read(journal: Path | None, seed: int) -> dict[int, dict[str, Any]]:
    """The sets of ``seed`` that the journal lists, by number."""
    if journal is None or not journal.exists():
        return {}
    rows = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    return {row["number"]: row for row in rows if row["seed"] == seed}


def _tried(numbers: Iterator[int], arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The outcome of each set, in the order in which they are done."""
    end = time.monotonic() + arguments.seconds
    with ProcessPoolExecutor(arguments.jobs) as pool:
        running: set[Future[dict[str, Any]]] = set()
        while True:
            more = islice(numbers, 2 * arguments.jobs - len(running))
            running |= {
                pool.submit(_try, arguments.seed, number)
                for number in more
                if time.monotonic() < end
            }
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def _try(seed: int, number: int) -> dict[str, Any]:
    warnings.simplefilter("error", RuntimeWarning)
    subject, settings = draw_case(seed, number)
    row: dict[str, Any] = {"seed": seed, "number": number, "subject": list(subject)}
    row["settings"] = [setting.name for setting in settings]
    try:
        told = check(subject, settings)
    except Exception:  # noqa: BLE001 - bugs are what is looked for
        told = "a bug"
    if not told or told.startswith("refused: "):
        return row | {"outcome": "refused" if told else "equal", "told": told[:_SHOWN]}
    least = shrunk(subject, settings)
    minimal = " + ".join(sorted(setting.name for setting in least))
    told = is_wrong(subject, least)
    return row | {
        "outcome": "wrong",
        "minimal": minimal,
        "least": [setting.name for setting in least],
        "told": told[:_SHOWN],
    }


def _show(row: dict[str, Any], folder: Path | None) -> None:
    subject, names = Subject(*row["subject"]), row["least"]
    print(f"number {row['number']}: {row['told']}")
    quoted = " ".join(f"'{name}'" for name in names)
    again = f"--subject {subject.network} '{subject.optimizer}' --settings {quoted}"
    print(f"  python -m tools.campaigns.options {again}", flush=True)
    if folder is not None:
        print(f"  {_kept(subject, names, folder / str(row['number']))}", flush=True)


def _kept(subject: Subject, names: list[str], folder: Path) -> str:
    """Write what it takes to see a finding again; the command line for that."""
    folder.mkdir(parents=True, exist_ok=True)
    both = merged(find(names), trains=bool(subject.optimizer))
    assert both is not None
    onnx.save(network(subject.network), folder / "model.onnx")
    options = {"verify_ir": True, **both[0]}
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")
    command = (
        f"popc compile {folder}/model.onnx --options {folder}/options.json --dim batch={BATCH}"
    )
    if subject.optimizer:
        text = json.dumps(training(subject.optimizer))
        (folder / "train.json").write_text(text, encoding="utf-8")
        command += f" --train {folder}/train.json"
    return command


if __name__ == "__main__":
    main()
