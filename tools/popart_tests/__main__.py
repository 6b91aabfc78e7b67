"""Run PopART's own Python tests, unchanged, against the module `popart` of popc.

The tests are not part of this repository: ROOT is a checkout of PopART's repository, or a folder
that holds a part of its tests. The table `reasons.toml` says why some of them cannot pass; a test
that does not pass and is not in the table makes the exit code 1.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from tools.popart_tests.children import Outcome, run_files
from tools.popart_tests.old_names import restore
from tools.popart_tests.reasons import read_reasons, reason_for
from tools.popart_tests.suite import INTEGRATION, TestFile, find_files

_WHOLE_FILE = "-"


def main() -> int:
    """Run the tests and print how many functions pass, and what became of the others."""
    asked = _arguments()
    try:
        files = find_files(asked.root, asked.only)
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    _prepare()
    print(f"PopART's tests: {len(files)} files", flush=True)
    start = time.monotonic()
    outcomes: dict[str, Outcome] = {}
    for file, outcome in run_files(asked.root, files, asked.jobs, asked.timeout):
        outcomes[_short(file)] = outcome
        counts = dict(Counter(said.partition(":")[0] for said in outcome.items.values()))
        print(f"{_short(file):60} {file.device:9} {outcome.seconds:6.1f} s {counts}", flush=True)
        if asked.verbose:
            _print_failures(outcome)
    if asked.out is not None:
        _write(asked.out, outcomes)
    return _summary(outcomes, time.monotonic() - start)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tools.popart_tests")
    parser.add_argument("root", type=lambda text: Path(text).resolve(), help="where the tests are")
    parser.add_argument("only", nargs="*", help="run files whose path contains one of these")
    parser.add_argument("--jobs", type=int, default=2, help="files at a time")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for each file")
    parser.add_argument("--verbose", action="store_true", help="say at once what went wrong")
    parser.add_argument("--out", type=Path, help="write every item and what became of it")
    return parser.parse_args()


def _prepare() -> None:
    """Import what children share, and put old names back.

    The last module is what the first backward pass imports; within pytest, which rewrites every
    file that it takes for a test, that takes longer than all the tests of a file.
    """
    importlib.import_module("popart")
    try:
        importlib.import_module("torch").set_num_threads(1)
        importlib.import_module("torch.fx.experimental.symbolic_shapes")
    except ImportError:
        print("torch is not installed: most tests of operators cannot run", file=sys.stderr)
    restore()


def _short(file: TestFile) -> str:
    return file.path.removeprefix(f"{INTEGRATION}/")


def _print_failures(outcome: Outcome) -> None:
    for error in outcome.errors:
        print(f"    {error}", flush=True)
    for item, said in outcome.items.items():
        if said != "passed":
            print(f"    {item.rpartition('::')[2]}: {said}", flush=True)


def _functions(outcomes: dict[str, Outcome]) -> dict[tuple[str, str], str]:
    """The fate of each function (file, name): "passed", or the first thing that went wrong."""
    said: dict[tuple[str, str], list[str]] = defaultdict(list)
    for file, outcome in outcomes.items():
        for error in outcome.errors:
            said[file, _WHOLE_FILE].append(error)
        for item, result in outcome.items.items():
            said[file, item.partition("[")[0].rpartition("::")[2]].append(result)
    return {
        key: next((result for result in results if result != "passed"), "passed")
        for key, results in said.items()
    }


def _summary(outcomes: dict[str, Outcome], seconds: float) -> int:
    functions = _functions(outcomes)
    reasons = read_reasons()
    unexplained = 0
    for (file, function), result in sorted(functions.items()):
        reason = reason_for(reasons, file, function)
        if result == "passed":
            if reason is not None:
                print(f"{file} {function}: passes, though the table says: {reason}")
        else:
            unexplained += reason is None
            print(f"{file} {function}: {reason or f'UNEXPLAINED: {result}'}")
    passed = sum(result == "passed" for result in functions.values())
    counted = sum(function != _WHOLE_FILE for _, function in functions)
    minutes, rest = divmod(round(seconds), 60)
    print(
        f"{passed} of {counted} test functions pass, {unexplained} of the others have no reason; "
        f"{minutes} min {rest} s"
    )
    return 1 if unexplained else 0


def _write(path: Path, outcomes: dict[str, Outcome]) -> None:
    with path.open("w") as out:
        for file, outcome in sorted(outcomes.items()):
            out.writelines(f"{file}\t-\terror: {error}\n" for error in outcome.errors)
            out.writelines(f"{file}\t{item}\t{said}\n" for item, said in outcome.items.items())


if __name__ == "__main__":
    sys.exit(main())
