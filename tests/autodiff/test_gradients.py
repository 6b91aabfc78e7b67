"""Every gradient rule, checked on the cases of its family."""

from __future__ import annotations

from typing import Final

import pytest

from popc.autodiff.backward import no_gradient
from popc.autodiff.rules import GRADIENTS, collectives
from tests.autodiff import (
    cases_activation,
    cases_attention,
    cases_composed,
    cases_conv,
    cases_conv_col2im,
    cases_ctc,
    cases_elementwise,
    cases_graphcore,
    cases_image,
    cases_indexing,
    cases_loss,
    cases_matmul,
    cases_movement,
    cases_norm,
    cases_pad,
    cases_pool,
    cases_reduce,
    cases_regions,
    cases_resize,
    cases_rnn,
    cases_scatter,
    cases_selection,
    cases_signal,
    cases_softmax,
)
from tests.support.gradients import (
    Case,
    check_against_differences,
    check_against_torch,
    check_in_float32,
    check_strided,
    torch_gradients,
)
from tests.support.recorded import Pytorch

_FAMILIES: Final = (
    cases_activation,
    cases_attention,
    cases_composed,
    cases_conv,
    cases_ctc,
    cases_elementwise,
    cases_graphcore,
    cases_image,
    cases_indexing,
    cases_loss,
    cases_matmul,
    cases_movement,
    cases_norm,
    cases_pad,
    cases_pool,
    cases_reduce,
    cases_regions,
    cases_resize,
    cases_rnn,
    cases_scatter,
    cases_selection,
    cases_signal,
    cases_softmax,
    cases_conv_col2im,
)

_CASES: Final = [case for family in _FAMILIES for case in family.CASES]
_IN_TORCH: Final = [case for case in _CASES if case.torch is not None]


def test_every_rule_has_a_case() -> None:
    tested = {op.op_type for case in _CASES for op in case.graph().ops}
    rules = {op_type for op_type, rule in GRADIENTS.items() if rule is not no_gradient}
    rules.remove("QuantizeLinear")  # its result is no float: see test_quantize
    rules -= collectives.GRADIENTS.keys()  # they need replicas: see tests/replication
    rules -= {"Boundary", "IoTileCopy", "IpuCopy"}  # passes add them: see tests/placement
    # Users define what these compute: see tests/ops/test_custom.py and test_host_calls.py.
    rules -= {"Custom", "HostCall"}
    assert rules - tested == set()


@pytest.mark.parametrize("case", [c for c in _CASES if c.smooth], ids=str)
def test_finite_differences(case: Case) -> None:
    check_against_differences(case)


@pytest.mark.parametrize("case", _CASES, ids=str)
def test_float32(case: Case) -> None:
    check_in_float32(case)


@pytest.mark.parametrize("case", _CASES, ids=str)
def test_strided_operands(case: Case) -> None:
    check_strided(case)


@pytest.mark.parametrize("case", _IN_TORCH, ids=str)
def test_torch(case: Case, pytorch: Pytorch) -> None:
    check_against_torch(case, pytorch(lambda: torch_gradients(case)))
