"""The pipeline as a whole, and the text forms of what the stages make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import popc
import popc_runtime
from popc.compiler import plan_program
from popc.ir import Graph, Op, TensorType
from popc.ops.build import build
from popc.options import Options
from popc.progress import Stage
from popc.transforms.base import RewritePass, run_to_fixed_point
from popc_runtime.format import DType
from tests.models import affine

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


@pytest.mark.parametrize("checker", ["check_schedule", "check_plan"])
def test_verify_ir_checks_schedule_and_plan(checker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{plan_program.__module__}.{checker}", lambda *_: ["first", "second"])
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


def test_verification_is_off_by_default() -> None:
    assert not Options().verify_ir
