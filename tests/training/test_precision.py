"""Training in float16 and bfloat16: mixed precision, loss scales, stochastic rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import helper

import popc
import popc_runtime
from popc.frontend import Bindings, import_model, load_model
from popc.trained.evaluation import Evaluation
from popc_runtime.errors import DeviceError, OptionError
from popc_runtime.format import Array, DType
from popc_runtime.kernels.core.stored import to_bfloat16
from popc_runtime.trainer import Trainer
from samples import networks
from tests.support.recorded import Answers, Pytorch, sampled
from tests.support.remembered import remembered
from tests.support.torch_networks import FORWARD, parameters
from tests.training.narrow import BATCH, batches, in_type, losses, scaled_input, trained, weights

_NETWORKS: Final = {"digits_cnn": networks.digits_cnn, "digits_mlp": networks.digits_mlp}
_SGD: Final = {"type": "sgd", "learning_rate": 0.05}
_ADAM: Final = {"type": "adam", "learning_rate": 1e-3}
_SCALED: Final = {**_ADAM, "loss_scaling": 1024.0}
_AUTOMATIC: Final[dict[str, Any]] = {
    **_ADAM,
    "loss_scaling": {"value": 1024.0, "const": False},
    "automatic_loss_scaling": {},
}
_IDENTITY: Final = {"type": "identity", "input": "loss"}
_STEPS: Final = 30
_HALF_STEPS: Final = 10


# -- mixed precision -------------------------------------------------------------------------------


@remembered
def _exact_losses(folder: Path, model: onnx.ModelProto, optimizer: dict[str, Any]) -> Array:
    return losses(trained(folder, model, optimizer), _STEPS)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "optimizer",
    [_SGD, {**_SGD, "momentum": 0.8}, _ADAM, _SCALED, {"type": "rmsprop", "learning_rate": 1e-3}],
    ids=["sgd", "momentum", "adam", "scaled", "rmsprop"],
)
@pytest.mark.parametrize("name", sorted(_NETWORKS))
def test_narrow_training_follows_that_in_float32(
    name: str, optimizer: dict[str, Any], dtype: str, tmp_path: Path
) -> None:
    model = _NETWORKS[name]()
    exact = _exact_losses(tmp_path, model, optimizer)
    narrow = losses(trained(tmp_path, in_type(model, dtype), optimizer), _STEPS)
    assert exact[-5:].mean() < 0.8 * exact[0]
    tolerance = 0.05 if dtype == "float16" else 0.15
    assert np.abs(narrow - exact).max() < tolerance * exact.max()


def test_the_state_of_optimizers_is_float32(tmp_path: Path) -> None:
    executable = trained(tmp_path, in_type(networks.digits_mlp(), "float16"), _ADAM)
    types = {spec.name: spec.dtype for spec in executable.state.specs}
    for name, dtype in types.items():
        narrow = name.startswith("fc")
        assert dtype is (DType.FLOAT16 if narrow else DType.FLOAT32), name
    asked = {**_ADAM, "accl1_type": "float16", "accl2_type": "float32"}
    executable = trained(tmp_path, in_type(networks.digits_mlp(), "float16"), asked)
    types = {spec.name: spec.dtype for spec in executable.state.specs}
    assert types["Accl1___fc1.weight"] is DType.FLOAT16
    assert types["Accl2___fc1.weight"] is DType.FLOAT32


def _moved(start: Mapping[str, Array], step: int) -> dict[str, Array]:
    """Weights in float16 that are near ``start``, others for each step."""
    rng = np.random.default_rng(step)
    return {
        name: np.asarray(value * (1 + 0.2 * rng.standard_normal(value.shape)), np.float16)
        for name, value in sorted(start.items())
    }


def _half_steps_in_torch(name: str, feeds: Sequence[dict[str, Array]]) -> Answers:
    """The loss of each step, and a sample of the weights after it."""
    import torch

    theirs = parameters(in_type(_NETWORKS[name](), "float16"))
    start = {key: weight.detach().numpy().copy() for key, weight in theirs.items()}
    rival = torch.optim.SGD(theirs.values(), lr=_SGD["learning_rate"])
    answers = {}
    for step, fed in enumerate(feeds):
        with torch.no_grad():
            for key, value in _moved(start, step).items():
                theirs[key].copy_(torch.from_numpy(value))
        rival.zero_grad()
        logits = FORWARD[name](theirs, torch.from_numpy(fed["image"]))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(fed["label"]).long())
        (loss * 64).backward()
        for weight in theirs.values():
            weight.grad /= 64
        rival.step()
        answers[f"loss {step}"] = np.array(loss.item())
        after = sampled({key: weight.detach().numpy() for key, weight in theirs.items()})
        answers |= {f"{key} {step}": value.copy() for key, value in after.items()}
    return answers


@pytest.mark.parametrize("name", sorted(_NETWORKS))
def test_half_steps_are_near_those_of_torch(name: str, tmp_path: Path, pytorch: Pytorch) -> None:
    """Each step from the same weights: at this rate, steps make much of what roundings differ by.

    PyTorch rounds elsewhere.  Where that turns the order of two pixels, or the sign of one, it is
    another one that has a gradient.
    """
    model = in_type(_NETWORKS[name](), "float16")
    executable = trained(tmp_path, model, {**_SGD, "loss_scaling": 64.0})
    start = weights(executable)
    feeds = list(batches(executable.inputs[0], _HALF_STEPS))
    expected = pytorch(lambda: _half_steps_in_torch(name, feeds))
    for step, fed in enumerate(feeds):
        before = _moved(start, step)
        executable.state.write(before)
        ours, theirs = float(executable.run(fed)["loss"]), float(expected[f"loss {step}"])
        assert abs(theirs - ours) <= 4 * np.spacing(np.float16(ours))
        after = sampled(weights(executable))
        moved, apart = (
            np.sqrt(sum(np.square(np.float64(after[key]) - other[key]).sum() for key in after))
            for other in (sampled(before), {key: expected[f"{key} {step}"] for key in after})
        )
        assert apart < 0.03 * moved


@pytest.mark.parametrize("partials", ["float", "half"])
def test_partial_sums_in_half(partials: str, tmp_path: Path) -> None:
    """By the option for matrices, and by the attribute of a node for convolutions."""
    model = in_type(networks.digits_cnn(), "float16")
    for node in model.graph.node:
        if node.op_type == "Conv":
            node.attribute.append(helper.make_attribute("__partials_type", partials.upper()))
    executable = trained(tmp_path, model, _ADAM, partialsTypeMatMuls=partials)
    found = losses(executable, 12)
    exact = losses(trained(tmp_path, in_type(networks.digits_cnn(), "float16"), _ADAM), 12)
    assert np.allclose(found, exact, rtol=0.02)
    assert np.array_equal(found, exact) == (partials == "float")


def test_half_partial_sums_need_half() -> None:
    """Products of float32 add up in float32, as Poplar's do, and a note says so."""
    model = networks.digits_cnn()
    model.graph.node[0].attribute.append(helper.make_attribute("__partials_type", "half"))
    notes = import_model(load_model(model), Bindings(dims={"batch": 2})).notes
    assert [note for note in notes if note.startswith("partial sums in half have no effect")]


