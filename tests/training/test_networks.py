"""The sample networks train as in PyTorch, step for step."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import popc
import popc_runtime
from samples import networks
from tests.support.torch_networks import FORWARD, parameters

_STEPS = 20
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


def _batch(model: onnx.ModelProto, rng: np.random.Generator) -> tuple[Any, Any]:
    """An input and labels for one step."""
    (x,) = model.graph.input
    shape = tuple(dim.dim_value or _BATCH for dim in x.type.tensor_type.shape.dim)
    if x.type.tensor_type.elem_type == onnx.TensorProto.INT64:
        tokens = rng.integers(0, 10, shape)
        return tokens, np.sort(tokens, axis=1).astype(np.int32)
    return rng.random(shape, np.float32), rng.integers(0, 10, _BATCH).astype(np.int32)


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("optimizer", sorted(_OPTIMIZERS))
@pytest.mark.parametrize("name", sorted(_NETWORKS))
def test_steps_equal_those_of_torch(name: str, optimizer: str, tmp_path: Path) -> None:
    import torch

    make, source = _NETWORKS[name]
    model = make()
    settings = _OPTIMIZERS[optimizer]
    archive = popc.compile(
        model,
        dims={"batch": _BATCH},
        loss={"type": "cross_entropy", "input": "logits", "label": "label"},
        optimizer=settings,
        options={"verify_ir": True},
    )
    executable = popc_runtime.load(archive.save(tmp_path / "train.popx"))
    weights = parameters(model)
    rate = settings["learning_rate"]
    if optimizer == "sgd":
        rival: Any = torch.optim.SGD(weights.values(), lr=rate, momentum=settings["momentum"])
    else:
        rival = torch.optim.Adam(weights.values(), lr=rate, eps=settings["eps"])
    rng = np.random.default_rng(0)
    for _ in range(_STEPS):
        x, label = _batch(model, rng)
        rival.zero_grad()
        logits = FORWARD[name](weights, torch.from_numpy(x))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(label).long())
        loss.backward()
        rival.step()
        ours = executable.run({source: x, "label": label})["loss"]
        np.testing.assert_allclose(ours, loss.item(), rtol=1e-4)
    for key, value in executable.state.read(popc_runtime.VariableRole.WEIGHT).items():
        expected = weights[key].detach().numpy()
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=2e-5, err_msg=key)
