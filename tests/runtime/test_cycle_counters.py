"""Cycles of what has run: iterations, branches, transfers, replicas."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import popc
import popc_runtime
from popc_runtime.cycles.execution import CycleProfile
from popc_runtime.errors import CorruptArchiveError, UsageError
from tests.support.models import affine, counter_loop, executable

_COUNTED: dict[str, Any] = {"instrument_with_hardware_cycle_counter": True}


def _choice() -> onnx.ModelProto:
    """y = x + x if c, else the sigmoid of 40 sigmoids of x."""
    floats = TensorProto.FLOAT
    value = helper.make_tensor_value_info
    short = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["t"])], "short", [], [value("t", floats, [8])]
    )
    names = ["x", *(f"e{number}" for number in range(40))]
    chain = [helper.make_node("Sigmoid", [before], [after]) for before, after in pairwise(names)]
    long = helper.make_graph(chain, "long", [], [value(names[-1], floats, [8])])
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=short, else_branch=long)],
        "choice",
        [value("c", TensorProto.BOOL, []), value("x", floats, [8])],
        [value("y", floats, [8])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batches_per_step": 4},
        {"batches_per_step": 4, "anchors": {"y": "every_n:2"}},
        {
            "batches_per_step": 4,
            "num_io_tiles": 32,
            "exchange_strategies": {"*": "overlap_loops"},
        },
        {"batches_per_step": 4, "replicated_graph_count": 2},
        {"synthetic_data_mode": "zeros"},
    ],
)
def test_a_known_program_takes_what_the_estimate_says(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    program = executable(affine(), tmp_path, **_COUNTED, **options)
    estimate = popc.estimate(affine(), options=options)
    feeds = {spec.name: np.ones(spec.shape, np.float32) for spec in program.inputs}
    program.run(feeds)
    assert program.get_cycle_count() == program.get_cycle_count("outer") == estimate.cycles.total
    program.run(feeds)
    report, total = program.execution_report(), program.execution_report(total=True)
    assert not report.assumed
    assert report.cycles == estimate.cycles.total
    assert report.hidden == estimate.hidden
    assert report.by_kind()["host"] == estimate.cycles.host
    assert (total.runs, total.cycles) == (2, 2 * report.cycles)
    assert sum(report.by_type().values()) == report.cycles


def test_iterations_are_counted(tmp_path: Path) -> None:
    program = executable(counter_loop(), tmp_path, **_COUNTED)
    state = np.ones(2, np.float32)
    counts = {}
    for trips in (0, 1, 2, 7):
        program.run(n=np.int64(trips), p=state, q=state)
        counts[trips] = program.get_cycle_count()
    step = counts[1] - counts[0]
    assert step > 0
    assert counts[2] - counts[1] == step
    assert counts[7] - counts[2] == 5 * step
    report = program.execution_report(total=True)
    assert report.runs == 4
    assert next(op for op in report.ops if op.op_type == "Loop").times == 10


def test_branches_are_counted(tmp_path: Path) -> None:
    program = executable(_choice(), tmp_path, **_COUNTED)
    x = np.ones(8, np.float32)
    program.run(c=np.bool_(True), x=x)  # noqa: FBT003
    short = program.execution_report()
    program.run(c=np.bool_(False), x=x)  # noqa: FBT003
    long = program.execution_report()
    assert long.cycles > 3 * short.cycles
    assert long.cycles == popc.estimate(_choice()).cycles.total
    assert next(op for op in short.ops if op.op_type == "FusedElementwise").times == 0


def test_the_slowest_replica_counts(tmp_path: Path) -> None:
    program = executable(_choice(), tmp_path, replicated_graph_count=2, **_COUNTED)
    x = np.ones((2, 8), np.float32)
    cycles = {}
    for flags in ((True, True), (True, False), (False, True), (False, False)):
        program.run(c=np.array(flags), x=x)
        cycles[flags] = program.get_cycle_count()
    assert cycles[True, False] == cycles[False, True] == cycles[False, False] > cycles[True, True]


def test_inner_cycles(tmp_path: Path) -> None:
    both = {"hardware_instrumentations": ["inner", "outer"], **_COUNTED}
    program = executable(affine(), tmp_path, batches_per_step=3, **both)
    program.run(x=np.ones((3, 2, 3), np.float32))
    loop = next(op for op in program.execution_report().ops if op.op_type == "Loop")
    assert program.get_cycle_count("inner_ipu_0") == program.get_cycle_count() - loop.total
    assert program.get_cycle_count("inner") == program.get_cycle_count("inner_ipu_0")
    plain = executable(affine(), tmp_path, **both)
    plain.run(x=np.ones((2, 3), np.float32))
    assert plain.get_cycle_count("inner") == plain.get_cycle_count()


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    x = np.ones((2, 3), np.float32)
    plain = executable(affine(), tmp_path)
    plain.run(x=x)
    with pytest.raises(UsageError, match="compiled without cycle counters"):
        plain.get_cycle_count()
    program = executable(affine(), tmp_path, **_COUNTED)
    with pytest.raises(UsageError, match="nothing has run yet"):
        program.get_cycle_count()
    program.run(x=x)
    for name in ("inner", "inner_ipu_0", "out"):
        with pytest.raises(UsageError, match="no cycle counter"):
            program.get_cycle_count(name)
    with program.session() as session:
        session.connect("x", [x]).step()
        assert session.get_cycle_count() == program.get_cycle_count()


def test_a_run_that_fails_does_not_count(tmp_path: Path) -> None:
    program = executable(affine(), tmp_path, batches_per_step=2, **_COUNTED)
    program.run(x=np.ones((2, 2, 3), np.float32))
    before = program.get_cycle_count()
    with program.session() as session:
        session.connect("x", [np.ones((2, 3), np.float32)])
        with pytest.raises(popc_runtime.errors.StreamUnderrunError):
            session.step()
    assert program.execution_report(total=True).runs == 1
    program.run(x=np.ones((2, 2, 3), np.float32))
    assert program.get_cycle_count() == before


def test_reports_as_text_and_data(tmp_path: Path) -> None:
    program = executable(affine(), tmp_path, batches_per_step=3, **_COUNTED)
    program.run(x=np.ones((3, 2, 3), np.float32))
    report = program.execution_report()
    text = str(report)
    for part in ("Execution report: 1 run on ipu2", "host exchange", "Program steps", "HostLoad"):
        assert part in text
    data = json.loads(json.dumps(report.to_dict()))
    assert data["schema"] == "popc.execution/1"
    assert data["cycles"]["total"] == sum(step["cycles"]["total"] for step in data["steps"])


_HEAD = b'"target":"a","clock_hz":1,"instrumentations":[]'
_ALONE = b'"type":"A","name":"","origin":"","ipu":0'


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{}",
        b"[]",
        b"{%b}" % _HEAD,
        b'{%b,"beside":[0,0,0,0,0],"program":[{"type":"If"}]}' % _HEAD,
        b'{%b,"beside":[0,0,0,0,0],"program":[{"cycles":[1],%b}]}' % (_HEAD, _ALONE),
        b'{%b,"beside":[0],"program":[{"cycles":[1,1,1,1,1],%b}]}' % (_HEAD, _ALONE),
    ],
)
def test_damaged_documents(document: bytes) -> None:
    with pytest.raises(CorruptArchiveError, match="the costs of its program"):
        CycleProfile(document)
