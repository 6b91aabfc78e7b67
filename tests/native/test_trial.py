"""The choice between one thread and all, made of times that are given."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

_HERE: Final = Path(__file__).parent
_SOURCES: Final = _HERE.parents[1] / "runtime" / "csrc"
_TURNS: Final = ([False] * 4 + [True] * 4) * 2  # of a trial: whether runs are on one thread
_TRIAL: Final = len(_TURNS)
_US: Final = 1000

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("trial") / "trial"
    sources = [str(_HERE / "trial_runs.c"), str(_SOURCES / "trial.c")]
    subprocess.run(["gcc", "-std=gnu11", f"-I{_SOURCES}", *sources, "-o", str(made)], check=True)
    return made


def _alone(program: Path, runs: list[tuple[int, int, bool]]) -> list[bool]:
    """True for each run, given as its nanoseconds on one thread and on all, that is on one."""
    lines = "".join(f"{single} {all_} {int(helped)}\n" for single, all_, helped in runs)
    done = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [mark == "1" for mark in done.stdout]


def _trials(alone: list[bool]) -> list[int]:
    """The numbers of runs at which trials begin."""
    return [k for k in range(len(alone) - _TRIAL + 1) if alone[k : k + _TRIAL] == _TURNS]


def test_a_trial_takes_turns(program: Path) -> None:
    found = _alone(program, [(200 * _US, 110 * _US, True)] * _TRIAL)
    assert found == _TURNS


@pytest.mark.parametrize(
    ("one", "all_", "alone"),
    [
        (200, 110, False),  # much is gained
        (200, 181, True),  # less than a tenth
        (200, 400, True),
        (15, 5, False),
        (15, 14, True),
        (5_000, 9_000, False),  # long programs are not tried
    ],
)
def test_all_threads_must_save_a_tenth(program: Path, one: int, all_: int, *, alone: bool) -> None:
    found = _alone(program, [(one * _US, all_ * _US, True)] * (_TRIAL + 40))
    assert set(found[_TRIAL:]) == {alone}


def test_help_that_has_not_come_says_nothing(program: Path) -> None:
    """Runs on all threads are as long as others where no other thread had a processor."""
    busy, quiet = [(200 * _US, 205 * _US, False)] * 100, [(200 * _US, 110 * _US, True)] * 100
    found = _alone(program, busy + quiet)
    assert all(found[_TRIAL:80])
    assert not any(found[176:])  # the third trial, behind two rests of 64


@pytest.mark.parametrize("helped", [True, False])
def test_a_known_answer_is_asked_for_less_often(program: Path, *, helped: bool) -> None:
    found = _alone(program, [(200 * _US, 300 * _US, helped)] * 600)
    gaps = [b - a for a, b in zip(_trials(found), _trials(found)[1:], strict=False)]
    assert gaps == ([80, 144, 272] if helped else [80] * 7)[: len(gaps)]
    assert len(gaps) == (3 if helped else 7)


def test_tiny_programs_are_left_alone(program: Path) -> None:
    found = _alone(program, [(15 * _US, 40 * _US, True)] * 5_000)
    assert all(found[_TRIAL:])
