"""State that models keep themselves: over runs, batches, chips and replicas, in both engines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest

import popc
import popc_runtime
from popc.trained.evaluation import Evaluation
from popc.trained.export import export_onnx
from popc_runtime.errors import (
    DataDependentShapeError,
    DeviceError,
    ModelError,
    OptionError,
)
from popc_runtime.format import Array
from tests.replication.models import compiled, graphcore
from tests.state.programs import PROGRAMS, Program, expected, samples

_BATCHES: Final = 3
_STEPS: Final = 2
_INPUTS: Final = samples(_STEPS * _BATCHES)
_BY_NAME: Final = {program.name: program for program in PROGRAMS}

_OFF_CHIP: Final = {"storage": "off_chip", "min_elements_for_off_chip": 0}
_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "not in place": {"enable_inplace": False},
    "without outlining": {"enable_outlining": False},
    "outlined": {"outline_threshold": 0.0},
    "as written": {"patterns": "no_patterns"},
    "overlapped": {
        "num_io_tiles": 32,
        "tile_sets": {"*": "io"},
        "exchange_strategies": {"*": "overlap_inner_loop"},
    },
    "off chip": {"weight_tensor_location": _OFF_CHIP},
    "activations off chip": {"activation_tensor_location": _OFF_CHIP},
    "phases": {"num_ipus": 2, "virtual_graph_mode": "execution_phases", "execution_phases": 2},
    "parts": {"batch_serialization_factor": 2},
}
# Those that can be divided among two chips; and those of them in which one stage would read what a
# later one computes.
_DIVIDED: Final = (
    *("chain", "same", "average", "cache", "branch", "loop", "norm", "shared_norm"),
    *("norm_in_branch", "norm_in_loop", "function_aside", "nested"),
)
_TORN: Final = ("chain", "nested")


def _program(program: Program, folder: Path, **options: Any) -> popc_runtime.Executable:
    return compiled(program.model(), folder, constant_weights=False, **options)


def _assert_state(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> None:
    for name, value in found.items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-6, err_msg=name)


def _assert_steps(program: Program, executable: popc_runtime.Executable) -> None:
    """Steps of three batches each give what one batch after the other does."""
    ys, state = expected(program, _INPUTS)
    steps = _INPUTS.reshape(_STEPS, _BATCHES, 2, 3)
    found = np.concatenate([executable.run(x=step)["y"] for step in steps])
    np.testing.assert_allclose(found, ys, rtol=1e-4, atol=1e-5)
    _assert_state(executable.state.read(), state)


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda item: item.name)
def test_state_lasts_from_run_to_run(program: Program, engine: str, tmp_path: Path) -> None:
    executable = _program(program, tmp_path, engine=engine)
    ys, state = expected(program, _INPUTS)
    for x, y in zip(_INPUTS, ys, strict=True):
        np.testing.assert_allclose(executable.run(x=x)["y"], y, rtol=1e-4, atol=1e-5)
    _assert_state(executable.state.read(), state)
    for name in program.state.keys() - executable.state.read().keys():
        np.testing.assert_array_equal(state[name], program.state[name])  # they are constants


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda item: item.name)
def test_state_counts_the_batches_of_a_step(program: Program, engine: str, tmp_path: Path) -> None:
    _assert_steps(program, _program(program, tmp_path, engine=engine, batches_per_step=_BATCHES))


@pytest.mark.parametrize("options", _OPTIONS.values(), ids=_OPTIONS.keys())
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda item: item.name)
def test_options_do_not_change_state(
    program: Program, options: Mapping[str, Any], tmp_path: Path
) -> None:
    _assert_steps(program, _program(program, tmp_path, batches_per_step=_BATCHES, **options))


@pytest.mark.parametrize("name", _DIVIDED)
@pytest.mark.parametrize("pipelined", [False, True])
def test_state_on_two_chips(name: str, pipelined: bool, tmp_path: Path) -> None:  # noqa: FBT001
    program = _BY_NAME[name]
    options = {
        "batches_per_step": _BATCHES,
        "num_ipus": 2,
        "virtual_graph_mode": "auto",
        "enable_pipelining": pipelined,
    }
    if pipelined and name in _TORN:
        with pytest.raises(OptionError, match="assigned to chips or stages wrongly") as caught:
            _program(program, tmp_path, **options)
        assert "its new value is complete in stage 1 only" in caught.value.details[0]
    else:
        _assert_steps(program, _program(program, tmp_path, **options))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda item: item.name)
def test_replicas_with_a_state_of_their_own(program: Program, tmp_path: Path) -> None:
    names = popc_runtime.load(
        popc.compile(program.model(), options={"constant_weights": False}).save(tmp_path / "one")
    ).state.read()
    executable = _program(
        program,
        tmp_path,
        replicated_graph_count=2,
        batches_per_step=_BATCHES,
        variable_settings=dict.fromkeys(names, "none"),
    )
    halves = [expected(program, _INPUTS[replica::2]) for replica in range(2)]
    found = executable.run(x=_INPUTS.reshape(_BATCHES, 2, 2, 3))["y"]
    wanted = np.stack([ys for ys, _ in halves], axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    states = {name: np.stack([state[name] for _, state in halves]) for name in names}
    _assert_state(executable.state.read(), states)


def test_replicas_that_share_a_state_agree_on_the_mean(tmp_path: Path) -> None:
    executable = _program(_BY_NAME["counter"], tmp_path, replicated_graph_count=2)
    x = _INPUTS[:2]
    for _ in range(3):
        executable.run(x=x)
    np.testing.assert_allclose(executable.state.read()["acc"], 3 * x.mean(0))
    executable.state.check_equal_across_replicas()


def test_counters_that_replicas_share_count_what_all_do(tmp_path: Path) -> None:
    executable = _program(_BY_NAME["aside"], tmp_path, replicated_graph_count=2)
    for _ in range(3):
        executable.run(x=_INPUTS[:2])
    np.testing.assert_array_equal(executable.state.read()["n"], [6])


def test_replicas_cannot_share_whole_numbers_that_differ(tmp_path: Path) -> None:
    model = graphcore(
        "g (float[2,3] x) => (float y) <int32[2,3] n = {0, 0, 0, 0, 0, 0}> "
        "{ i = Cast <to = 6> (x) more = Add (n, i) "
        "u = ai.graphcore.CopyVarUpdate (n, more) y = Add (x, x) }"
    )
    with pytest.raises(ModelError, match="may differ and have no mean"):
        compiled(model, tmp_path, constant_weights=False, replicated_graph_count=2)


# -- the host --------------------------------------------------------------------------------------


def test_the_host_reads_writes_keeps_and_resets_state(tmp_path: Path) -> None:
    program = _BY_NAME["cache"]
    executable = _program(program, tmp_path)
    x = np.ones((2, 3), np.float32)
    executable.run(x=x)
    executable.state.save_checkpoint(tmp_path / "c.safetensors")
    executable.state.write({"pos": np.int64(3)})
    np.testing.assert_array_equal(executable.run(x=x)["y"], 2 * x)
    assert executable.state.read()["pos"] == 0
    other = _program(program, tmp_path)
    other.state.load_checkpoint(tmp_path / "c.safetensors")
    assert other.state.read()["pos"] == 1
    np.testing.assert_array_equal(other.run(x=x)["y"], 2 * x)
    other.state.reset()
    assert other.state.read()["pos"] == 0
    np.testing.assert_array_equal(other.run(x=x)["y"], x)


@pytest.mark.parametrize(("kind", "first"), [("all", [1, 3, 6]), ("final", 6), ("sum", 10)])
def test_anchored_variables_give_what_they_get(kind: str, first: Any, tmp_path: Path) -> None:
    """By its own name, a variable is what it becomes; under others, what it was."""
    model = graphcore(
        "g (float[1] x) => (float acc, float old) <float[1] acc = {0.0}> "
        "{ new = Add (acc, x) u = ai.graphcore.CopyVarUpdate (acc, new) old = Identity (acc) }"
    )
    anchors = {"acc": kind, "old": "all"}
    executable = compiled(
        model, tmp_path, constant_weights=False, batches_per_step=3, anchors=anchors
    )
    found = executable.run(x=np.array([[1], [2], [3]], np.float32))
    np.testing.assert_array_equal(found["acc"].squeeze(-1), first)
    np.testing.assert_array_equal(found["old"].squeeze(-1), [0, 1, 3])


# -- what cannot be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "u = ai.graphcore.CopyVarUpdate (w, x) y = ai.graphcore.CopyVarUpdate (w, u)",
            "'w' gets more than one new value",
        ),
        ("y = ai.graphcore.CopyVarUpdate (x, w)", "'x', which is an input or computed"),
        (
            "h = Add (x, w) y = ai.graphcore.CopyVarUpdate (h, x)",
            "'h', which is an input or computed",
        ),
        (
            "s = ReduceSum <keepdims = 0> (x) y = ai.graphcore.CopyVarUpdate (w, s)",
            "a variable of type float32[3] cannot hold float32[]",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(body: str, words: str) -> None:
    model = graphcore(f"g (float[3] x) => (float y) <float[3] w = {{1.0, 2.0, 3.0}}> {{ {body} }}")
    with pytest.raises(ModelError) as caught:
        popc.compile(model, options={"constant_weights": False})
    assert words in str(caught.value)


@pytest.mark.parametrize("program", PROGRAMS[:1], ids=lambda item: item.name)
def test_constants_are_not_written(program: Program) -> None:
    with pytest.raises(ModelError, match="compile with constant_weights = false"):
        popc.compile(program.model())


def test_a_shape_cannot_follow_a_variable_that_is_written() -> None:
    """As the constant that it was, it would decide the shape of every run."""
    model = graphcore(
        "g (float[3] x) => (float y) <int64[1] n = {3}, int64[1] one = {1}> "
        "{ more = Add (n, one) u = ai.graphcore.CopyVarUpdate (n, more) y = Expand (x, n) }"
    )
    program = popc.compile(model, options={"constant_weights": False}).load()
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(program.run(x=x)["y"], x)
    with pytest.raises(DeviceError, match="sizes 4 and 3 do not fit together"):
        program.run(x=x)


def test_a_loop_that_writes_carries_on_what_grows_within_a_bound() -> None:
    """It is not unrolled, so that how often it runs does not say how large a state becomes."""
    model = graphcore(
        "g (float[3] x) => (float y) <float[3] w = {1.0, 2.0, 3.0}> "
        "{ n = Constant <value_int = 2> () go = Constant <value = bool {1}> () "
        "y = Loop (n, go, x) <body = b (int64 i, bool c, float[N] s) => (bool d, float[M] t) "
        "{ u = ai.graphcore.CopyVarUpdate (w, w) t = Concat <axis = 0> (s, s) "
        "d = Identity (c) }> }"
    )
    options = {"constant_weights": False}
    with pytest.raises(DataDependentShapeError, match=r"nothing bounds.*--bound y=N"):
        popc.compile(model, options=options)
    x = np.arange(3, dtype=np.float32)
    program = popc.compile(model, options={**options, "bounds": {"y": 12}}).load()
    np.testing.assert_array_equal(program.run(x=x)["y"], np.tile(x, 4))


# -- statistics ------------------------------------------------------------------------------------


def test_statistics_of_constants_are_told_to_be_lost() -> None:
    model = _BY_NAME["shared_norm"].model()
    (note,) = popc.compile(model).notes
    assert "BatchNormalization(h), BatchNormalization(y) in training mode" in note
    assert "constant_weights=false" in note
    assert not popc.compile(model, options={"constant_weights": False}).notes
    assert not popc.compile(model, outputs=["y", "m2", "v2", "m3", "v3"]).notes


def test_nothing_is_dropped_out_where_nothing_is_trained(tmp_path: Path) -> None:
    model = graphcore(
        "g (float[8,4] x) => (float y) <float[4] w = {1.0, 1.0, 1.0, 1.0}> "
        "{ h = Mul (x, w) y = ai.graphcore.ShapedDropout <shape = [8, 4], ratio = 0.5> (h) }"
    )
    x = np.ones((8, 4), np.float32)
    executable = compiled(model, tmp_path, constant_weights=False)
    np.testing.assert_array_equal(executable.run(x=x)["y"], x)


def test_an_evaluation_normalises_by_the_statistics_of_the_training(tmp_path: Path) -> None:
    program = _BY_NAME["norm"]
    model = program.model()
    loss = onnx.helper.make_node("ReduceMean", ["y"], ["loss"], keepdims=0)
    model.graph.node.append(loss)
    value = onnx.helper.make_tensor_value_info("loss", onnx.TensorProto.FLOAT, [])
    model.graph.output.append(value)
    train = {
        "loss": {"type": "identity", "input": "loss"},
        "optimizer": {"type": "sgd", "learning_rate": {"value": 0.0, "const": False}},
    }
    trained = compiled(model, tmp_path, train)
    for x in _INPUTS:
        trained.run(x=x)
    export_onnx(tmp_path / "m.popx", tmp_path / "i.onnx", inference=True)
    options = {"constant_weights": False}
    archive = popc.compile(tmp_path / "i.onnx", options=options)
    evaluation = Evaluation(archive.save(tmp_path / "e.popx"), {"x": _INPUTS[0]})
    _, state = expected(program, _INPUTS)
    scale, bias, mean, var = (state[name] for name in ("scale", "bias", "mean", "var"))
    wanted = ((_INPUTS[0] - mean) / np.sqrt(var + 1e-5) * scale + bias).mean()
    np.testing.assert_allclose(evaluation(trained)["loss"], wanted, rtol=1e-5)
