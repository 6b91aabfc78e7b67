"""The sample networks train as in PyTorch, step for step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import popc
import popc_runtime
from samples import networks
from tests.support.compiling import CHECKED
from tests.support.recorded import Answers, Pytorch, sampled
from tests.support.torch_networks import FORWARD, parameters

_STEPS = 5  # with more, a maximum of two numbers that are nearly equal is another one
_BATCH = 16
_OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"type": "sgd", "learning_rate": 0.05, "momentum": 0.9},
    # Gradients that are 0 but for rounding (a bias of keys) must not decide about steps: eps.
    "adam": {"type": "adam", "learning_rate": 1e-3, "eps": 1e-4},
}
_NETWORKS = {
    "digits_cnn": (networks.digits_cnn, "image"),
    "digits_mlp": (networks.digits_mlp, "image"),
    "photo_cnn": (networks.photo_cnn, "image"),
    "sorting_transformer": (networks.sorting_transformer, "tokens"),
}


def _batches(model: onnx.ModelProto) -> Iterator[tuple[Any, Any]]:
    """An input and labels for each step."""
    rng = np.random.default_rng(0)
    for _ in range(_STEPS):
        yield _batch(model, rng)


def _batch(model: onnx.ModelProto, rng: np.random.Generator) -> tuple[Any, Any]:
    (x,) = model.graph.input
    shape = tuple(dim.dim_value or _BATCH for dim in x.type.tensor_type.shape.dim)
    if x.type.tensor_type.elem_type == onnx.TensorProto.INT64:
        tokens = rng.integers(0, 10, shape)
        return tokens, np.sort(tokens, axis=1).astype(np.int32)
    return rng.random(shape, np.float32), rng.integers(0, 10, _BATCH).astype(np.int32)


def _in_torch(name: str, optimizer: str) -> Answers:
    """The losses of the steps, and a sample of the weights after them."""
    import torch

    model = _NETWORKS[name][0]()
    weights = parameters(model)
    settings = _OPTIMIZERS[optimizer]
    rate = settings["learning_rate"]
    if optimizer == "sgd":
        rival: Any = torch.optim.SGD(weights.values(), lr=rate, momentum=settings["momentum"])
    else:
        rival = torch.optim.Adam(weights.values(), lr=rate, eps=settings["eps"])
    losses = []
    for x, label in _batches(model):
        rival.zero_grad()
        logits = FORWARD[name](weights, torch.from_numpy(x))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(label).long())
        loss.backward()
        rival.step()
        losses.append(loss.item())
    return {"losses": np.array(losses)} | sampled(
        {key: weight.detach().numpy() for key, weight in weights.items()}
    )


@pytest.mark.parametrize("optimizer", sorted(_OPTIMIZERS))
@pytest.mark.parametrize("name", sorted(_NETWORKS))
def test_steps_equal_those_of_torch(
    name: str, optimizer: str, tmp_path: Path, pytorch: Pytorch
) -> None:
    make, source = _NETWORKS[name]
    model = make()
    archive = popc.compile(
        model,
        dims={"batch": _BATCH},
        loss={"type": "cross_entropy", "input": "logits", "label": "label"},
        optimizer=_OPTIMIZERS[optimizer],
        options=CHECKED,
    )
    executable = popc_runtime.load(archive.save(tmp_path / "train.popx"))
    expected = pytorch(lambda: _in_torch(name, optimizer))
    losses = [executable.run({source: x, "label": label})["loss"] for x, label in _batches(model)]
    np.testing.assert_allclose(losses, expected["losses"], rtol=1e-4)
    trained = executable.state.read(popc_runtime.VariableRole.WEIGHT)
    for key, value in sampled(trained).items():
        np.testing.assert_allclose(value, expected[key], rtol=1e-3, atol=2e-5, err_msg=key)
