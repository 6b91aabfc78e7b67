"""How replicas run: threads, profiles, checks, random bits, archives."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import popc_runtime
from popc.ir import AttributeMap, Graph, TensorType
from popc.ops.build import build
from popc.options import Options
from popc_runtime.errors import CorruptArchiveError, DeviceError, InputMismatchError
from popc_runtime.format import Array, DType, Limits, Manifest, VariableRole, VariableSpec
from tests.replication.models import compiled, graphcore, random_samples
from tests.support.pipeline import Program
from tests.training.small import data, training_program

# Large enough for its segments to be shared among threads.
_WIDE: Final = (
    "g (float[64,256] x) => (float y, float s) <float[256,256] w> { p = MatMul (x, w) "
    "q = Relu (p) r = Exp (q) a = Add (r, x) s = ReduceSum <keepdims = 0> (a) "
    "b = ai.graphcore.CrossReplicaSum (a) y = Tanh (b) }"
)


def _wide_model() -> onnx.ModelProto:
    model = graphcore(_WIDE.replace("<float[256,256] w>", ""))
    w = random_samples(256, (256,)) / 64
    model.graph.initializer.append(numpy_helper.from_array(w.astype(np.float32), "w"))
    return model


@pytest.mark.parametrize("replicas", [2, 3])
def test_threads_change_nothing(replicas: int, tmp_path: Path) -> None:
    options: dict[str, Any] = {"replicated_graph_count": replicas, "batches_per_step": 2}
    x = random_samples(2 * replicas, (64, 256)).reshape(2, replicas, 64, 256)
    programs = [
        compiled(_wide_model(), tmp_path, threads=threads, **options) for threads in (1, 2, 3)
    ]
    first, *others = [program.run({"x": x}) for program in programs for _ in range(3)]
    for result in others:
        for name, value in first.items():
            np.testing.assert_array_equal(result[name], value)
    w = random_samples(256, (256,)) / 64
    own = np.exp(np.maximum(x @ w, 0)) + x
    np.testing.assert_allclose(first["y"][0, 1], np.tanh(own.sum(axis=1))[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(first["s"], own.sum(axis=(2, 3)), rtol=1e-4)


def test_profile_names_the_instructions_of_all_replicas(tmp_path: Path) -> None:
    program = compiled(_wide_model(), tmp_path, replicated_graph_count=2)
    times = program.profile({"x": random_samples(2, (64, 256))})
    opcodes = [timing.opcode for timing in times]
    assert opcodes.count("HostLoad") == 2
    assert opcodes.count("FusedElementwise") == opcodes.count("ReduceSum") == 2  # of Exp and Add
    assert "ReplicatedAllReduce" in opcodes


def test_constants_are_shared_and_memory_is_not(tmp_path: Path) -> None:
    program = compiled(_wide_model(), tmp_path, replicated_graph_count=3)
    engines = program._engine.replicas
    regions = [engine.program.memory._regions for engine in engines]
    kinds = list(regions[0])
    shared = [kind.name for kind in kinds if len({id(region[kind]) for region in regions}) == 1]
    assert shared == ["CONSTANT"]


def test_an_error_on_one_replica_ends_the_run(tmp_path: Path) -> None:
    model = graphcore("g (float[2] x, bool ok) => (float y) { c = Not (ok) y = Neg (x) }")
    model.graph.node.append(helper.make_node("Abort", ["c"], [], domain="ai.graphcore"))
    program = compiled(model, tmp_path, replicated_graph_count=2)
    x = np.ones((2, 2), np.float32)
    program.run({"x": x, "ok": np.array([True, True])})
    with pytest.raises(DeviceError, match="aborted") as caught:
        program.run({"x": x, "ok": np.array([True, False])})
    assert caught.value.details == ("on replica 1",)


def test_prints_come_in_the_order_of_replicas(tmp_path: Path) -> None:
    model = graphcore(
        'g (float[1] x) => (float y) { y = ai.graphcore.PrintTensor <title = "x"> (x) }'
    )
    program = compiled(model, tmp_path, replicated_graph_count=3, threads=2)
    lines: list[str] = []
    popc_runtime.set_print_hook(lines.append)
    try:
        program.run({"x": np.array([[1], [2], [3]], np.float32)})
    finally:
        popc_runtime.set_print_hook(None)
    assert [line[4:6] for line in lines] == ["1.", "2.", "3."]


def test_floating_point_checks_look_at_exchanges(tmp_path: Path) -> None:
    program = compiled(
        graphcore("g (float[2] x) => (float y) { y = ai.graphcore.CrossReplicaSum (x) }"),
        tmp_path,
        replicated_graph_count=2,
        enable_floating_point_checks=True,
    )
    largest = np.float32(3e38)
    with pytest.raises(DeviceError, match="overflow"):
        program.run({"x": np.full((2, 2), largest)})
    # What is infinite on one replica already excuses the result of all.
    program.run({"x": np.array([[np.inf, 1], [1, 1]], np.float32)})


def test_stochastic_rounding_keeps_equal_what_is_equal() -> None:
    """Replicas round what they share alike, what is their own each in its way."""
    graph = Graph("main")
    own = graph.add_input("own", TensorType(DType.FLOAT16, (400,)))
    third = graph.add_constant(
        "third", TensorType(DType.FLOAT16, ()), np.asarray(1 / 3, np.float16)
    )
    graph.add_output("apart", build(graph, "Mul", [own, third]).output)
    total: AttributeMap = {"op": "add", "size": 2, "stride": 1}
    shared = build(graph, "ReplicatedAllReduce", [own], total).output
    graph.add_output("together", build(graph, "Mul", [shared, third]).output)
    options = Options(replicated_graph_count=2, enable_stochastic_rounding=True)
    results = Program(graph, options).run({"own": np.full((2, 400), 0.7, np.float16)})
    first, second = results["together"]
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first)) == 2
    assert not np.array_equal(*results["apart"])


# -- archives --------------------------------------------------------------------------------------


def test_the_archive_tells_how_many_replicas_there_are(tmp_path: Path) -> None:
    program = training_program(
        tmp_path,
        replicated_graph_count=4,
        identical_replica_seeds=True,
        variable_settings={"b": "orthogonal:2"},
    )
    manifest = program.manifest
    assert (manifest.replicas, manifest.identical_seeds) == (4, True)
    variables = {spec.name: spec for spec in manifest.variables}
    assert (variables["b"].rows, variables["b"].host_shape) == ((0, 1, 0, 1), (2, 3))
    assert (variables["w"].rows, variables["w"].host_shape) == ((), (4, 3))


def test_a_stranger_cannot_ask_for_more_memory_by_replicas(tmp_path: Path) -> None:
    training_program(tmp_path, replicated_graph_count=64)
    with pytest.raises(CorruptArchiveError, match="64 replicas need more memory"):
        popc_runtime.load(tmp_path / "train.popx", limits=Limits(memory_bytes=4096))


def test_inputs_without_the_dimension_of_replicas_are_refused(tmp_path: Path) -> None:
    program = training_program(tmp_path, replicated_graph_count=2)
    samples = data(2)
    with pytest.raises(InputMismatchError, match=r"expected float32\[2,2,4\], got float32\[2,4\]"):
        program.run({"x": samples["x"], "target": samples["target"].reshape(1, 2, 3).repeat(2, 0)})


def test_values_of_wrong_shape_are_refused(tmp_path: Path) -> None:
    program = training_program(tmp_path, replicated_graph_count=2, variable_settings={"w": "none"})
    flat: Array = np.zeros((4, 3), np.float32)
    with pytest.raises(InputMismatchError, match=r"expected float32\[2,4,3\]"):
        program.state.write({"w": flat})


@pytest.mark.parametrize(
    ("replicas", "rows", "whole", "words"),
    [
        (2, (0, 1, 0), (), "has 3 rows for 2 replicas"),
        (2, (0, 2), (), "rows of variable 'w' are missing"),
        (2, (1, 1), (), "rows of variable 'w' are missing"),
        (2, (0, 1), (9,), "parts of variable 'w' are missing"),
        (2, (), (0,), "parts of variable 'w' are missing"),
        (2, (0, 1), (3, 2), ""),
        (1, (), (), ""),
    ],
)
def test_contradictions_about_variables(
    replicas: int, rows: tuple[int, ...], whole: tuple[int, ...], words: str
) -> None:
    w = VariableSpec("w", DType.FLOAT32, (4,), VariableRole.WEIGHT, 0, rows, whole)
    manifest = Manifest(
        inputs=(),
        outputs=(),
        streams=(),
        programs=("main",),
        options=(),
        compiler_version="0",
        model_sha256="0" * 64,
        variables=(w,),
        replicas=replicas,
    )
    problem = manifest.problem()
    assert words in problem
    assert bool(problem) == bool(words)
