"""Merged updates: the same results, bit for bit, from fewer instructions and without copies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

import popc
from popc_runtime.errors import OptionError
from popc_runtime.format import Array
from tests.optimizers.cases import CASES
from tests.training.many_weights import many_weights, many_weights_program, states_after

_ELEMENTWISE: Final = [
    case for case, (settings, _) in CASES.items() if not settings["type"].startswith("lamb")
]
_LOOPED: Final = ("sgd1-velocity-scaling", "adam", "centered_rmsprop-tf")
_WAYS: Final[dict[str, dict[str, Any]]] = {
    "all": {},
    "auto_tight": {"merge_var_update_mem_threshold": 200},
    "auto_loose": {"merge_var_update_mem_threshold": 400, "loose_threshold_at_peak": 100},
}
_LOOPS: Final[list[dict[str, Any]]] = [
    {},
    {"accumulation_factor": 3, "batches_per_step": 2},
]


def _same(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        assert found[name].tobytes() == value.tobytes(), name


def _case(case: str, loops: dict[str, Any]) -> Any:
    """Loops run the same updates more often: one of each kind of state shows that, all are slow."""
    is_slow = bool(loops) and case not in _LOOPED
    return pytest.param(case, loops, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize(
    ("case", "loops"), [_case(case, loops) for case in _ELEMENTWISE for loops in _LOOPS], ids=str
)
def test_results_are_the_same(case: str, loops: dict[str, Any], tmp_path: Path) -> None:
    settings = CASES[case][0]
    plain = states_after(many_weights_program(tmp_path, settings, **loops))
    for way, thresholds in _WAYS.items():
        options = {"merge_var_update": way, **thresholds, **loops}
        _same(states_after(many_weights_program(tmp_path, settings, **options)), plain)


@pytest.mark.parametrize("loops", _LOOPS, ids=str)
@pytest.mark.parametrize(
    "settings",
    [
        {"type": "adam", "clip_norm": [{"max_norm": 0.1, "tensors": ["w*"]}]},
        {"type": "sgd", "momentum": 0.9, "specific": [{"tensors": ["b*"], "momentum": 0.5}]},
        {"type": "adam", "learning_rate": [0.01, False], "loss_scaling": [16.0, False]},
    ],
    ids=["clipped", "specific", "changeable"],
)
def test_partitions(settings: dict[str, Any], loops: dict[str, Any], tmp_path: Path) -> None:
    plain = states_after(many_weights_program(tmp_path, settings, **loops))
    for way, thresholds in _WAYS.items():
        options = {"merge_var_update": way, **thresholds, **loops}
        _same(states_after(many_weights_program(tmp_path, settings, **options)), plain)


@pytest.mark.parametrize("case", ["sgd1-velocity-scaling", "adam"])
def test_replicas(case: str, tmp_path: Path) -> None:
    """Weights are merged only with those that as many replicas share."""
    settings = CASES[case][0]
    loops: dict[str, Any] = {
        "replicated_graph_count": 2,
        "accumulation_factor": 2,
        "variable_settings": {"s*": "none"},
    }
    plain = states_after(many_weights_program(tmp_path, settings, **loops))
    for way, thresholds in _WAYS.items():
        options = {"merge_var_update": way, **thresholds, **loops}
        _same(states_after(many_weights_program(tmp_path, settings, **options)), plain)


def test_lamb_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="norm of this weight"):
        many_weights_program(tmp_path, {"type": "lamb"}, merge_var_update="all")


def test_only_training_updates() -> None:
    with pytest.raises(OptionError, match="merge_var_update: for training"):
        popc.compile(many_weights(), dims={"batch": 1}, options={"merge_var_update": "all"})


def test_names_of_popart(tmp_path: Path) -> None:
    options: dict[str, Any] = {"mergeVarUpdate": "AutoTight", "mergeVarUpdateMemThreshold": 100}
    program = many_weights_program(tmp_path, {"type": "sgd"}, **options)
    found = {row.name: row.value for row in program.manifest.options}
    assert found["merge_var_update"] == "auto_tight"
    assert found["merge_var_update_mem_threshold"] == 100
