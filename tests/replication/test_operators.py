"""Operators of ai.graphcore by which models exchange data between replicas."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.replication.models import compiled, graphcore

_REPLICAS: Final = 4
_X: Final = np.arange(1, 1 + _REPLICAS * 6, dtype=np.float32).reshape(_REPLICAS, 6)


def _run(node: str, folder: Path, x: Array = _X, replicas: int = _REPLICAS) -> Array:
    model = graphcore(f"g (float[{x.shape[-1]}] x) => (float y) {{ y = ai.graphcore.{node} }}")
    return compiled(model, folder, replicated_graph_count=replicas).run({"x": x})["y"]


def _paired(x: Array) -> Array:
    return np.repeat(x.reshape(2, 2, -1).sum(axis=1), 2, axis=0)


def _crossed(x: Array) -> Array:
    return np.tile(x.reshape(2, 2, -1).sum(axis=0), (2, 1))


_NODES: Final[dict[str, Callable[[Array], Array]]] = {
    "ReplicatedAllReduce (x)": lambda x: np.tile(x.sum(axis=0), (4, 1)),
    "ReplicatedAllReduce <__collectiveOperator = 1> (x)": lambda x: np.tile(x.mean(axis=0), (4, 1)),
    "ReplicatedAllReduce <__collectiveOperator = 8> (x)": lambda x: x,
    "ReplicatedAllReduce <__collectiveCommGroup = [1, 2]> (x)": _paired,
    "ReplicatedAllReduce <__collectiveCommGroup = [2, 2]> (x)": _crossed,
    "ReplicatedAllReduce <__collectiveCommGroup = [3, 0]> (x)": lambda x: x,
    "ReplicatedAllReduce <__comm_group_type = 1, __comm_group_size = 2> (x)": _paired,
    'ReduceScatter <op = "COLLECTIVE_OP_MAX"> (x)': lambda x: np.array(
        [[19, 20], [21, 22], [23, 24], [0, 0]], np.float32
    ),
    "ReplicatedReduceScatter <__collectiveCommGroup = [1, 2]> (x)": lambda x: np.concatenate(
        [x[:2].sum(axis=0).reshape(2, 3), x[2:].sum(axis=0).reshape(2, 3)]
    ),
    "CrossReplicaSum <replica_group_size = 2> (x)": _paired,
    "AllGather <replication_factor = 2> (x)": lambda x: np.stack([x[:2], x[:2], x[2:], x[2:]]),
    "ReplicatedAllGather (x)": lambda x: np.tile(x.reshape(-1), (4, 1)),
    "ReplicatedBroadcast <root = 2> (x)": lambda x: np.tile(x[2], (4, 1)),
    "AssumeEqualAcrossReplicas (x)": lambda x: x,
    "AllToAll <replication_factor = 2> (x)": lambda x: np.concatenate(
        [x[:2].reshape(2, 2, 3).swapaxes(0, 1), x[2:].reshape(2, 2, 3).swapaxes(0, 1)]
    ).reshape(4, 6),
}


@pytest.mark.parametrize("node", _NODES)
def test_operator(node: str, tmp_path: Path) -> None:
    np.testing.assert_array_equal(_run(node, tmp_path), _NODES[node](_X))


@pytest.mark.parametrize("node", _NODES)
def test_a_single_replica_has_nobody_to_talk_to(node: str, tmp_path: Path) -> None:
    if "replication_factor" in node or "replica_group_size" in node or "root" in node:
        return
    model = graphcore(f"g (float[6] x) => (float y) {{ y = ai.graphcore.{node} }}")
    found = compiled(model, tmp_path).run({"x": _X[0]})["y"]
    np.testing.assert_array_equal(found, _X[0])


def test_all_to_all_along_other_dimensions(tmp_path: Path) -> None:
    body = "y = ai.graphcore.AllToAll <split_dimension = 2, concat_dimension = 1> (x)"
    model = graphcore(f"g (float[3,2,4] x) => (float y) {{ {body} }}")
    x = np.random.default_rng(0).standard_normal((2, 3, 2, 4)).astype(np.float32)
    found = compiled(model, tmp_path, replicated_graph_count=2).run({"x": x})["y"]
    expected = [np.concatenate(np.split(x, 2, axis=3)[own], axis=1) for own in range(2)]
    np.testing.assert_array_equal(found, np.stack(expected))


@pytest.mark.parametrize("replicas", [1, 3])
def test_replication_index(replicas: int, tmp_path: Path) -> None:
    model = graphcore("g () => (int32 y) { y = ai.graphcore.ReplicationIndex () }")
    found = compiled(model, tmp_path, replicated_graph_count=replicas).run({})["y"]
    np.testing.assert_array_equal(found, np.arange(replicas) if replicas > 1 else 0)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("ReplicatedAllReduce <__collectiveCommGroup = [1, 3]> (x)", "divided into groups of 3"),
        (
            "ReplicatedAllReduce <__collectiveCommGroup = [7, 2]> (x)",
            "unknown kind of replica group: 7",
        ),
        ("ReplicatedAllReduce <__collectiveOperator = 9> (x)", "unknown collective operator 9"),
        ('ReduceScatter <op = "COLLECTIVE_OP_XOR"> (x)', "unknown collective operator"),
        ("AllToAll (x)", "cannot be divided among 4 replicas"),
    ],
)
def test_mistakes(node: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=words):
        _run(node, tmp_path)
