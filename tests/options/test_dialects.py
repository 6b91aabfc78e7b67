"""Settings of other systems: recognised, translated, accounted for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from popc.cli.root import run
from popc.options import Options, resolve_options
from popc.options.dialects.dialect import Becomes
from popc.options.dialects.known import DIALECTS, dialect_named, marks_of, native_names
from popc.options.dialects.listing import describe_dialect, dialect_names
from popc.options.options import SCHEMA
from popc_runtime.errors import OptionError
from popc_runtime.format import Origin
from tests.options.host_names import NAMES
from tools.dialects_page import dialects_page

_OPTIONS = {spec.name: spec for spec in SCHEMA}


def _resolved(table: dict[str, Any], *, trains: bool = False, **more: Any) -> Options:
    return resolve_options(values=table, trains=trains, **more)


def _set(options: Options) -> dict[str, Any]:
    """Options that are not at their defaults, in plain form."""
    rows = options.to_manifest()
    return {row.name: row.value for row in rows if row.origin is not Origin.DEFAULT}


# -- tables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "setting"), [(n, s) for n in NAMES for s in NAMES[n]])
def test_every_setting_that_is_documented_has_a_row(name: str, setting: str) -> None:
    dialect = dialect_named(name)
    assert dialect is not None
    assert dialect.knows(setting)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_rows_are_whole(dialect: Any) -> None:
    names = [key.name for key in dialect.keys]
    assert len(set(names)) == len(names)
    for key in dialect.keys:
        assert key.fate.words, key.name
        if key.default is not None:
            assert key.kind.parse(key.default) == key.default, key.name
        if isinstance(key.fate, Becomes):
            assert key.fate.option in _OPTIONS, key.name
    if not dialect.mixes:
        assert marks_of(dialect)
        assert not marks_of(dialect) & native_names()


def test_the_page_is_that_of_the_code() -> None:
    page = Path(__file__).parents[2] / "docs" / "dialects.md"
    assert page.read_text(encoding="utf-8") == dialects_page(), "make docs"


# -- recognition -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ({"replication_factor": 2}, "optimum"),
        ({"optimizations": {"combine_matmuls": True}}, "tensorflow"),
        ({"optimizations.combine_matmuls": True}, "tensorflow"),
        ({"micro_batch_size": 2, "batches_per_step": 4}, "paddle"),
        ({"dialect": "optimum", "seed": 3}, "optimum"),
        ({"seed": 3, "batchesPerStep": 4}, ""),
        ({"dialect": "popart", "seed": 3}, ""),
    ],
)
def test_a_table_is_recognised(table: dict[str, Any], name: str) -> None:
    assert _resolved(table).foreign.dialect == name


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (
            {"replication_factor": 2, "micro_batch_size": 1},
            "settings of several systems do not mix: replication_factor (in options) is of Opt",
        ),
        ({"dialect": "pytorch"}, "dialect is 'pytorch' (in options), but must be one of popart, "),
        (
            {"replication_factor": 2, "layers_per_ip": 1},
            "Optimum's IPUConfig has no 'layers_per_ip' (in options): did you mean layers_per_ipu?",
        ),
        (
            {"optimizations": {"combine_matmul": True}},
            (
                "TensorFlow's IPUConfig has no 'optimizations.combine_matmul' (in options): did "
                "you mean optimizations.combine_matmuls?"
            ),
        ),
        (
            {"replication_factor": 0},
            "replication_factor is 0, but must be at least 1 (in options)",
        ),
        (
            {"scheduling": {"algorithm": "FASTEST"}},
            "scheduling.algorithm is 'FASTEST', but must be one of CHOOSE_BEST, ",
        ),
        (
            {"auto_select_ipus": [2, 2]},
            "auto_select_ipus is [2, 2], several devices, but an archive is a program for one",
        ),
        (
            {"replication_factor": {"pod4": 1}},
            "replication_factor has values for pod4, and no default",
        ),
        (
            {"num_ipus": 2, "build_strategy": {"num_trainers": 2}},
            "build_strategy.num_trainers = 2 (in options) is refused: ",
        ),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_the_system(
    table: dict[str, Any], problem: str
) -> None:
    with pytest.raises(OptionError) as caught:
        _resolved(table)
    assert any(line.startswith(problem) for line in caught.value.details), caught.value.details


def test_a_conflict_names_the_settings_that_options_follow_from() -> None:
    with pytest.raises(OptionError) as caught:
        _resolved({"layers_per_ipu": [1, 1], "matmul_proportion": [0.1] * 3}, trains=True)
    assert caught.value.details == (
        (
            "available_memory_per_ipu has 3 numbers, but num_ipus is 2: give one number for each "
            "chip (num_ipus follows from layers_per_ipu; available_memory_per_ipu follows from "
            "matmul_proportion)"
        ),
    )
    assert "`popc options --dialect optimum`" in caught.value.hint


# -- translation -----------------------------------------------------------------------------------

_WORD_TABLES = ["*word_embeddings*", "*embed_tokens*", "*wte*", "*shared*"]
_OPTIMUM = {
    "optimum_version": "1.0.0",
    "seed": 42,
    "auto_loss_scaling": True,
    "replication_factor": {"pod4": 1, "default": 2},
    "inference_replication_factor": 4,
    "gradient_accumulation_steps": 16,
    "layers_per_ipu": [1, 2],
    "sharded_execution_for_inference": True,
    "replicated_tensor_sharding": True,
    "matmul_proportion": [0.1, 0.3],
    "embedding_serialization_factor": 4,
    "recompute_checkpoint_every_layer": True,
    "inference_device_iterations": 5,
}


def test_settings_of_two_systems_are_one_problem() -> None:
    """Not three: neither is a mistyped option of popc."""
    with pytest.raises(OptionError) as caught:
        _resolved({"norms": {"use_stable_statistics": True}, "replication_factor": 2, "seed": 1})
    (problem,) = caught.value.details
    assert problem == (
        "settings of several systems do not mix: norms (in options) is of TensorFlow's IPUConfig; "
        "replication_factor (in options) is of Optimum's IPUConfig"
    )


def test_a_mistyped_setting_of_a_system_is_found_there() -> None:
    with pytest.raises(OptionError) as caught:
        _resolved({"gradient_accumulation_step": 2})
    advice = "did you mean gradient_accumulation_steps of Optimum's IPUConfig?"
    assert advice in caught.value.details[0]
    with pytest.raises(OptionError) as caught:
        _resolved({"batches_per_stp": 2})
    assert "did you mean batches_per_step?" in caught.value.details[0]


def test_chips_of_optimum_without_layers() -> None:
    """Layers are divided evenly, in a pipeline."""
    options = _resolved({"ipus_per_replica": 2}, trains=True)
    assert options.layers_per_ipu == (-1, -1)
    assert options.enable_pipelining
    assert not _resolved({"replication_factor": 2}, trains=True).layers_per_ipu


def test_optimum_in_training() -> None:
    options = _resolved(_OPTIMUM, trains=True)
    assert _set(options) == {
        "accumulate_outer_fragment_excluded_virtual_graphs": (0,),
        "accumulate_outer_fragment_schedule": "overlap_memory_optimized",
        "accumulation_and_replication_reduction_type": "mean",
        "accumulation_factor": 16,
        "annotate": (f"nodes = {json.dumps(_WORD_TABLES)}, serialize_lookup_factor = 4",),
        "auto_recomputation": "pipeline",
        "available_memory_per_ipu": (0.1, 0.3),
        "default_anchor": "final",
        "enable_outlining": True,
        "enable_pipelining": True,
        "enable_stochastic_rounding": True,
        "layers_per_ipu": (1, 2),
        "num_ipus": 2,
        "optimizer_state_tensor_location": (
            ("replicated_tensor_sharding", True),
            ("storage", "off_chip"),
        ),
        "outline_threshold": 10.0,
        "partials_type": "half",
        "partials_type_matmuls": "half",
        "replicated_graph_count": 2,
        "schedule_non_weight_update_gradient_consumers_early": True,
        "seed": 42,
        "subgraph_copying_strategy": "just_in_time",
        "virtual_graph_mode": "auto",
    }
    assert dict(options.foreign.training) == {"optimizer.automatic_loss_scaling": {}}
    assert options.foreign.notes == ()
    assert options.foreign.keys["replicated_graph_count"] == "replication_factor"


def test_optimum_in_inference() -> None:
    found = _set(_resolved(_OPTIMUM))
    assert {
        name: found[name]
        for name in ("replicated_graph_count", "batches_per_step", "default_anchor")
    } == {"replicated_graph_count": 4, "batches_per_step": 5, "default_anchor": "all"}
    assert found["enable_pipelining"] is False
    assert not {"accumulation_factor", "optimizer_state_tensor_location"} & found.keys()


def test_later_sources_win_setting_by_setting(tmp_path: Path) -> None:
    file = tmp_path / "ipu_config.json"
    file.write_text(json.dumps({"replication_factor": 2, "device_iterations": 3}))
    options = resolve_options(
        file=file, values={"device_iterations": 4}, cli=["outline_threshold=1"], trains=True
    )
    assert (options.replicated_graph_count, options.batches_per_step) == (2, 4)
    assert options.origin("batches_per_step") is Origin.API
    assert options.outline_threshold == 1
    assert options.origin("default_anchor") is Origin.FILE  # a default of Optimum


@pytest.mark.parametrize(
    ("table", "trains", "expected"),
    [
        (
            {"num_ipus": 2, "micro_batch_size": 3, "enable_pipelining": True},
            False,
            {
                "num_ipus": 2,
                "virtual_graph_mode": "auto",
                "batch_size": 3,
                "enable_pipelining": True,
            },
        ),
        (
            {"accumulation_factor": 4, "enable_gradient_accumulation": True},
            True,
            {"accumulation_factor": 4},
        ),
        ({"accumulation_factor": 4, "enable_gradient_accumulation": True}, False, {}),
        (
            {"with_data_parallel": {"places": ["cpu", "cpu"]}},
            True,
            {"replicated_graph_count": 2, "replica_reduction_type": "mean"},
        ),
        (
            {"build_strategy": {"fuse_all_reduce_ops": True, "sync_batch_norm": True},
             "with_data_parallel.places": 2},
            True,
            {
                "merge_all_reduce_collectives": True,
                "distributed_batch_norm_replica_group_size": 2,
                "replica_reduction_type": "mean",
                "replicated_graph_count": 2,
            },
        ),
        ({"exec_strategy": {"num_iteration_per_run": 3}}, False, {"batches_per_step": 3}),
        ({"num_ipus": 1, "enable_fp16": True}, False, {"num_ipus": 1, "precision": "float16"}),
    ],
)  # fmt: skip
def test_paddle(table: dict[str, Any], trains: bool, expected: dict[str, Any]) -> None:  # noqa: FBT001
    assert _set(_resolved({"is_training": trains, **table}, trains=trains)) == expected


_REPLICATED = {"enable_replicated_graphs": True, "replicated_graph_count": 2}
_FRAGMENT = "accumulate_outer_fragment"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({**_REPLICATED, "num_ipus": 3}, "does not fit num_ipus = 3, which are the chips of all"),
        (_REPLICATED, "does not fit num_ipus = 1, which are the chips of all replicas together"),
        ({_FRAGMENT: {4: [0]}}, "has a schedule that is 4, but must be at most 3"),
        ({_FRAGMENT: {"3": [0, -1]}}, "has a chip that is -1, but must be at least 0"),
        ({_FRAGMENT: {3: 0}}, "has 0 where a list of chips must be, as in {3: [0]}"),
        ({_FRAGMENT: {3: [0], 1: []}}, "is {3: [0], 1: []}, but must be a table with one schedule"),
    ],
)
def test_what_paddle_cannot_mean_is_one_problem(table: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        _resolved({"is_training": True, **table}, trains=True)
    (problem,) = caught.value.details
    assert said in problem


def test_a_setting_without_an_effect_is_told_once_with_the_reason() -> None:
    options = _resolved(
        {"norms": {"use_stable_statistics": True}, "device_connection": {"type": "ALWAYS"}}
    )
    assert options.foreign.notes == (
        (
            "norms.use_stable_statistics = True (in options) has no effect: statistics always are "
            "stable"
        ),
    )


def test_dialects_are_listed() -> None:
    assert dialect_names() == ("popart", "tensorflow", "optimum", "paddle")
    rows = {row["key"]: row for row in describe_dialect("popart")}
    assert rows["batchesPerStep"]["becomes"] == "`batches_per_step`"
    assert rows["enableEngineCaching"]["status"] == "refused"
    with pytest.raises(OptionError, match="there is no dialect 'optmum'") as caught:
        describe_dialect("optmum")
    assert caught.value.hint == "did you mean optimum?"


def test_the_command_line_lists_dialects(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["options", "--dialect", "paddle", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["dialect"] == "paddle"
    names = [row["name"] for row in document["options"]]
    assert names[:2] == ["num_ipus", "is_training"]
    assert run(["options", "num_ipu", "--dialect", "paddle"]) == 2
    assert "did you mean num_ipus?" in capsys.readouterr().err
