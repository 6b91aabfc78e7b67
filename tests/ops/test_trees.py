"""Ensembles of trees against onnxruntime and the reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.classical import check, ml_model, typed
from tests.support.oracles import run_ir, run_model

_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_FEATURES = 4


def _grown(rng: np.random.Generator, trees: int, modes: tuple[str, ...]) -> dict[str, list[Any]]:
    """Nodes of random trees: small numbers, so that rows often meet thresholds exactly."""
    columns: dict[str, list[Any]] = {
        name: []
        for name in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids",
                     "falsenodeids", "missing_value_tracks_true")
    }  # fmt: skip
    for tree in range(trees):
        count, leaves = 1, [0]
        rows: dict[int, tuple[Any, ...]] = {}
        while leaves and count < 2 + 2 * int(rng.integers(0, 12)):
            node = leaves.pop(int(rng.integers(len(leaves))))
            rows[node] = (
                int(rng.integers(_FEATURES)), float(rng.integers(-2, 3)) / 2,
                modes[rng.integers(len(modes))], count, count + 1, int(rng.integers(2)),
            )  # fmt: skip
            leaves += [count, count + 1]
            count += 2
        for node in [0, *(1 + rng.permutation(count - 1)).tolist()]:
            row = rows.get(node, (0, 0.0, "LEAF", 0, 0, 0))
            for name, value in zip(columns, (tree, node, *row[:2], *row[2:]), strict=True):
                columns[name].append(value)
    return {f"nodes_{name}": column for name, column in columns.items()}


def _leaves(rng: np.random.Generator, nodes: dict[str, list[Any]], prefix: str, targets: int,
            entries: int, *, positive: bool = False) -> dict[str, list[Any]]:  # fmt: skip
    columns: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    names = zip(nodes["nodes_treeids"], nodes["nodes_nodeids"], nodes["nodes_modes"], strict=True)
    for tree, node, mode in names:
        if mode == "LEAF":
            for target in rng.permutation(targets)[:entries].tolist():
                weight = float(rng.integers(1 if positive else -8, 9)) / 8
                for name, value in zip(columns, (tree, node, target, weight), strict=True):
                    columns[name].append(value)
    return {f"{prefix}_{name}": column for name, column in columns.items()}


def _rows(rng: np.random.Generator, count: int, dtype: type = np.float32) -> Array:
    x: Array = (rng.integers(-4, 5, (count, _FEATURES)) / 4).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x[rng.random(x.shape) < 0.1] = np.nan
    return x


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@given(seed=st.integers(0, 1 << 16), targets=st.integers(1, 3), rows=st.sampled_from([1, 3, 17]))
@settings(max_examples=6, deadline=None)
def test_regressors(aggregate: str, seed: int, targets: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = _grown(rng, int(rng.integers(1, 5)), _MODES if seed % 2 else _MODES[:4])
    attributes = {
        **nodes,
        **_leaves(rng, nodes, "target", targets, int(rng.integers(1, targets + 1))),
        "n_targets": targets,
        "aggregate_function": aggregate,
    }
    if seed % 3:
        attributes["base_values"] = [0.25, -0.5, 1.0][:targets]
    check(ml_model("TreeEnsembleRegressor", attributes, 1), [_rows(rng, rows)])


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@given(seed=st.integers(0, 1 << 16), classes=st.integers(2, 4))
@settings(max_examples=6, deadline=None)
def test_classifiers(transform: str, seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = _grown(rng, int(rng.integers(1, 5)), _MODES[:4])
    named = 1 if classes == 2 and seed % 4 < 3 else classes
    leaves = _leaves(rng, nodes, "class", named, named, positive=bool(seed % 2))
    attributes = {**nodes, **leaves, "post_transform": transform}
    if seed % 3 == 0:
        attributes["base_values"] = [0.25, -0.5, 1.0, 0.0][:classes]
    if seed % 5:
        attributes["classlabels_int64s"] = list(range(classes))
    else:
        attributes["classlabels_strings"] = ["ash", "beech", "cedar", "fir"][:classes]
    check(ml_model("TreeEnsembleClassifier", attributes, 2), [_rows(rng, 9)])


@pytest.mark.parametrize("dtype", [np.float64])
def test_other_types_of_rows(dtype: type) -> None:
    rng = np.random.default_rng(5)
    nodes = _grown(rng, 3, _MODES[:4])
    attributes = {**nodes, **_leaves(rng, nodes, "target", 1, 1), "n_targets": 1}
    check(ml_model("TreeEnsembleRegressor", attributes, 1), [_rows(rng, 17, dtype)])


def _numbered(dtype: type, modes: list[int], **further: Any) -> onnx.ModelProto:
    """One tree of TreeEnsemble-5: two questions, three leaves."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))

    def tensor(values: list[float]) -> onnx.TensorProto:
        return helper.make_tensor("t", kind, [len(values)], np.array(values, dtype))

    attributes = {
        "tree_roots": [0], "n_targets": 2, "nodes_featureids": [0, 2],
        "nodes_modes": helper.make_tensor("m", onnx.TensorProto.UINT8, [2], modes),
        "nodes_splits": tensor([0.25, -0.5]), "nodes_truenodeids": [1, 0],
        "nodes_trueleafs": [0, 1], "nodes_falsenodeids": [2, 1], "nodes_falseleafs": [1, 1],
        "leaf_targetids": [0, 1, 0], "leaf_weights": tensor([0.5, -1.5, 2.0]), **further,
    }  # fmt: skip
    if 6 in modes:
        attributes["membership_values"] = tensor([0.25, 0.5, -1.0, np.nan])
    return ml_model("TreeEnsemble", attributes, 1, version=5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("modes", [[0, 3], [1, 2], [4, 5], [6, 0], [0, 6]], ids=str)
def test_trees_with_numbered_leaves(dtype: type, modes: list[int]) -> None:
    model, rng = _numbered(dtype, modes), np.random.default_rng(7)
    x: Array = (rng.integers(-4, 5, (20, _FEATURES)) / 4).astype(dtype)
    (got,) = run_model(typed(model, [x]), {"x0": x})
    (wanted,) = ReferenceEvaluator(model).run(None, {"x0": x})
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got, np.asarray(wanted), rtol=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"nodes_truenodeids": [9, 0, 0]}, "no node 9"),
        ({"nodes_modes": ["BRANCH_NEAR", "LEAF", "LEAF"]}, "no mode"),
        ({"nodes_values": [0.0]}, "different lengths"),
        ({"nodes_falsenodeids": [1, 0, 0]}, "below several"),
        ({"target_ids": [0, 7]}, "target 7 of 1"),
        ({"nodes_featureids": [5, 0, 0]}, None),
        ({"aggregate_function": "MEAN"}, "aggregate"),
    ],
    ids=str,
)
def test_what_is_no_tree_is_refused(changed: dict[str, Any], message: str | None) -> None:
    attributes = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
        "target_weights": [1.0, 2.0], "n_targets": 1, **changed,
    }  # fmt: skip
    model = ml_model("TreeEnsembleRegressor", attributes, 1)
    x = np.zeros((2, _FEATURES), np.float32)
    with pytest.raises((ModelError, IndexError)) as caught:
        run_model(typed(model, [x]), {"x0": x})
    assert message is None or message in str(caught.value)


@pytest.mark.parametrize("place", [1, 3, 4, 5, 6])
def test_tables_that_name_what_is_not_there(place: int) -> None:
    whole = [np.array(part, np.int32) for part in ([0, 0, 0], [2, -1, -2], [0], [0, 1, 2], [0, 0])]
    features, children, roots, starts, targets = whole
    numbers = np.zeros(3, np.float32), np.ones(2, np.float32)
    tables = [features, numbers[0], children, roots, starts, targets, numbers[1]]
    operands: list[Array | None] = [np.zeros((4, 2), np.float32), *tables]
    operands[place] = np.asarray(operands[place]) + np.int32(99 << 3)
    with pytest.raises(IndexError, match="not there"):
        run_ir("TreeEnsemble", operands, {"n_targets": 1, "aggregate": "SUM"})
