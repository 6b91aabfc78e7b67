"""Why programs do not fit, and advice: whatever is proposed must compile, and fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popc
from popc.study.advice import Explanation, explain_model
from popc_runtime.errors import DoesNotFitError
from tests.support.small_targets import small_target, tower

_TRAIN = {
    "loss": {"type": "l1", "input": "y"},
    "optimizer": {"type": "adam", "learning_rate": 0.1},
}


def _explain(target: str, batch: int, **arguments: Any) -> Explanation:
    options = {"target": target, **arguments.pop("options", {})}
    return explain_model(tower(), dims={"batch": batch}, options=options, **arguments)


def _compile(target: str, batch: int, change: dict[str, Any], **more: Any) -> Any:
    """Compile with advice; refused if it does not fit."""
    options = {"target": target, **change.get("options", {})}
    given = {name: value for name, value in options.items() if value is not None}
    dims = {"batch": batch, **change.get("dims", {})}
    return popc.compile(tower(), dims=dims, options=given, **more)


_CASES = [(22, 256, None), pytest.param(30, 64, _TRAIN, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("kilobytes", "batch", "train"), _CASES)
def test_advice_holds(
    tmp_path: Path, kilobytes: int, batch: int, train: dict[str, Any] | None
) -> None:
    target = small_target(tmp_path, kilobytes=kilobytes)
    with pytest.raises(DoesNotFitError):
        _compile(target, batch, {}, train=train)
    found = _explain(target, batch, train=train, budget=70).to_dict()
    assert not found["fits"]
    assert found["fixes"]
    for fix in found["fixes"]:
        options = {"target": target, **fix["change"].get("options", {})}
        report = popc.estimate(
            tower(),
            dims={"batch": batch, **fix["change"].get("dims", {})},
            options=options,
            train=train,
        )
        assert report.fits
        assert report.cycles.total == fix["cycles"]
        assert fix["cycles_change"] == fix["cycles"] - found["cycles"]["total"]
        _compile(target, batch, fix["change"], train=train)
    times = [fix["time_per_sample_ratio"] for fix in found["fixes"] if not fix["notes"]]
    assert times == sorted(times)


def test_what_is_in_the_way(tmp_path: Path) -> None:
    found = _explain(small_target(tmp_path, kilobytes=22), 256, budget=0)
    chip = found.diagnosis.chips[0]
    assert chip.excess > 0
    assert chip.tiles_over == 16
    assert chip.op_type == "MatMul"
    assert chip.node.startswith("mul")
    names = {holder.name for holder in chip.holders}
    assert {"w0", "w1", "w2"} <= names
    held = sum(holder.on_tile for holder in chip.holders) + chip.others
    assert held == chip.categories["variables"] + chip.categories["activations"]
    assert chip.temporary[0].amount == chip.categories["temporary"]
    assert sum(chip.categories.values()) == chip.peak
    assert found.advice is None


def test_changes_together_where_none_is_enough(tmp_path: Path) -> None:
    target = small_target(tmp_path, kilobytes=17)
    model = tower(batch=128)
    found = explain_model(model, options={"target": target}).to_dict()
    here = [fix for fix in found["fixes"] if not fix["notes"]]
    assert here
    for fix in here:
        assert len(fix["names"]) > 1
        popc.compile(model, options={"target": target, **fix["change"]["options"]})
    excess = {tuple(item["names"]): item.get("excess_bytes", 0) for item in found["insufficient"]}
    assert all(excess[name,] > 0 for fix in here for name in fix["names"])


def test_nothing_helps(tmp_path: Path) -> None:
    found = _explain(
        small_target(tmp_path, kilobytes=8), 64, options={"tiles_per_ipu": 4}, budget=50
    )
    advice = found.to_dict()
    assert all("it needs other hardware" in fix["notes"] for fix in advice["fixes"])
    excess = [item["excess_bytes"] for item in advice["insufficient"] if "excess_bytes" in item]
    assert excess == sorted(excess)
    assert min(excess) > 0


def test_results_that_change_are_said_to(tmp_path: Path) -> None:
    target = small_target(tmp_path, kilobytes=20)
    found = explain_model(
        tower(dtype=np.float16), dims={"batch": 512}, options={"target": target}
    ).to_dict()
    fixes = [*found["fixes"], *found["insufficient"]]
    half = [fix for fix in fixes if fix["names"] == ["sums of products in half precision"]]
    assert "results differ" in half[0]["notes"][0]


def test_processes_change_nothing(tmp_path: Path) -> None:
    target = small_target(tmp_path, kilobytes=14)
    alone = _explain(target, 64, budget=40).to_dict()
    assert alone == _explain(target, 64, budget=40, jobs=2).to_dict()


def test_the_budget_limits_advice(tmp_path: Path) -> None:
    target = small_target(tmp_path, kilobytes=14)
    found = _explain(target, 64, budget=10).to_dict()
    assert found["planned"] <= 10
    assert found["not_tried"]


def test_a_program_that_fits(tmp_path: Path) -> None:
    found = _explain(small_target(tmp_path, kilobytes=96), 64)
    assert found.fits
    data = found.to_dict()
    assert data["slowest_ops"][0]["op_type"] in {"MatMul", "HostLoad"}
    assert sum(data["cycles_by_op_type"].values()) == data["cycles"]["total"]
    for win in data["wins"]:
        assert win["fits"]
        assert win["saves"] in {"time", "memory"}


def test_no_target_no_refusal() -> None:
    """Only who chooses a target is told that it is too small."""
    popc.compile(tower(), dims={"batch": 64})
    with pytest.raises(DoesNotFitError) as caught:
        popc.compile(tower(), dims={"batch": 4096}, options={"tiles_per_ipu": 2})
    assert "tile 0 needs" in caught.value.details[0]
    assert caught.value.report["fits"] is False


def test_allowed_all_the_same() -> None:
    options = {"tiles_per_ipu": 2, "allow_out_of_memory": True}
    archive = popc.compile(tower(), dims={"batch": 4096}, options=options)
    assert any("does not fit ipu2" in note for note in archive.notes)