# -- loss scales -----------------------------------------------------------------------------------


def test_a_loss_scale_saves_small_gradients(tmp_path: Path) -> None:
    """The mean over a million elements has gradients below the least float16."""
    count = 1 << 20
    mean = {"type": "identity", "input": "product", "reduction": "mean"}
    x = np.ones(count, np.float16)
    moved = []
    for scale in (1.0, 4096.0):
        optimizer = {"type": "sgd", "learning_rate": 2.0**18, "loss_scaling": scale}
        model = scaled_input(count)
        executable = trained(tmp_path, model, optimizer, loss=mean)
        executable.run({"x": x / np.float16(32)})
        moved.append(float(weights(executable)["w"][0]))
    assert moved == [1.0, 1.0 - 2.0**18 / count / 32]


def test_a_loss_scale_can_be_changed(tmp_path: Path) -> None:
    optimizer = {**_SGD, "loss_scaling": {"value": 16.0, "const": False}}
    model = in_type(networks.digits_mlp(), "float16")
    executable = trained(tmp_path, model, optimizer)
    before = losses(executable, _STEPS)
    executable.state.set_hyper_parameters(loss_scaling=500.0)
    executable.state.write(trained(tmp_path, model, optimizer).state.read(_WEIGHT))
    again = losses(executable, _STEPS)
    assert np.allclose(before, again, rtol=0.05)
    assert not np.array_equal(before, again)


_WEIGHT: Final = popc_runtime.VariableRole.WEIGHT


def test_a_loss_scale_beyond_float16(tmp_path: Path) -> None:
    model = in_type(networks.digits_mlp(), "float16")
    optimizer = {**_ADAM, "loss_scaling": 2.0**17}
    with pytest.raises(OptionError) as caught:
        trained(tmp_path, model, optimizer)
    assert "loss_scaling is 131072, but the loss 'loss' is float16" in str(caught.value)
    assert "ensure_fp32_loss_scale_tensor = true" in str(caught.value)


