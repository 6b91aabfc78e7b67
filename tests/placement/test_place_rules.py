"""Rules about ops of a chip, a stage or a pass; and chips that stages are mapped to."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from popc.ir import Graph, Op, StepPart
from popc.placement import main_graphs
from popc.request import make_options
from popc_runtime.errors import OptionError
from tests.placement.networks import (
    SGD,
    assert_equal,
    layered,
    on_chips,
    plain_program,
    run_program,
)
from tests.support.compiling import planned_model
from tests.training.deep import compiled
from tests.training.narrow import in_type

_AUTO: dict[str, Any] = {"virtual_graph_mode": "auto", "num_ipus": 2}
_PIPELINE: dict[str, Any] = {**_AUTO, "enable_pipelining": True}
_MANUAL: dict[str, Any] = {"virtual_graph_mode": "manual", "num_ipus": 2}


def _ops(graph: Graph) -> list[Op]:
    return [op for item in main_graphs(graph) for op in item.ops]


def _memory(ops: list[Op]) -> dict[tuple[int | None, StepPart], set[float | None]]:
    """Proportions of products and updates, by chip and part of the step."""
    found: dict[tuple[int | None, StepPart], set[float | None]] = defaultdict(set)
    for op in ops:
        if op.op_type == "MatMul" or op.op_type.startswith("SGD"):
            found[op.settings.virtual_graph, op.settings.part].add(op.settings.available_memory)
    return found


def test_stages_and_passes_have_proportions_of_their_own() -> None:
    rules = [
        {"on_pipeline_stage": 0, "available_memory": 0.1},
        {"on_pipeline_stage": 0, "in_pass": "backward", "available_memory": 0.2},
        {"on_pipeline_stage": 1, "in_pass": "forward", "available_memory": 0.3},
        {"on_pipeline_stage": 1, "in_pass": "update", "available_memory": 0.4},
        {"on_virtual_graph": 1, "in_pass": "backward", "op_type": "MatM*", "available_memory": 0.5},
    ]
    options: dict[str, Any] = {**_MANUAL, "enable_pipelining": True, "accumulation_factor": 4}
    found = _memory(_ops(compiled(on_chips(2, 2), SGD, annotate=rules, **options).graph))
    forward, backward, update = StepPart.FORWARD, StepPart.BACKWARD, StepPart.UPDATE
    assert found[0, forward] == {0.1}
    assert found[0, backward] == {0.2}
    assert found[0, update] == {0.1}
    assert found[1, forward] == {0.3}
    assert found[1, backward] == {0.5}
    assert found[1, update] == {0.4}


def test_partials_and_priorities_by_chip() -> None:
    rules = [
        {"on_virtual_graph": 1, "partials_type": "half"},
        {"on_virtual_graph": 0, "op_type": "MatMul", "schedule_priority": 2},
    ]
    model = in_type(on_chips(4, 2), "float16")
    ops = _ops(planned_model(model, {"annotate": rules, **_MANUAL}).graph)
    products = [op for op in ops if op.op_type in ("MatMul", "Gemm")]
    assert len(products) == 4
    for op in products:
        of_second = op.settings.virtual_graph == 1
        assert op.attributes.get("partials", "float") == ("half" if of_second else "float")
        assert op.settings.schedule_priority == (0 if of_second else 2)


def test_rules_of_places_change_what_the_estimate_plans() -> None:
    import popc

    def cycles(**options: Any) -> int:
        return popc.estimate(on_chips(2, 2), options={**_MANUAL, **options}).device_cycles

    tight = {"on_virtual_graph": 1, "available_memory": 0.00001}
    assert cycles(annotate=[tight]) != cycles()


_ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"on_virtual_graph": 5, "available_memory": 0.1}, "[0] selects no op: on_virtual_graph = 5"),
    ({"in_pass": "backward", "available_memory": 0.1}, '[0] selects no op: in_pass = "backward"'),
    ({"in_pass": "sideways", "available_memory": 0.1}, "must be one of forward, backward, update"),
    ({"on_virtual_graph": "a", "available_memory": 0.1}, "is 'a', but must be a whole number"),
    ({"on_virtual_graph": 0, "recompute": "checkpoint"}, "recompute is for nodes, but on_virtual"),
    ({"on_virtual_graph": 0, "available_memory": 2}, "available_memory is (2.0,), but must be abo"),
    ({"on_pipeline_stage": 0, "available_memory": 0.1}, "but enable_pipelining is false"),
    ({"on_virtual_graph": 0}, "has no annotation"),
]


@pytest.mark.parametrize(("rule", "message"), _ERRORS, ids=[row[1] for row in _ERRORS])
def test_rules_that_are_wrong(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as error:
        planned_model(on_chips(2, 2), {"annotate": [rule], **_MANUAL})
    assert message in "\n".join((error.value.message, *error.value.details))


def test_a_place_needs_chips() -> None:
    with pytest.raises(OptionError) as error:
        make_options({"annotate": [{"on_virtual_graph": 0, "schedule_priority": 1}]})
    assert "virtual_graph_mode is off" in "\n".join(error.value.details)


@pytest.mark.parametrize("mapping", [[1, 0], [0, 1, 0], [1, 0, 0, 1]], ids=str)
def test_stages_run_on_the_chips_of_the_mapping(mapping: list[int], tmp_path: Path) -> None:
    """Results are those of one chip, bit for bit."""
    model = layered([None] * 4, skips=True)
    common: dict[str, Any] = {"batches_per_step": 5}
    expected = plain_program(tmp_path, model, **common)
    options = {**common, **_PIPELINE, "device_mapping": mapping}
    assert_equal(run_program(tmp_path, model, **options), expected)
    for op in _ops(planned_model(model, options).graph):
        stage = op.settings.pipeline_stage
        if op.op_type == "MatMul" and stage is not None:
            assert op.settings.virtual_graph == mapping[stage]


def test_training_on_mapped_chips(tmp_path: Path) -> None:
    model = layered([None] * 4)
    plain = plain_program(tmp_path, model, SGD, accumulation_factor=8)
    options = {**_PIPELINE, "num_ipus": 4, "device_mapping": [3, 1]}
    mapped = run_program(tmp_path, model, SGD, accumulation_factor=8, **options)
    assert_equal(mapped, plain)


_MAPPINGS: list[tuple[dict[str, Any], str]] = [
    ({**_PIPELINE, "device_mapping": [0, 2]}, "names chip 2, but num_ipus is 2"),
    ({**_MANUAL, "device_mapping": [0, 1]}, "but virtual_graph_mode is manual"),
    ({**_AUTO, "device_mapping": [0, 1, 0]}, "names a chip twice"),
    (
        {**_PIPELINE, "device_mapping": [0, 1, 0], "layers_per_ipu": [1, 1]},
        "layers_per_ipu has 2 numbers, but device_mapping has 3: give one number for each stage",
    ),
]


@pytest.mark.parametrize(("given", "message"), _MAPPINGS, ids=[row[1] for row in _MAPPINGS])
def test_mappings_that_are_wrong(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError) as error:
        make_options(given)
    assert message in "\n".join(error.value.details)
