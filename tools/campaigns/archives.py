"""Load and run archives in which something is not what it was.

python -m tools.campaigns.archives --count 100000 --jobs 2 --journal FILE
python -m tools.campaigns.archives --count 100000 --against FILE

A number is an archive, the same in every process and, as long as the compiler writes the same
archives, in every release.  The journal has a line for each: the number, and how it ended, "ran" or
the code of the error.  It grows as the campaign goes on; archives that it has are not tried again.
``--against`` tells which end otherwise than a journal says.
"""

from __future__ import annotations

import argparse
import resource
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import popc_runtime
from popc_runtime.errors import PopcError
from popc_runtime.format import STRICT_LIMITS
from tests.native.children import Tell, in_a_child
from tests.native.damaged import damaged, host_calls_of
from tests.native.whole import archives

__all__ = ["main"]

_BATCH: Final = 500
_TIMEOUT: Final = 0.2  # seconds of a run
_ROOM: Final = 8 << 30  # bytes of a process: what takes more ends as a finding, not the machine
_WHOLE: Final = "ends="  # in front of what a process tells that was not ended


def main(arguments: list[str]) -> int:
    """Try the archives; 1 if one ends a process, or otherwise than the journal says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--against", type=Path)
    given = parser.parse_args(arguments)
    archives()  # compiled once, before there are other processes
    ends = _read(given.journal) if given.journal and given.journal.exists() else {}
    missing = [n for n in range(given.first, given.first + given.count) if n not in ends]
    for found in _all_ends(missing, given.jobs):
        ends |= found
        if given.journal is not None:
            with given.journal.open("a", encoding="utf-8") as journal:
                journal.writelines(f"{number} {end}\n" for number, end in found.items())
    for end, count in Counter(ends.values()).most_common():
        print(f"{count:9,} {end}")
    wrong = [f"{number}: {end}" for number, end in ends.items() if " " in end]
    wrong += _differences(ends, given.against) if given.against else []
    print("\n".join(wrong[:50]))
    return 1 if wrong else 0


def _read(journal: Path) -> dict[int, str]:
    lines = (line.partition(" ") for line in journal.read_text(encoding="utf-8").splitlines())
    return {int(number): end for number, _, end in lines}


def _differences(ends: dict[int, str], journal: Path) -> Iterator[str]:
    for number, before in _read(journal).items():
        now = ends.get(number, before)
        # Whether a run ends in time is the machine's to say.
        if now != before and "device.timeout" not in {now, before}:
            yield f"{number}: {now}, and {before} before"


def _all_ends(numbers: Sequence[int], jobs: int) -> Iterator[dict[int, str]]:
    batches = [numbers[i : i + _BATCH] for i in range(0, len(numbers), _BATCH)]
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_some_ends, batches)


def _some_ends(numbers: Sequence[int]) -> dict[int, str]:
    """The ends of archives; one that ends its process does not end the others."""
    if not numbers:
        return {}
    text, last = in_a_child(partial(_try, numbers))
    if text.startswith(_WHOLE):
        told = text[len(_WHOLE) :].rpartition(":")[0].split(",")
        return dict(zip(numbers, told, strict=True))
    place = numbers.index(last)
    return {
        **_some_ends(numbers[:place]),
        last: f"ended its process: {text}",
        **_some_ends(numbers[place + 1 :]),
    }


def _try(numbers: Sequence[int], tell: Tell) -> str:
    resource.setrlimit(resource.RLIMIT_AS, (_ROOM, _ROOM))
    names = sorted(archives())
    ends = []
    for number in numbers:
        tell(number, str(number))
        random = Random(number)
        name = names[number % len(names)]
        data, _ = damaged(name, random)
        ends.append(_end_of(name, data, random.choice(("native", "native", "numpy"))))
    return _WHOLE + ",".join(ends)


def _end_of(name: str, data: bytes, engine: str) -> str:
    try:
        executable = popc_runtime.load(
            data,
            limits=STRICT_LIMITS,
            threads=1,
            engine=engine,
            timeout=_TIMEOUT,
            host_calls=host_calls_of(name),
        )
        feeds = {spec.name: bytes(spec.nbytes) for spec in executable.inputs}
        executable.run_buffers(feeds, timeout=_TIMEOUT)
    except PopcError as error:
        return error.code
    except Exception as error:  # noqa: BLE001 - what is no error of popc is a finding
        return f"raised a bare {type(error).__name__}"
    return "ran"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
