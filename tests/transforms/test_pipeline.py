"""The pipeline as a whole, and the text forms of what the stages make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popc
import popc_runtime
from popc.ir import Graph, Op, TensorType, format_graph
from popc.ops.build import build
from popc.options import Options
from popc.progress import Stage
from popc.transforms import transform
from popc.transforms.base import Pass, PassReport, RewritePass, run_to_fixed_point
from popc.transforms.context import insertion_orders
from popc_runtime.format import DType
from tests.support.models import affine

_ANCHORS = ("all", "final", "sum", "every_n:2")


def test_golden_prints(golden: Callable[[str, str], None]) -> None:
    """One small model: IR as imported and as transformed, schedule, plan, program."""

    def check(stage: Stage, text: str) -> None:
        golden(f"stage_{stage}", text)

    popc.compile(affine(), on_artefact=check)


@pytest.mark.parametrize("anchor", _ANCHORS)
def test_step_loop(anchor: str, golden: Callable[[str, str], None], tmp_path: Path) -> None:
    """Host transfers and the loop over the batches of a step, for every return type."""
    options = {"batches_per_step": 4, "anchors": {"y": anchor}, "verify_ir": True}
    texts: dict[Stage, str] = {}
    archive = popc.compile(affine(), options=options, on_artefact=texts.__setitem__)
    golden(f"step_loop_{anchor.partition(':')[0]}", texts[Stage.TRANSFORM])
    path = archive.save(tmp_path / "m.popx")
    x = np.random.default_rng(0).normal(size=(4, 2, 3)).astype(np.float32)
    single = popc_runtime.load(popc.compile(affine()).save(tmp_path / "one.popx"))
    each = np.stack([single.run({"x": row})["y"] for row in x])
    wanted = {"all": each, "final": each[3], "sum": each.sum(axis=0), "every_n:2": each[1::2]}
    y = popc_runtime.load(path).run({"x": x})["y"]
    np.testing.assert_allclose(y.reshape(wanted[anchor].shape), wanted[anchor], rtol=1e-6)


@pytest.mark.parametrize("checker", ["schedule.check_schedule", "memory.check_plan"])
def test_verify_ir_checks_schedule_and_plan(checker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"popc.{checker}", lambda *_: ["first", "second"])
    popc.compile(affine())
    with pytest.raises(AssertionError, match="is wrong: first; second"):
        popc.compile(affine(), options={"verify_ir": True})


class _Restless(RewritePass):
    name = "restless"

    def rewrite(self, graph: Graph, op: Op) -> bool:
        return op in graph


class _Careless(RewritePass):
    name = "careless"

    def rewrite(self, graph: Graph, op: Op) -> bool:
        graph.inputs[0].uses.clear()
        return op not in graph


def _graph() -> Graph:
    graph = Graph("main")
    x = graph.add_input("x", TensorType(DType.FLOAT32, (2,)))
    graph.add_output("y", build(graph, "Relu", [x]).output)
    return graph


def test_passes_that_do_not_settle_are_named() -> None:
    with pytest.raises(AssertionError, match="do not settle after 20 rounds: restless"):
        run_to_fixed_point([_Restless()], _graph())


def test_passes_that_break_the_graph_are_named() -> None:
    with pytest.raises(AssertionError, match="careless broke the graph"):
        _Careless()(_graph(), check=True)


class _Liar(RewritePass):
    name = "liar"

    def rewrite(self, graph: Graph, op: Op) -> bool:
        op.attributes["seen"] = 1
        return op not in graph


def test_passes_that_hide_a_change_are_named() -> None:
    with pytest.raises(AssertionError, match="liar changed the graph, but reports no change"):
        _Liar()(_graph(), check=True)


def _repetitive() -> Graph:
    graph = Graph("main")
    y = graph.add_input("x", TensorType(DType.FLOAT32, (2, 2)))
    for _ in range(3):
        y = build(graph, "Softmax", [build(graph, "MatMul", [y, y]).output], {"axis": 1}).output
    graph.add_output("y", y)
    return graph


@pytest.mark.parametrize(
    ("options", "holds"),
    [
        ({}, False),  # nobody asks
        ({"enable_outlining": True, "outline_threshold": 1e9}, True),  # asks at the very end
        ({"enable_outlining": True}, False),  # asks, and then makes subgraphs
    ],
)
def test_orders_hold_until_a_pass_changes_something(
    options: dict[str, Any], *, holds: bool
) -> None:
    graph, asked = _repetitive(), []

    def orders(top: Graph) -> Mapping[Graph, Sequence[Op]]:
        asked.append(format_graph(top))
        return insertion_orders(top)

    done = transform(graph, Options(verify_ir=True, **options), orders)
    assert done.orders_hold is holds
    assert (bool(asked) and asked[-1] == format_graph(graph)) is holds


def test_verification_is_off_by_default() -> None:
    assert not Options().verify_ir


def test_what_found_nothing_runs_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[
        tuple[type[Pass], int]
    ] = []  # of passes, how many changes there had been before each
    changes = [0]
    plain = Pass.__call__

    def counted(self: Pass, graph: Graph, **how: Any) -> PassReport:
        report = plain(self, graph, **how)
        runs.append((type(self), changes[0]))
        changes[0] += report.changes
        return report

    monkeypatch.setattr(Pass, "__call__", counted)
    popc.compile(affine())
    assert changes[0] > 0
    assert len(runs) == len(set(runs))
