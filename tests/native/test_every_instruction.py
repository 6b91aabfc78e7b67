"""Every instruction that has a native form, on both engines, wherever its operands lie.

`harvest` finds operands for it, `problems` computes and compares, `tolerances` says how exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from popc_runtime.format import DType
from popc_runtime.native import Library, find_library, native_opcodes, variants
from tests.native.harvest import problems
from tests.native.layouts import LAYOUTS
from tests.native.problems import Problem, check, emptied, known, narrowed, repeated, resized

pytestmark = [
    pytest.mark.skipif(not variants(), reason="there are no native kernels"),
    pytest.mark.xdist_group("every instruction"),  # problems are found once
]
_LAYOUTS = tuple(LAYOUTS)
_FEW = 30  # problems of an opcode, of those that it has; all of them in the slow test
# Only passes make them, for several chips and for streaming memory: `test_kernels` tests these.
_MOVES_OF_PASSES = frozenset(
    {
        *("Boundary", "IoTileCopy", "IpuCopy", "RemoteLoad", "RemoteStore", "Restore", "Stash"),
        "StackStore",
    }
)
_OPCODES = sorted(native_opcodes() - _MOVES_OF_PASSES)
_HALVES = (DType.FLOAT16, DType.BFLOAT16)


def _forms(problem: Problem) -> Iterator[Problem]:
    """Zero-size dimensions, strides of zero, constants, other types."""
    yield problem
    yield from emptied(problem)
    yield known(problem)
    for changed in (repeated(problem), *(narrowed(problem, dtype) for dtype in _HALVES)):
        if changed is not None:
            yield changed


def _check_all(library: Library, found: list[Problem], layouts: int) -> Counter[str]:
    """How the problems, and all forms of them, were computed, in so many layouts each."""
    hows: Counter[str] = Counter()
    number = 0
    for problem in found:
        for form in _forms(problem):
            expected = form.expected()
            for _ in range(layouts):
                number += 1
                pair = _LAYOUTS[number % len(_LAYOUTS)], _LAYOUTS[number // 3 % len(_LAYOUTS)]
                try:
                    hows[check(library, form, expected, *pair)] += 1
                except (AssertionError, ValueError) as error:
                    raise AssertionError(
                        f"{form}, operands {pair[0]}, results {pair[1]}"
                    ) from error
    return hows


def test_all_are_found() -> None:
    assert set(_OPCODES) - problems().keys() == set()


@pytest.mark.parametrize("opcode", _OPCODES)
def test_kernels(library: Library, opcode: str) -> None:
    found = problems()[opcode]
    hows = _check_all(library, found[:: max(1, len(found) // _FEW)], 1)
    assert hows["kernel"], f"{opcode} has not run natively"


def test_calls_that_are_translated(library: Library) -> None:
    others = sorted(problems().keys() - native_opcodes())
    hows = sum(
        (_check_all(library, problems()[opcode][:5], 1) for opcode in others), Counter[str]()
    )
    assert hows["calls"]


@pytest.mark.slow
@pytest.mark.parametrize("opcode", _OPCODES)
def test_all_problems(library: Library, opcode: str) -> None:
    assert _check_all(library, problems()[opcode], len(_LAYOUTS))["kernel"]


@pytest.mark.parametrize("opcode", _OPCODES)
@given(data=st.data())
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_other_sizes(opcode: str, data: st.DataObject) -> None:
    _check_other_sizes(opcode, data)


@pytest.mark.slow
@pytest.mark.parametrize("opcode", _OPCODES)
@given(data=st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_many_other_sizes(opcode: str, data: st.DataObject) -> None:
    _check_other_sizes(opcode, data)


_SIZES = st.one_of(st.integers(0, 70), st.sampled_from([64, 257, 1024]))


def _check_other_sizes(opcode: str, data: st.DataObject) -> None:
    library = find_library(data.draw(st.sampled_from(variants())))
    assert library is not None
    found = problems()[opcode]
    problem = found[data.draw(st.integers(0, len(found) - 1), label="problem")]
    shapes = [one.shape for one in problem.inputs if one is not None]
    sizes = {
        size: data.draw(st.one_of(st.just(size), _SIZES), label=f"{size} becomes")
        for size in sorted({size for shape in shapes for size in shape})
    }
    changed = resized(problem, sizes, data.draw(st.integers(0, 3), label="seed"))
    assume(changed is not None)
    assert changed is not None
    if data.draw(st.booleans(), label="constants"):
        changed = known(changed)
    note(str(changed))
    pair = [data.draw(st.sampled_from(_LAYOUTS), label="layout") for _ in range(2)]
    check(library, changed, changed.expected(), *pair)
