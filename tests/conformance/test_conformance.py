"""Every backend test, through the whole of popc."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.adapter import run_case
from tests.conformance.cases import DATA, cases, node_names
from tests.conformance.expected import EXPECTED_FAILURES

pytestmark = pytest.mark.xdist_group("cases of onnx")  # which take seconds to make

_STORED = [
    (group, folder.name)
    for group in ("pytorch-converted", "pytorch-operator", "simple")
    for folder in sorted((DATA / group).iterdir())
]


@pytest.mark.parametrize(
    ("group", "name"),
    [*(("node", name) for name in node_names()), *_STORED],
    ids=str,
)
def test_backend_case(group: str, name: str, tmp_path: Path) -> None:
    case = cases(group)[name]
    reason = EXPECTED_FAILURES.get(f"{group}/{name}")
    if reason is None:
        run_case(case, tmp_path)
        return
    with pytest.raises(Exception):  # noqa: B017, PT011 - any failure is the expected one
        run_case(case, tmp_path)
