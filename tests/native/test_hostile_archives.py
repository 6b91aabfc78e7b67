"""Archives in which something lies: they run, or an error says why not."""

from __future__ import annotations

import pytest

from popc_runtime.native import variants
from tests.native import damaged, forged
from tests.native.harvest import problems
from tests.native.hostile import complaints
from tests.native.problems import known

pytestmark = [
    pytest.mark.skipif(not variants(), reason="there are no native kernels"),
    pytest.mark.xdist_group("every instruction"),  # problems are found once
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore::RuntimeWarning"),
]


def _check_instructions(most: int, count: int) -> None:
    """``count`` programs of each of up to ``most`` problems of each instruction."""
    listed = [
        trial
        for found in problems().values()
        for problem in found[:: -(-len(found) // most)]
        for form in (problem, known(problem))
        for trial in forged.trials(form, count)
    ]
    complained = list(complaints(listed))
    assert not complained, "\n".join(complained)


def test_instructions_that_lie() -> None:
    _check_instructions(1, 3)


@pytest.mark.slow
def test_more_instructions_that_lie() -> None:
    _check_instructions(3, 20)


def test_damaged_archives() -> None:
    complained = list(complaints(list(damaged.trials(100))))
    assert not complained, "\n".join(complained)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_more_damaged_archives(seed: int) -> None:
    complained = list(complaints(list(damaged.trials(1000, seed))))
    assert not complained, "\n".join(complained)
