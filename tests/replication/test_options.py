"""What can be said about replicas, and what cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popc
from popc.options import resolve_options
from popc.options.replica_groups import ReplicaGroups
from popc.request import make_options
from popc_runtime.errors import ModelError, OptionError
from tests.replication.models import compiled, graphcore, normalised
from tests.training.small import linear_model, trainable, training_program


def test_names_of_popart() -> None:
    options = make_options(
        {
            "enableReplicatedGraphs": True,
            "replicatedGraphCount": 4,
            "replicatedCollectivesSettings": {
                "mergeAllReduceCollectives": True,
                "mergeReduceScatterCollectives": False,
                "prepareScheduleForMergingCollectives": True,
            },
            "enableGradientAccumulation": True,
            "accumulationFactor": 2,
        }
    )
    assert options.replicated_graph_count == 4
    assert options.merge_all_reduce_collectives
    assert not options.merge_reduce_scatter_collectives
    assert options.prepare_schedule_for_merging_collectives
    flat = make_options({"replicatedCollectivesSettings.mergeAllGatherCollectives": "true"})
    assert flat.merge_all_gather_collectives


def test_tables_from_every_source(tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text(
        'replicated_graph_count = 4\n[variable_settings]\nw = "none"\n"b*" = "orthogonal:2"\n'
        '[replicated_stream_mode]\nx = "Broadcast"\n'
    )
    options = resolve_options(
        file=file,
        cli=["variable_settings.w=consecutive:2", "replicated_stream_mode.a=b=broadcast"],
        env={"POPC_VARIABLE_SETTINGS": "c=all"},
    )
    assert dict(options.variable_settings) == {
        "w": ReplicaGroups("consecutive", 2),
        "b*": ReplicaGroups("orthogonal", 2),
        "c": ReplicaGroups(),
    }
    assert options.replica_groups("bias") == ReplicaGroups("orthogonal", 2)
    assert options.replica_groups("other") == ReplicaGroups()
    assert dict(options.replicated_stream_mode) == {"x": "broadcast", "a=b": "broadcast"}
    assert options.stream_mode("y") == "replicate"
    manifest = {item.name: item.value for item in options.to_manifest()}
    assert manifest["variable_settings"] == (
        ("b*", "orthogonal:2"),
        ("c", "all"),
        ("w", "consecutive:2"),
    )


def test_groups() -> None:
    assert ReplicaGroups().numbers(4) == (0, 0, 0, 0)
    assert ReplicaGroups("none").numbers(3) == (0, 1, 2)
    assert ReplicaGroups("consecutive", 2).numbers(6) == (0, 0, 1, 1, 2, 2)
    assert ReplicaGroups("orthogonal", 2).numbers(6) == (0, 1, 2, 0, 1, 2)
    assert ReplicaGroups("orthogonal", 3).numbers(6) == (0, 1, 0, 1, 0, 1)


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(OptionError) as caught:
        make_options(
            {
                "replicated_graph_count": 4,
                "enableReplicatedGraphs": False,
                "variable_settings": {"w": "consecutive:3"},
                "distributed_batch_norm_replica_group_size": 3,
                "prepare_schedule_for_merging_collectives": True,
            }
        )
    details = "\n".join(caught.value.details)
    for words in (
        "enableReplicatedGraphs is false (in options), but replicated_graph_count is 4",
        "variable_settings of 'w': 4 replicas cannot be divided into groups of 3",
        "distributed_batch_norm_replica_group_size is 3, which does not divide",
        "set one of merge_all_gather_collectives",
    ):
        assert words in details
    assert len(caught.value.details) == 4


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("replicated_graph_count", 0, "must be at least 1"),
        ("replicated_graph_count", 5000, "must be at most 1024"),
        ("enableReplicatedGraphs", "perhaps", "must be true or false"),
        ("variable_settings", {"w": "pairs"}, "must be all, none, consecutive:N or orthogonal:N"),
        ("variable_settings", {"w": "consecutive"}, "must be all, none"),
        ("variable_settings", {"w": "all:2"}, "must be all, none"),
        ("variable_settings", {"w": "consecutive:0"}, "must be a positive whole number"),
        ("variable_settings", 3, "must be a table from weights to groups of replicas"),
        ("replicated_stream_mode", {"x": "scatter"}, "must be one of replicate, broadcast"),
        ("replicated_stream_mode", "x", "must be like"),
        ("globalReplicationFactor", 2, "enableDistributedReplicatedGraphs is not true"),
        ("replicatedCollectivesSettings", {"mergeAll": True}, "there is no option"),
    ],
)
def test_wrong_values(key: str, value: Any, words: str) -> None:
    with pytest.raises(OptionError) as caught:
        make_options({key: value})
    assert words in "\n".join(caught.value.details)


def test_a_switch_that_agrees_is_no_mistake() -> None:
    assert make_options({"enableReplicatedGraphs": False}).replicated_graph_count == 1
    assert make_options({"enableReplicatedGraphs": True}).replicated_graph_count == 1


# -- mistakes about a model ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"variable_settings": {"q": "none"}}, "the variables are w, b"),
        ({"replicated_stream_mode": {"targ": "broadcast"}}, "did you mean target?"),
        ({"replicated_stream_mode": {"q*": "broadcast"}}, "the inputs are x, target"),
    ],
)
def test_names_that_do_not_exist(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="do not exist") as caught:
        training_program(tmp_path, replicated_graph_count=2, **options)
    assert words in caught.value.details[0]


def test_constants_have_no_settings() -> None:
    options = {"variable_settings": {"w": "none"}, "replicated_graph_count": 2}
    with pytest.raises(OptionError) as caught:
        popc.compile(linear_model(), dims={"batch": 2}, options=options)
    assert "set constant_weights to false" in caught.value.details[0]


def test_weights_of_an_inference_program(tmp_path: Path) -> None:
    model = graphcore("g (float[2] x) => (float[2] y) <float[2] w = {1.0, 2.0}> { y = Mul (x, w) }")
    program = compiled(
        model,
        tmp_path,
        constant_weights=False,
        replicated_graph_count=2,
        variable_settings={"w": "none"},
    )
    w = np.array([[1, 2], [3, 4]], np.float32)
    program.state.write({"w": w})
    np.testing.assert_array_equal(program.run({"x": np.ones((2, 2), np.float32)})["y"], w)


def test_a_norm_of_shared_and_other_weights_is_refused(tmp_path: Path) -> None:
    train = trainable(clip_norm=[{"max_norm": 1.0}])
    with pytest.raises(OptionError, match="all replicas share together with some") as caught:
        training_program(tmp_path, train, replicated_graph_count=2, variable_settings={"b": "none"})
    assert "b" in caught.value.message
    apart = trainable(
        clip_norm=[{"max_norm": 1.0, "tensors": ["w"]}, {"max_norm": 1.0, "tensors": ["b"]}]
    )
    training_program(tmp_path, apart, replicated_graph_count=2, variable_settings={"b": "none"})


def test_statistics_of_whole_numbers_have_no_mean(tmp_path: Path) -> None:
    body = (
        "r = ReduceMax <keepdims = 0> (x) i = Cast <to = 6> (r) "
        "seen = ai.graphcore.CopyVarUpdate (count, i) y = Mul (x, w) "
        "loss = ReduceSum <keepdims = 0> (y) n = Identity (seen)"
    )
    model = graphcore(
        "g (float[2] x) => (float loss, int32 n) "
        f"<int32 count = {{0}}, float[2] w = {{1.0, 2.0}}> {{ {body} }}"
    )
    train = {
        "loss": {"type": "identity", "input": "loss"},
        "optimizer": {"type": "sgd", "learning_rate": 0.1},
    }
    with pytest.raises(ModelError, match="may differ and have no mean") as caught:
        compiled(model, tmp_path, train, replicated_graph_count=2)
    assert "variable_settings.count = none" in caught.value.hint
    program = compiled(
        model, tmp_path, train, replicated_graph_count=2, variable_settings={"count": "none"}
    )
    program.run({"x": np.array([[1, 7], [5, 2]], np.float32)})
    np.testing.assert_array_equal(program.state.read()["count"], [7, 5])
    program.state.check_equal_across_replicas()


def test_normalisation_that_is_not_divided(tmp_path: Path) -> None:
    program = compiled(normalised(), tmp_path, distributed_batch_norm_replica_group_size=1)
    assert program.manifest.replicas == 1
