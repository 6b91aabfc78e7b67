"""Collectives between processes, beside the same among as many replicas of one process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array, DType
from popc_runtime.groups import Group, ReplicaShare, run_loopback
from popc_runtime.kernels import KERNELS, Binding, Call, CollectiveKernel, RandomState
from popc_runtime.kernels.collectives_between import Meeting, is_apart, prepare_between
from popc_runtime.kernels.core.binding import Scratch
from popc_runtime.kernels.core.preparation import prepare_together
from popc_runtime.kernels.core.stored import to_bfloat16
from popc_runtime.process.watch import RunWatch

_REPLICAS: Final = 6
_SHAPE: Final = (4, 3, 5)
# Size and stride of groups.
_GROUPS: Final = {"all": (6, 1), "neighbours": (2, 1), "far": (3, 2), "alone": (1, 3)}
_REDUCTIONS: Final = ("add", "mean", "mul", "max", "square_add", "local")
_NARROW: Final = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)


@dataclass(frozen=True)
class _Case:
    opcode: str
    dtype: DType
    shape: Sequence[int]
    result: Sequence[int]
    more: Any


def _operands(dtype: DType, shape: Sequence[int]) -> list[Array]:
    rng = np.random.default_rng(7)
    values = rng.standard_normal((_REPLICAS, *shape)).astype(np.float32) * 3
    if dtype is DType.BFLOAT16:
        return list(to_bfloat16(values).reshape(values.shape))
    return list(values.astype(dtype.storage))


def _binding(operand: Array, case: _Case, number: int) -> Binding:
    return Binding(
        inputs=(operand.copy(),),
        outputs=(np.full(case.result, 7, operand.dtype),),
        input_dtypes=(case.dtype,),
        output_dtypes=(case.dtype,),
        attributes=case.more,
        constant=(False,),
        scratch=Scratch(),
        random=RandomState(0),
        replica=number,
    )


def _calls(case: _Case, share: ReplicaShare, bindings: Sequence[Binding]) -> Sequence[Call]:
    if is_apart(bindings[0], share):
        meeting = Meeting(share, RunWatch(), f"{case.opcode} (test)")
        return prepare_between(case.opcode, bindings, meeting)
    kernel = KERNELS[case.opcode]
    assert isinstance(kernel, CollectiveKernel)
    return prepare_together(kernel, bindings)


def _results(cases: Sequence[_Case], size: int) -> list[list[bytes]]:
    """What each replica gets of each case, with the replicas in ``size`` processes."""

    def run(group: Group) -> list[list[bytes]]:
        count = _REPLICAS // size
        share = ReplicaShare(group.rank * count, count, _REPLICAS, group=group)
        found: list[list[bytes]] = [[] for _ in share.own]
        for case in cases:
            operands = _operands(case.dtype, case.shape)
            bindings = [_binding(operands[number], case, number) for number in share.own]
            calls = _calls(case, share, bindings)
            for _ in range(2):  # the second run finds what the first has left
                for call in calls:
                    call()
            for results, binding in zip(found, bindings, strict=True):
                results.append(binding.output().tobytes())
        return found

    with np.errstate(all="ignore"):
        return [result for rank in run_loopback(size, run) for result in rank]


def _check(cases: Sequence[_Case]) -> None:
    expected = _results(cases, 1)
    for size in (2, 3, 6):
        assert _results(cases, size) == expected, f"{size} processes"


@pytest.mark.parametrize("groups", _GROUPS)
@pytest.mark.parametrize("op", _REDUCTIONS)
def test_reductions(op: str, groups: str) -> None:
    size, stride = _GROUPS[groups]
    more = {"op": op, "size": size, "stride": stride}
    part = (-(-prod(_SHAPE) // size),)
    _check([_Case("ReplicatedAllReduce", dtype, _SHAPE, _SHAPE, more) for dtype in _NARROW])
    _check([_Case("ReplicatedReduceScatter", dtype, _SHAPE, part, more) for dtype in _NARROW])


@pytest.mark.parametrize("groups", _GROUPS)
@pytest.mark.parametrize("dtype", [DType.BFLOAT16, DType.INT64])
def test_moves(dtype: DType, groups: str) -> None:
    size, stride = _GROUPS[groups]
    more = {"size": size, "stride": stride}
    rows = (size, 5)
    _check(
        [
            _Case("ReplicatedAllGather", dtype, _SHAPE, (size, *_SHAPE), more),
            _Case("AllToAll", dtype, rows, rows, more),
            _Case("ReplicatedBroadcast", dtype, _SHAPE, _SHAPE, {**more, "root": size - 1}),
        ]
    )


@pytest.mark.parametrize("shape", [(), (1,), (3,), (0,)])
def test_fewer_elements_than_processes(shape: tuple[int, ...]) -> None:
    more = {"op": "add", "size": 6, "stride": 1}
    _check(
        [
            _Case("ReplicatedAllReduce", DType.FLOAT32, shape, shape, more),
            _Case("ReplicatedReduceScatter", DType.FLOAT32, shape, (1,), more),
        ]
    )


def test_sums_depend_on_their_order() -> None:
    """Operands for which the order matters, so that the tests above say something."""
    rows = np.stack(_operands(DType.FLOAT32, _SHAPE))
    forwards, backwards = (np.add.accumulate(each)[-1] for each in (rows, rows[::-1]))
    assert (forwards != backwards).any()
