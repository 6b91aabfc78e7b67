"""A small model in the format of its framework, with what the framework computes.

    PYTHON -m tools.host_exports.host_files KIND FOLDER

writes the model that KIND says, and `expected.npz`: its inputs in their order, and `result`.
PYTHON is the interpreter of the framework's own environment.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

_Expected = dict[str, Any]


def main(kind: str, folder: Path) -> None:
    """Write the model and the arrays."""
    np.savez(folder / "expected.npz", **KINDS[kind](folder))


def _keras_network() -> tuple[Any, _Expected]:
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    layers = tf.keras.layers
    network = tf.keras.Sequential(
        [
            layers.Input((8, 8, 3)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(5, activation="softmax"),
        ]
    )
    x = np.random.default_rng(0).random((2, 8, 8, 3)).astype(np.float32)
    return network, {"x": x, "result": network.predict(x, verbose=0)}


def _keras(folder: Path) -> _Expected:
    network, expected = _keras_network()
    network.save(folder / "model.keras")
    return expected


def _hdf5(folder: Path) -> _Expected:
    network, expected = _keras_network()
    network.save(folder / "model.h5")
    return expected


def _saved_model(folder: Path) -> _Expected:
    import tensorflow as tf

    network, expected = _keras_network()
    tf.saved_model.save(network, str(folder / "model"))
    return expected


def _tensorflow_lite(folder: Path) -> _Expected:
    import tensorflow as tf

    network, expected = _keras_network()
    data = tf.lite.TFLiteConverter.from_keras_model(network).convert()
    (folder / "model.tflite").write_bytes(data)
    return expected


def _paddle(folder: Path) -> _Expected:
    import paddle
    from paddle import nn, static

    paddle.seed(0)
    network = nn.Sequential(nn.Conv2D(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5))
    network.eval()
    image = static.InputSpec([None, 1, 4, 4], "float32", "image")
    paddle.jit.save(network, str(folder / "model"), input_spec=[image])
    x = np.random.default_rng(0).random((2, 1, 4, 4)).astype(np.float32)
    return {"x": x, "result": network(paddle.to_tensor(x)).numpy()}


def _torch_export(folder: Path) -> _Expected:
    import torch

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    x = torch.randn(2, 4)
    torch.export.save(torch.export.export(network, (x,)), folder / "model.pt2")
    return {"x": x.numpy(), "result": network(x).detach().numpy()}


def _transformers(folder: Path) -> _Expected:
    """With padding: a mask of ones alone would not show that the mask is there."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        num_labels=3,
    )
    network: Any = BertForSequenceClassification(config).eval()
    network.save_pretrained(folder / "model")
    words, mask = torch.randint(0, 40, (2, 7)), torch.ones(2, 7, dtype=torch.int64)
    mask[0, 4:] = 0
    scores = network(words, mask).logits.detach().numpy()
    return {"input_ids": words.numpy(), "attention_mask": mask.numpy(), "result": scores}


KINDS: Final[dict[str, Callable[[Path], _Expected]]] = {
    "hdf5": _hdf5,
    "keras": _keras,
    "paddle": _paddle,
    "saved_model": _saved_model,
    "tensorflow_lite": _tensorflow_lite,
    "torch_export": _torch_export,
    "transformers": _transformers,
}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
