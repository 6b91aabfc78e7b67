"""Every instruction, on both engines, wherever its operands and results lie.

`harvest` finds operands for it, `compared` computes and compares, `tolerances` says how exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import pytest
from hypothesis import HealthCheck, assume, given, note, settings
from hypothesis import strategies as st

from popc_runtime.format import DType
from popc_runtime.kernels import KERNELS
from popc_runtime.native import Library, find_library, native_opcodes, variants
from tests.native.compared import Where, check, check_numpy, has_kernel, takeable
from tests.native.harvest import problems
from tests.native.layouts import LAYOUTS
from tests.native.problems import (
    Problem,
    emptied,
    known,
    narrowed,
    partly_known,
    repeated,
    resized,
)

pytestmark = [
    pytest.mark.skipif(not variants(), reason="there are no native kernels"),
    pytest.mark.xdist_group("every instruction"),  # problems are found once
]
_LAYOUTS = tuple(LAYOUTS)
_FEW = 10  # problems of an opcode, of those that it has; all of them in the slow test
_OPCODES = sorted(native_opcodes())
# Abort has no result, and what users register is theirs.
_THEIRS = {"Custom", "CustomGrad", "HostCall"}
_OTHERS = sorted(KERNELS.keys() - native_opcodes() - {"Abort"} - _THEIRS)
# Of the problems that `_is_usual` names, those that have kernels, where these are not nearly all.
_NEARLY_ALL = 0.9
_SHARES: Final[Mapping[str, float]] = {
    "AttentionGrad": 0.5,  # gradients of masks, caps, masks to be made
    "GRU": 0.8,  # activations with parameters of their own
    "Gemm": 0.4,  # factors
    "IsInf": 0.5,  # of one sign
    "LSTM": 0.8,
    "LayerNormalization": 0.7,  # scales that are not of the shape of a row
    "MatMulNBits": 0.3,  # the transposed product, of gradients
    "RMSNormalization": 0.7,
    "RNN": 0.8,
    "SGD2AcclUpdate": 0.2,  # numbers of float64
    "ScatterReduce": 0.07,  # of rows
    "Sum": 0.8,  # of a single operand
    "Tile": 0.6,  # along all of four axes
    "Unique": 0.5,  # along an axis
}
_HALVES = (DType.FLOAT16, DType.BFLOAT16)


def _forms(problem: Problem) -> Iterator[Problem]:
    """Zero-size dimensions, strides of zero, constants, other types."""
    yield problem
    yield from emptied(problem)
    yield known(problem)
    yield from partly_known(problem)
    for changed in (repeated(problem), *(narrowed(problem, dtype) for dtype in _HALVES)):
        if changed is not None:
            yield changed


def _places(problem: Problem, number: int) -> Where:
    """One of all ways in which operands and results may lie; as numbers go up, all of them."""
    operands, results = _LAYOUTS[number % len(_LAYOUTS)], _LAYOUTS[number // 3 % len(_LAYOUTS)]
    ways = (None, *takeable(problem))
    return Where(operands, results, ways[number % len(ways)])


def _check_all(library: Library, found: list[Problem], layouts: int) -> Counter[str]:
    """How the problems, and all forms of them, were computed, in so many layouts each."""
    hows: Counter[str] = Counter()
    number = 0
    for problem in found:
        for form in _forms(problem):
            expected = form.expected()
            for _ in range(layouts):
                number += 1
                where = _places(form, number)
                try:
                    hows[check(library, form, expected, where)] += 1
                    check_numpy(form, expected, where)
                except (AssertionError, ValueError) as error:
                    raise AssertionError(f"{form}, {where}") from error
    return hows


def _can_run(library: Library, problem: Problem) -> bool:
    """True if there is a kernel for a problem, or for what it is with constants."""
    return has_kernel(library, problem) or has_kernel(library, known(problem))


def test_all_are_found() -> None:
    assert {*_OPCODES, *_OTHERS} == problems().keys()


@pytest.mark.parametrize("opcode", _OPCODES)
def test_kernels(library: Library, opcode: str) -> None:
    found = problems()[opcode]
    some = found[:: max(1, len(found) // _FEW)]
    if not any(_can_run(library, problem) for problem in some):
        some += [problem for problem in found if _can_run(library, problem)][:1]
    hows = _check_all(library, some, 1)
    assert hows["kernel"], f"{opcode} has not run natively"


def _is_usual(problem: Problem) -> bool:
    """Not of float64, which only gradients are tested with, and not empty."""
    types = [type_ for type_ in problem.types if type_ is not None]
    floats = [type_.dtype for type_ in (*types, *problem.output_types) if type_.rank]
    return DType.FLOAT64 not in floats and all(
        type_.size for type_ in (*types, *problem.output_types)
    )


@pytest.mark.parametrize("opcode", _OPCODES)
def test_as_many_have_kernels_as_before(library: Library, opcode: str) -> None:
    """An encoder that begins to refuse contiguous operands would make nothing wrong, but slow."""
    usual = [problem for problem in problems()[opcode] if _is_usual(problem)]
    refused = [problem for problem in usual if not _can_run(library, problem)]
    share = _SHARES.get(opcode, _NEARLY_ALL)
    assert len(refused) <= (1 - share) * len(usual), "\n".join(map(str, refused))


def test_calls_that_are_translated(library: Library) -> None:
    hows = sum(
        (_check_all(library, problems()[opcode][:3], 1) for opcode in _OTHERS), Counter[str]()
    )
    assert hows["calls"]


@pytest.mark.slow
@pytest.mark.parametrize("opcode", _OPCODES)
def test_all_problems(library: Library, opcode: str) -> None:
    assert _check_all(library, problems()[opcode], len(_LAYOUTS))["kernel"]


@pytest.mark.slow
@pytest.mark.parametrize("opcode", _OTHERS)
def test_all_problems_of_others(library: Library, opcode: str) -> None:
    _check_all(library, problems()[opcode], len(_LAYOUTS))


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
    shapes = [operand.shape for operand in problem.inputs if operand is not None]
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
    where = Where(
        data.draw(st.sampled_from(_LAYOUTS), label="layout"),
        data.draw(st.sampled_from(_LAYOUTS), label="layout"),
        data.draw(st.sampled_from([None, *takeable(changed)]), label="taken"),
    )
    expected = changed.expected()
    check(library, changed, expected, where)
    check_numpy(changed, expected, where)
