"""What an archive tells about its program, and what happens if somebody has meddled with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest

import popc
from popc.cost import decode_report
from popc.reporting import Profile, compare_profiles, profile_of, report_data
from popc.reporting.estimation import encode_report
from popc.reporting.memory import by_tile
from popc.reporting.timeline import starts_of
from popc_runtime.errors import CorruptArchiveError, UsageError
from samples.networks import digits_cnn, sorting_transformer
from tests.reporting.models import chain
from tests.support.models import affine, counter_loop

_ALL = ("summary", "graph", "execution", "memory")


def _profile(model: Any, options: Mapping[str, object] | None = None, **more: Any) -> Profile:
    archive = popc.compile(model, options={"cost_report": True, **(options or {})}, **more)
    return profile_of(archive, "model.popx")


@pytest.fixture(scope="module")
def digits() -> Profile:
    return _profile(digits_cnn(), {"num_ipus": 2}, dims={"batch": 4})


_APART: dict[str, object] = {"disabled_passes": ["fuse_elementwise"]}
_TWO_CHIPS: dict[str, object] = {"num_ipus": 2, "virtual_graph_mode": "auto"}
_TRAIN: dict[str, object] = {
    "loss": {"type": "cross_entropy", "input": "logits", "label": "digits"},
    "optimizer": {"type": "sgd", "learning_rate": 0.1},
}


@pytest.mark.parametrize(
    ("options", "train"),
    [
        ({"enable_pipelining": True, "batches_per_step": 8}, None),
        ({}, None),
        ({"batches_per_step": 8}, _TRAIN),
        ({"accumulation_factor": 4, "enable_outlining": True}, _TRAIN),
        ({"enable_pipelining": True, "accumulation_factor": 8}, _TRAIN),
        (
            {
                "virtual_graph_mode": "execution_phases",
                "execution_phases": 4,
                "weight_tensor_location": {"storage": "off_chip"},
            },
            _TRAIN,
        ),
    ],
    ids=str,
)
def test_chips_run_at_the_same_time(
    options: dict[str, object], train: dict[str, object] | None
) -> None:
    report = popc.estimate(
        sorting_transformer(),
        dims={"batch": 4},
        options={**_TWO_CHIPS, **options},
        train=train,
    )
    assert (report.pipeline is not None) == ("enable_pipelining" in options)
    assert decode_report(encode_report(report)) == report
    starts = starts_of(report.ops)
    spans = sorted(
        (op.ipu, start, start + op.cycles.total)
        for op, start in zip(report.ops, starts, strict=True)
    )
    for (chip, _, end), (other, start, _) in pairwise(spans):
        assert chip != other or end <= start
    assert max(end for *_, end in spans) == report.cycles.total
    one_by_one = sum(op.cycles.total for op in report.ops)
    assert one_by_one > report.cycles.total or not options  # a chain of two chips


@pytest.mark.parametrize(
    ("model", "dims"),
    [(digits_cnn(), {"batch": 4}), (sorting_transformer(), {"batch": 2}), (counter_loop(), {})],
)
def test_a_stored_report_is_the_one_that_was_computed(model: Any, dims: Mapping[str, int]) -> None:
    report = popc.estimate(model, dims=dims)
    again = decode_report(encode_report(report))
    assert again == report


_DAMAGE: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("not a table", lambda data: []),
    ("no ops", lambda data: data.pop("ops")),
    ("steps of text", lambda data: data["memory"][0].update(steps="many")),
    ("step without bytes", lambda data: data["memory"][0]["steps"][0].pop("busiest")),
    ("cycles of text", lambda data: data["ops"][0]["cycles"].update(compute="1")),
    ("true cycles", lambda data: data["ops"][0]["cycles"].update(compute=True)),
    ("tile of float", lambda data: data["memory"][0]["peak"].__setitem__(0, 1.5)),
    ("unknown topology", lambda data: data["target"]["links"].update(topology="torus")),
    ("no clock", lambda data: data["target"]["tile"].update(clock_hz=0)),
    ("no end of cycles", lambda data: data["ops"][0]["cycles"].update(compute=10**400)),
    ("no chips", lambda data: data.update(memory=[])),
    ("tiles miscounted", lambda data: data["memory"][0]["peak"].append(1)),
    ("op on no chip", lambda data: data["ops"][0].update(ipu=7)),
    ("half a character", lambda data: data["ops"][0].update(name="\ud800")),
    ("op is a number", lambda data: data["ops"].append(3)),
]


@pytest.mark.parametrize("damage", [case[1] for case in _DAMAGE], ids=[case[0] for case in _DAMAGE])
def test_a_damaged_report_is_refused(damage: Callable[[dict[str, Any]], Any]) -> None:
    data = json.loads(encode_report(popc.estimate(digits_cnn(), dims={"batch": 1})))
    changed = damage(data)
    text = json.dumps(changed if changed == [] else data)
    with pytest.raises(CorruptArchiveError, match="cost report"):
        decode_report(text.encode())


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b'{"memory": [1]}'])
def test_what_is_no_report_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptArchiveError):
        decode_report(text)


def test_categories_of_a_tile_add_up(digits: Profile) -> None:
    for chip in digits.known_costs().memory:
        tiles = by_tile(chip)
        for tile, total in enumerate(chip.peak):
            parts = [column[tile if len(column) > 1 else 0] for column in tiles.values()]
            assert sum(parts) == total
            assert min(parts) >= 0


def test_sections_agree_with_the_report(digits: Profile) -> None:
    costs = digits.known_costs()
    data = report_data(digits, _ALL, full=True)
    json.dumps(data, allow_nan=False)
    assert data["summary"]["total_cycles"] == costs.cycles.total
    assert data["execution"]["cycles"]["total"] == costs.cycles.total
    assert sum(data["execution"]["cycles_by_op_type"].values()) == costs.cycles.total
    steps = data["execution"]["program_steps"]
    assert [step["name"] for step in steps] == [op.name for op in costs.ops]
    assert sum(data["graph"]["ops_by_type"].values()) == len(costs.ops)
    chip = data["memory"]["ipus"][0]
    assert chip["always_live_bytes"] + chip["not_always_live_bytes"] == chip["max_tile_bytes"]
    assert sum(row["max_tile"] for row in chip["by_category"].values()) == chip["max_tile_bytes"]
    assert max(row["max_tile_bytes"] for row in chip["liveness"]) == chip["max_tile_bytes"]


def test_tensors_are_live_from_the_op_that_makes_them() -> None:
    (chip,) = _profile(chain(5), {"enable_inplace": False, **_APART}).known_costs().memory
    names = [step.name for step in chip.steps]
    made = {tensor.name: tensor for tensor in chip.tensors if tensor.kind == "activation"}
    for index, name in enumerate(names[:-1]):
        if name in made:
            assert made[name].first == index
            assert made[name].last == index + 1
    assert len(made) >= 5
    assert [tensor.bytes for tensor in chip.tensors] == sorted(
        (tensor.bytes for tensor in chip.tensors), reverse=True
    )


@pytest.mark.parametrize("counters", [False, True])
def test_an_archive_without_costs_says_so(*, counters: bool) -> None:
    options = {"instrument_with_hardware_cycle_counter": counters}
    profile = profile_of(popc.compile(affine(), options=options), "plain.popx")
    with pytest.raises(UsageError, match=r"plain\.popx has no cost report") as caught:
        report_data(profile, ("summary",))
    assert "cost_report = true" in caught.value.hint


# -- comparison ------------------------------------------------------------------------------------


def test_a_program_is_the_same_as_itself(digits: Profile) -> None:
    found = compare_profiles(digits, digits)
    assert found["same"]
    assert set(found) == {"same", "archive_bytes", "blob_bytes", "without_costs"}


def test_what_differs_is_found(digits: Profile) -> None:
    other = _profile(digits_cnn(), {"num_ipus": 2, "target": "bow"}, dims={"batch": 8})
    found = compare_profiles(digits, other)
    assert not found["same"]
    costs = found["costs"]
    assert {row["name"] for row in costs["target"]} >= {"name", "clock"}
    total = next(row for row in costs["cycles"] if row["name"] == "total")
    assert total["after"] == other.known_costs().cycles.total
    changed = [row["cycles"]["after"] - row["cycles"]["before"] for row in costs["ops"]["changed"]]
    assert sum(changed) == total["after"] - total["before"]
    assert list(map(abs, changed)) == sorted(map(abs, changed), reverse=True)
    assert costs["ops"]["added"] == costs["ops"]["removed"] == []
    assert [row["name"] for row in found["interface"]["inputs"]] == ["image"]
    assert [row["name"] for row in found["options"]] == ["target"]


def test_ops_that_come_and_go_are_named() -> None:
    found = compare_profiles(_profile(chain(5), _APART), _profile(chain(7), _APART))
    ops = found["costs"]["ops"]
    assert {row["name"] for row in ops["added"]} == {"block.4", "block.5", "y"}
    assert {row["name"] for row in ops["removed"]} == {"y"}


def test_steps_of_chains_that_come_and_go_are_named() -> None:
    found = compare_profiles(_profile(chain(2)), _profile(chain(3)))
    (changed,) = found["costs"]["ops"]["changed"]
    assert (changed["name"], changed["op_type"]) == ("y", "FusedElementwise")
    assert changed["plans"] == {"before": ["Relu, Tanh"], "after": ["Relu, Tanh, Sigmoid"]}
    assert changed["node"] == "block.0, block.1, y"


def test_costs_count_for_nothing_where_they_are_unknown(digits: Profile) -> None:
    plain = profile_of(popc.compile(digits_cnn(), dims={"batch": 4}), "plain.popx")
    found = compare_profiles(plain, digits)
    assert found["without_costs"] == ["plain.popx"]
    assert "costs" not in found
    assert [row["name"] for row in found["options"]] == ["num_ipus"]