def test_a_loss_in_float32_has_larger_scales(tmp_path: Path) -> None:
    """Gradients of a mean over a million elements, 2^-20 each, with a scale of 2^22."""
    count = 1 << 20
    executable = trained(
        tmp_path,
        scaled_input(count),
        {"type": "sgd", "learning_rate": 2.0**16, "loss_scaling": 2.0**22},
        loss={"type": "identity", "input": "product", "reduction": "mean"},
        ensureFp32LossScaleTensor=True,
    )
    assert executable.outputs[0].dtype is DType.FLOAT32
    x = np.ones(count, np.float16)
    assert executable.run({"x": x})["product"] == 1
    assert (weights(executable)["w"] == 1 - 2.0**-4).all()


@pytest.mark.parametrize("loss_type", ["mse", "l1"])
def test_targets_stay_what_they_are(loss_type: str, tmp_path: Path) -> None:
    model = in_type(networks.digits_mlp(), "float16")
    loss = {"type": loss_type, "input": "logits", "label": "target"}
    executable = trained(tmp_path, model, _SGD, loss=loss, ensure_fp32_loss_scale_tensor=True)
    assert [spec.dtype for spec in executable.inputs] == [DType.FLOAT16] * 2
    rng = np.random.default_rng(0)
    feeds = {spec.name: rng.random(spec.shape).astype(np.float16) for spec in executable.inputs}
    found = [float(executable.run(feeds)["loss"]) for _ in range(20)]
    assert found[-1] < 0.9 * found[0]


@pytest.mark.parametrize("wide", [False, True])
def test_a_loss_scale_that_adapts_itself(tmp_path: Path, *, wide: bool) -> None:
    """It grows to its bound, and far too large a scale does no harm."""
    model = in_type(networks.digits_mlp(), "float16")
    executable = trained(tmp_path, model, _AUTOMATIC, ensure_fp32_loss_scale_tensor=wide)
    exact = losses(trained(tmp_path, networks.digits_mlp(), _ADAM), 60)
    found = losses(executable, 60)
    assert np.abs(found - exact).max() < 0.05 * exact.max()
    factor = float(executable.state.read()["lossScaleUpdateFactor"])
    assert factor == 2**15 / 1024 or (wide and 2**15 < factor * 1024 <= BATCH * 2**15)
    executable.state.write({"lossScaleUpdateFactor": np.float32(2**20)})
    found = losses(executable, 40)
    assert np.isfinite(found).all()
    assert found[-10:].mean() < 0.5
    assert float(executable.state.read()["lossScaleUpdateFactor"]) <= BATCH * 2**5
    assert all(np.isfinite(array).all() for array in weights(executable).values())


