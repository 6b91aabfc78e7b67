"""Overlapped transfers, io tiles, grouped transfers: results and the order of samples stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import popc
import popc_runtime
from popc.ir import Graph, TensorType
from popc.ops.build import build
from popc.ops.main_loops import main_loops
from popc.transforms.main_loops import MainLoops
from popc.transforms.overlap_io import OverlapIo
from popc.transforms.overlap_io.check import check_overlap
from popc_runtime.errors import OptionError
from popc_runtime.format import DType
from tests.support.models import affine
from tests.training.small import data, linear_model, trainable

_STRATEGIES = ("overlap_inner_loop", "overlap_loops")
_OVERLAP: dict[str, Any] = {"num_io_tiles": 32, "verify_ir": True}


def _two_streams() -> onnx.ModelProto:
    """s = a + b, d = a - b, and n, which depends on no input."""
    floats = TensorProto.FLOAT
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["a", "b"], ["s"]),
            helper.make_node("Sub", ["a", "b"], ["d"]),
            helper.make_node("RandomUniform", [], ["n"], shape=[3]),
        ],
        "two",
        [helper.make_tensor_value_info(name, floats, [3]) for name in "ab"],
        [helper.make_tensor_value_info(name, floats, [3]) for name in "sdn"],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def _results(model: onnx.ModelProto, path: Path, steps: int, **options: Any) -> list[Any]:
    popc.compile(model, options=options).save(path, force=True)
    executable = popc_runtime.load(path, seed=5)
    generator = np.random.default_rng(1)
    found: list[Any] = [executable.manifest.inputs, executable.manifest.outputs]
    found.append([stream.samples_per_step for stream in executable.manifest.streams])
    for _ in range(steps):
        feeds = {
            spec.name: generator.standard_normal(spec.shape, np.float32)
            for spec in executable.inputs
        }
        found.append({name: item.tobytes() for name, item in executable.run(feeds).items()})
    return found


@pytest.mark.parametrize("anchor", ["all", "every_n:2", "every_n:3", "every_n:6"])
@pytest.mark.parametrize("strategy", _STRATEGIES)
def test_inference(tmp_path: Path, anchor: str, strategy: str) -> None:
    common: dict[str, Any] = {"batches_per_step": 6, "anchors": {"y": anchor}}
    path = tmp_path / "model.popx"
    plain = _results(affine(), path, 2, **common)
    overlapped = {**common, **_OVERLAP, "exchange_strategies": {"*": strategy}}
    assert _results(affine(), path, 2, **overlapped) == plain


_CHOICES = st.sampled_from(["just_in_time", *_STRATEGIES])


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.dictionaries(st.sampled_from("absdn"), _CHOICES, max_size=5),
    st.dictionaries(st.sampled_from("sd"), st.sampled_from(["final", "sum"]), max_size=1),
    st.integers(2, 4),
    st.sampled_from([1, 2]),
    st.booleans(),
)
def test_any_streams(
    tmp_path: Path,
    strategies: dict[str, str],
    anchors: dict[str, str],
    batches: int,
    replicas: int,
    group: bool,  # noqa: FBT001 - drawn by hypothesis
) -> None:
    """Any stream of two replicas or one may overlap, or not; random numbers are the same."""
    strategies = {name: strategy for name, strategy in strategies.items() if name not in anchors}
    common: dict[str, Any] = {
        "batches_per_step": batches,
        "anchors": anchors,
        "replicated_graph_count": replicas,
    }
    path = tmp_path / "model.popx"
    plain = _results(_two_streams(), path, 2, **common)
    changed = {"exchange_strategies": strategies, "group_host_sync": group}
    assert _results(_two_streams(), path, 2, **common, **_OVERLAP, **changed) == plain


def _trained(folder: Path, batches: int, factor: int, replicas: int, **options: Any) -> list[Any]:
    archive = popc.compile(
        linear_model(),
        dims={"batch": 2},
        train=trainable(momentum=0.9),
        outputs=["y", "loss"],
        options={
            "batches_per_step": batches,
            "accumulation_factor": factor,
            "replicated_graph_count": replicas,
            **options,
        },
    )
    executable = popc_runtime.load(archive.save(folder / "train.popx", force=True))
    size = 2 * batches * factor * replicas
    samples = data(3 * size)
    results: list[Any] = []
    for step in range(3):
        rows = slice(step * size, (step + 1) * size)
        feeds = {
            spec.name: samples[spec.name][rows].reshape(spec.shape) for spec in executable.inputs
        }
        results.append({name: item.tobytes() for name, item in executable.run(feeds).items()})
    weights = executable.state.read()
    return [*results, {name: array.tobytes() for name, array in weights.items()}]


@pytest.mark.parametrize(
    ("batches", "factor", "replicas", "more"),
    [
        (1, 3, 1, {}),
        (3, 1, 1, {"group_host_sync": True}),
        (3, 2, 1, {}),
        (2, 3, 1, {"group_host_sync": True, "auto_recomputation": "recompute_all"}),
        (2, 2, 2, {}),
    ],
)
@pytest.mark.parametrize("strategy", _STRATEGIES)
def test_training(
    tmp_path: Path, batches: int, factor: int, replicas: int, more: dict[str, Any], strategy: str
) -> None:
    plain = _trained(tmp_path, batches, factor, replicas)
    changed = {**_OVERLAP, **more, "exchange_strategies": {"*": strategy}}
    assert _trained(tmp_path, batches, factor, replicas, **changed) == plain


def test_where_transfers_stand() -> None:
    """Between two loops, overlap_loops leaves one load and one store alone, the other one each."""
    counts = {}
    seen: list[Graph] = []
    for strategy in _STRATEGIES:
        seen.clear()
        popc.compile(
            linear_model(),
            dims={"batch": 2},
            train=trainable(),
            outputs=["y"],
            options={
                "batches_per_step": 3,
                "accumulation_factor": 2,
                "num_io_tiles": 32,
                "exchange_strategies": {"x": strategy, "y": strategy},
            },
            on_graph=lambda *given: seen.append(given[1]),
        )
        graph = seen[-1]
        places = [graph, *(loop.body for loop in main_loops(graph))]
        counts[strategy] = [
            sum(op.attributes.get("stream") in ("x", "y") for op in place.ops) for place in places
        ]
    assert counts == {"overlap_inner_loop": [0, 2, 0], "overlap_loops": [2, 0, 0]}


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({"exchange_strategies": {"y": "overlap_loops"}}, ["num_io_tiles is 0", "no loop"]),
        (
            {
                "exchange_strategies": {"y": "overlap_loops"},
                "tile_sets": {"y": "compute"},
                "batches_per_step": 2,
                "num_io_tiles": 32,
            },
            ["tile_sets says compute"],
        ),
        ({"exchange_strategies": {"y": "overlap_step"}}, ["must be one of just_in_time"]),
        (
            {"tile_sets": {"x": "io"}, "num_io_tiles": 32, "synthetic_data_mode": "zeros"},
            ["nothing is transferred"],
        ),
        (
            {
                "tile_sets": {"image": "io"},
                "buffering_depth_map": {"y": 2},
                "num_io_tiles": 32,
            },
            ["there is no input or output 'image'", "there is no input 'y'"],
        ),
        (
            {
                "exchange_strategies": {"y": "overlap_loops"},
                "anchors": {"y": "final"},
                "batches_per_step": 2,
                "num_io_tiles": 32,
            },
            ["its return type is final"],
        ),
        ({"num_io_tiles": 8}, ["must be 0, or 32 or more"]),
        (
            {"annotate": [{"op_type": "Mul", "tile_set": "io"}]},
            ["Mul(m): placed on io tiles, but num_io_tiles is 0"],
        ),
        (
            {"annotate": [{"op_type": "Mul", "exchange_strategy": 1}]},
            ["see the option exchange_strategies"],
        ),
    ],
)
def test_what_cannot_be(options: dict[str, Any], problems: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        popc.compile(affine(), options=options)
    text = "\n".join([caught.value.message, *caught.value.details])
    assert all(problem in text for problem in problems), text


def test_ops_on_io_tiles(tmp_path: Path) -> None:
    path = tmp_path / "model.popx"
    plain = _results(affine(), path, 1)
    on_io = [{"op_type": "Mul", "tile_set": "io"}]
    assert _results(affine(), path, 1, **_OVERLAP, annotate=on_io) == plain
    inside = popc.estimate(affine(), options={**_OVERLAP, "annotate": on_io})
    assert [op.op_type for op in inside.ops].count("IoTileCopy") == 2


def _small(strategy: str) -> Graph:
    """y = relu x, three times."""
    graph = Graph("main")
    x = build(
        graph,
        "HostLoad",
        [],
        {"stream": "x", "dtype": "float32", "shape": (2,), "exchange": strategy},
    ).output
    y = build(graph, "Relu", [x]).output
    build(
        graph,
        "HostStore",
        [y],
        {"stream": "y", "return_type": "all", "period": 1, "exchange": strategy},
    )
    MainLoops(3)(graph, check=True)
    return graph


@pytest.mark.parametrize("damage", ["none", "load", "store", "state"])
def test_checker_finds_what_is_wrong(damage: str) -> None:
    graph = _small("overlap_inner_loop")
    OverlapIo().run(graph)
    body = main_loops(graph)[0].body
    if damage == "load":  # the first sample comes twice
        load = next(op for op in graph.ops if op.op_type == "HostLoad")
        again = build(graph, "HostLoad", [], dict(load.attributes)).output
        graph.set_input(main_loops(graph)[0].op, 2, again)
    elif damage == "store":  # the value of this iteration, not of the one before
        choice = next(op for op in body.ops if op.op_type == "If" and not op.outputs)
        relu = next(op for op in body.ops if op.op_type == "Relu")
        body.set_input(choice, 1, relu.output)
    elif damage == "state":  # no new sample
        body.outputs[1] = body.inputs[2]
    assert bool(check_overlap(graph)) == (damage != "none")


def test_bins_put_transfers_before_computing() -> None:
    graph = _small("overlap_inner_loop")
    OverlapIo().run(graph)
    body = main_loops(graph)[0].body
    numbers = {op.op_type: dict(op.settings.bins).get("overlapped transfers") for op in body.ops}
    assert numbers["If"] == 1
    assert numbers["Relu"] == 2
    assert numbers["Less"] is None
    assert body.inputs[0].type == TensorType(DType.INT64, ())


@pytest.mark.parametrize("strategy", ["just_in_time", *_STRATEGIES])
def test_io_tiles_of_two_chips(strategy: str, tmp_path: Path) -> None:
    """What comes from another chip is handed to computing tiles of the chip that it has come to."""
    body = "a = Mul (x, w) b = Tanh (a) c = Mul (b, w) y = Add (c, x)"
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17]> '
        f"g (float[3] x) => (float[3] y) <float[3] w = {{1.0, 2.0, 3.0}}> {{ {body} }}"
    )
    plain = _results(model, tmp_path / "plain.popx", 2, batches_per_step=4)
    chips = {"num_ipus": 2, "virtual_graph_mode": "auto", "tile_sets": {"*": "io"}}
    strategies = {"exchange_strategies": {"*": strategy}}
    options = {**_OVERLAP, **chips, **strategies, "batches_per_step": 4}
    assert _results(model, tmp_path / "io.popx", 2, **options) == plain
