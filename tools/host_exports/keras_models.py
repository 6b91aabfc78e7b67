"""Models of Keras as ONNX models, with what Keras computes.

    PYTHON -m tools.host_exports.keras_models tests/recorded/hosts_keras.npz

PYTHON is the interpreter of an environment with tensorflow-cpu 2.15.1, tf2onnx 1.16.1 and
numpy 1.26.4.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
import tf2onnx

_OPSET: Final = 17
_IMAGES, _SIDE = 500, 14
_BATCH: Final = 4

layers = tf.keras.layers


def main(path: Path) -> None:
    """Write all models and results into one file."""
    tf.keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    np.savez_compressed(path, **_pipeline(rng), **_network(rng))


def _converted(model: Any, *inputs: Any) -> Any:
    """The ONNX model, as bytes in an array."""
    found, _ = tf2onnx.convert.from_keras(model, input_signature=list(inputs), opset=_OPSET)
    return np.frombuffer(found.SerializeToString(), np.uint8)


def _pipeline(rng: Any) -> dict[str, Any]:
    """The pipeline of the document, on smaller images and layers: strokes of some grey."""
    image = layers.Input((_SIDE * _SIDE,), 1, name="image")
    partial = layers.Dense(64, activation=tf.nn.relu, name="stage1/first")(image)
    partial = layers.Dense(32, activation=tf.nn.relu, name="stage1/second")(partial)
    logits = layers.Dense(10, name="stage2/logits")(partial)
    probabilities = layers.Softmax(name="probabilities")(logits)
    classes = layers.Lambda(lambda x: tf.argmax(x, axis=1), name="classes")(logits)
    model = tf.keras.Model(image, [probabilities, classes])
    strokes = rng.random((_IMAGES, _SIDE * _SIDE)) > 0.85
    images = (strokes * rng.integers(1, 256, (_IMAGES, 1))).astype(np.uint8)
    feed = images.astype(np.float32) / np.float32(255)
    expected = [model(feed[i : i + 1]) for i in range(_IMAGES)]
    return {
        "pipeline": _converted(model, tf.TensorSpec((1, _SIDE * _SIDE), tf.float32, "image")),
        "pipeline_images": images,
        "pipeline_probabilities": np.stack([row[0].numpy() for row in expected]),
        "pipeline_classes": np.stack([row[1].numpy() for row in expected]),
    }


def _network(rng: Any) -> dict[str, Any]:
    """Convolutions, statistics, two products of one tensor, and a lookup."""
    image = layers.Input((8, 8, 3), name="image")
    word = layers.Input((), dtype=tf.int32, name="word")
    x = layers.Conv2D(8, 3, padding="same", activation="relu")(image)
    x = layers.BatchNormalization(moving_mean_initializer="ones")(x)
    x = layers.DepthwiseConv2D(3)(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Concatenate()([x, layers.Embedding(16, 8)(word)])
    x = layers.LayerNormalization()(layers.Dense(12, "tanh")(x) * layers.Dense(12, "sigmoid")(x))
    model = tf.keras.Model([image, word], layers.Dense(5, "softmax", name="scores")(x))
    images = rng.random((_BATCH, 8, 8, 3)).astype(np.float32)
    words = rng.integers(0, 16, _BATCH).astype(np.int32)
    signature = (
        tf.TensorSpec((None, 8, 8, 3), tf.float32, "image"),
        tf.TensorSpec((None,), tf.int32, "word"),
    )
    return {
        "network": _converted(model, *signature),
        "network_image": images,
        "network_word": words,
        "network_scores": model([images, words]).numpy(),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