# -- stochastic rounding ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_updates_count_on_average(dtype: str, tmp_path: Path) -> None:
    """Each is a 20th of what separates 1 from the next number below it."""
    spacing = 2.0**-11 if dtype == "float16" else 2.0**-8
    optimizer = {"type": "sgd", "learning_rate": spacing / 20}
    model = scaled_input(2000, dtype)
    x = np.ones(2000, np.float16) if dtype == "float16" else np.full(2000, 0x3F80, np.uint16)
    moved = []
    for stochastic in (False, True):
        executable = trained(
            tmp_path, model, optimizer, loss=_IDENTITY, enable_stochastic_rounding=stochastic
        )
        for _ in range(100):
            executable.run({"x": x})
        moved.append((1 - weights(executable)["w"].astype(np.float64)) / spacing)
    assert not moved[0].any()
    assert set(np.unique(moved[1])) <= set(range(20))
    assert abs(moved[1].mean() - 5) < 0.3


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_scope_rounds_as_its_annotation_says(everywhere: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """Of two products with a third, one is rounded at random, the other to nearest."""
    nodes = [helper.make_node("Mul", ["x", "third"], [name], name=name) for name in "ab"]
    kind = onnx.TensorProto.FLOAT16
    graph = helper.make_graph(
        nodes,
        "two",
        [helper.make_tensor_value_info("x", kind, [500])],
        [helper.make_tensor_value_info(name, kind, [500]) for name in "ab"],
        [helper.make_tensor("third", kind, [], [1 / 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    rules = [{"nodes": "b", "stochastic_rounding": not everywhere}]
    options = {"annotate": rules, "enable_stochastic_rounding": everywhere, "verify_ir": True}
    archive = popc.compile(model, options=options)
    found = popc_runtime.load(archive.save(tmp_path / "two.popx")).run(
        x=np.full(500, 1.01, np.float16)
    )
    exact, random = ("b", "a") if everywhere else ("a", "b")
    third = np.float16(1 / 3)
    assert set(found[exact]) == {np.float16(np.float32(np.float16(1.01)) * np.float32(third))}
    assert len(set(found[random])) == 2


def test_equal_seeds_give_equal_training(tmp_path: Path) -> None:
    model = in_type(networks.digits_mlp(), "float16")
    exact = losses(trained(tmp_path, networks.digits_mlp(), _ADAM), _STEPS)
    runs = [
        losses(trained(tmp_path, model, _ADAM, seed=seed, enableStochasticRounding=True), _STEPS)
        for seed in (1, 1, 2)
    ]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    assert all(np.abs(found - exact).max() < 0.05 * exact.max() for found in runs)


def test_training_resumes_as_if_it_had_gone_on(tmp_path: Path) -> None:
    model = in_type(networks.digits_cnn(), "float16")
    executable = trained(tmp_path, model, _SCALED, seed=3, enable_stochastic_rounding=True)
    losses(executable, 4)
    executable.state.save_checkpoint(tmp_path / "c.safetensors")
    state = executable.state.random_state()
    onwards = losses(executable, 6)
    other = trained(tmp_path, model, _SCALED, seed=4, enable_stochastic_rounding=True)
    other.state.load_checkpoint(tmp_path / "c.safetensors")
    assert np.array_equal(losses(other, 6), onwards)
    final, resumed = (item.state.read() for item in (executable, other))
    assert all(np.array_equal(final[name], resumed[name]) for name in final)
    other.state.load_checkpoint(tmp_path / "c.safetensors")
    other.state.set_random_state(state)
    assert np.array_equal(losses(other, 6), onwards)


def test_accumulation_rounds_at_random_too(tmp_path: Path) -> None:
    """Gradients of 1 and 2^-11, which is lost next to it unless rounding is stochastic."""
    accum = {"type": "sgd", "learning_rate": 1.0, "accum_type": "float16"}
    sums = []
    for stochastic in (False, True):
        executable = trained(
            tmp_path,
            scaled_input(4000),
            accum,
            loss=_IDENTITY,
            accumulation_factor=4,
            enable_stochastic_rounding=stochastic,
            anchors={"Accum___w": "final"},
        )
        x = np.full((4, 4000), 2.0**-12, np.float16)
        x[0] = 1
        results = executable.run({"x": x})
        sums.append(results["Accum___w"].astype(np.float64) - 1)
    assert not sums[0].any()
    assert abs(sums[1].mean() - 3 * 2.0**-12) < 2.0**-14


# -- around it -------------------------------------------------------------------------------------


def test_a_trainer_reads_bfloat16(tmp_path: Path) -> None:
    """Losses and scores are numbers, not the patterns of bits that programs return."""
    model = in_type(networks.digits_mlp(), "bfloat16")
    executable = trained(tmp_path, model, _SCALED)
    rng = np.random.default_rng(0)
    label = rng.integers(0, 10, 4 * BATCH).astype(np.int32)
    image = to_bfloat16(rng.random((10, 64))[label].astype(np.float32))
    archive = popc.compile(model, dims={"batch": BATCH}, options={"constant_weights": False})
    evaluation = Evaluation(
        archive.save(tmp_path / "eval.popx"), {"image": image, "label": label}, ("logits", "label")
    )
    trainer = Trainer(executable, {"image": image, "label": label}, evaluate=evaluation)
    history = list(trainer.run(epochs=12))
    assert 1 < history[0].loss < 5
    assert history[-1].loss < history[0].loss / 4
    assert history[-1].metrics["accuracy"] == 1


def test_programs_that_do_not_train_round_too(tmp_path: Path) -> None:
    model = in_type(networks.digits_mlp(), "float16")
    options = {"enable_stochastic_rounding": True}
    archive = popc.compile(model, dims={"batch": BATCH}, options=options)
    executable = popc_runtime.load(archive.save(tmp_path / "m.popx"), seed=5)
    image = np.random.default_rng(0).random((BATCH, 64)).astype(np.float16)
    first, second = (executable.run({"image": image})["logits"] for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.allclose(first, second, atol=0.02)
    executable.set_seed(5)
    assert np.array_equal(executable.run({"image": image})["logits"], first)


def test_the_first_op_that_overflows_is_named(tmp_path: Path) -> None:
    """In the backward pass, by the name of the node whose gradient it computes."""
    model = in_type(networks.digits_mlp(), "float16")
    for number, node in enumerate(model.graph.node):
        node.name = f"/{number}/{node.op_type}"
    total = {"type": "cross_entropy", "input": "logits", "label": "label", "reduction": "sum"}
    scaled = {**_ADAM, "loss_scaling": 60000.0}
    executable = trained(tmp_path, model, scaled, loss=total, enable_floating_point_checks=True)
    with pytest.raises(DeviceError) as caught:
        losses(executable, 30)
    text = str(caught.value)
    assert "floating-point exception (overflow) in " in text
    assert caught.value.subject.startswith("/")
    assert "float16[" in text
