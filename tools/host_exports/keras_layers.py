"""Small networks of Keras 3 as ONNX models, with what TensorFlow computes.

    PYTHON -m tools.host_exports.keras_layers tests/recorded/keras_layers.npz

PYTHON is the interpreter of an environment with tensorflow-cpu 2.21.0, keras 3.13.2 and
tf2onnx 1.17.0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import tensorflow as tf
import tf2onnx

_OPSET: Final = 18
_BATCH: Final = 2

layers = tf.keras.layers


def main() -> None:
    """Write all networks and results into one file."""
    found: dict[str, Any] = {}
    for number, (name, (shape, dtype, make)) in enumerate(_NETWORKS.items()):
        tf.keras.utils.set_random_seed(number)
        inputs = layers.Input(shape, dtype=dtype)
        model = tf.keras.Model(inputs, make(inputs))
        rng = np.random.default_rng(number)
        drawn = (
            rng.integers(0, 16, (_BATCH, *shape))
            if dtype == "int32"
            else rng.random((_BATCH, *shape))
        )
        x = drawn.astype(dtype)
        signature = [tf.TensorSpec([None, *shape], dtype, name="x")]
        function = tf.function(lambda x, model=model: model(x), input_signature=signature)
        proto, _ = tf2onnx.convert.from_function(function, input_signature=signature, opset=_OPSET)
        found[f"{name}/model"] = np.frombuffer(proto.SerializeToString(), np.uint8)
        found[f"{name}/x"], found[f"{name}/y"] = x, function(x).numpy()
        print(name, flush=True)
    np.savez_compressed(sys.argv[1], **found)


def _convolutions(x: Any) -> Any:
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(x)
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    x = layers.DepthwiseConv2D(3, padding="same", activation="swish")(x)
    x = layers.SeparableConv2D(12, 3, dilation_rate=2)(x)
    return layers.Dense(5, activation="softmax")(layers.GlobalAveragePooling2D()(x))


def _upsampling(x: Any) -> Any:
    y = layers.MaxPooling2D(3, 2, "same")(layers.Conv2D(6, 3, padding="same")(x))
    y = layers.Conv2DTranspose(6, 3, 2, padding="same")(y)
    z = layers.UpSampling2D(2, interpolation="bilinear")(layers.AveragePooling2D(2)(x))
    return layers.Conv2D(2, 1, activation="sigmoid")(layers.Concatenate()([y, z]))


def _attention(x: Any) -> Any:
    y = layers.Embedding(16, 12)(x)
    mixed = layers.MultiHeadAttention(3, 4)(y, y, use_causal_mask=True)
    y = layers.LayerNormalization(epsilon=1e-6)(layers.Add()([y, mixed]))
    return layers.Dense(16)(layers.Dense(24, activation="silu")(y))


def _signal(x: Any) -> Any:
    x = layers.Conv1D(8, 5, padding="causal", activation="elu")(x)
    x = layers.Conv1D(8, 3, strides=2, activation="leaky_relu")(layers.ZeroPadding1D(1)(x))
    return layers.GroupNormalization(2)(layers.MaxPooling1D(2)(x))


def _lstm(x: Any) -> Any:
    return layers.LSTM(8, return_sequences=True)(x)


def _gru(x: Any) -> Any:
    return layers.Bidirectional(layers.GRU(6))(x)


def _volume(x: Any) -> Any:
    return layers.Conv3D(3, 3, activation="tanh")(x)


_Made: TypeAlias = tuple[tuple[int, ...], str, Callable[[Any], Any]]
_NETWORKS: Final[dict[str, _Made]] = {
    "convolutions": ((12, 12, 3), "float32", _convolutions),
    "upsampling": ((8, 8, 3), "float32", _upsampling),
    "attention": ((7,), "int32", _attention),
    "signal": ((16, 4), "float32", _signal),
    "lstm": ((6, 5), "float32", _lstm),
    "gru": ((6, 5), "float32", _gru),
    "volume": ((4, 6, 6, 2), "float32", _volume),
    "rows": (
        (9,),
        "float32",
        lambda x: layers.UnitNormalization()(layers.PReLU()(layers.Dense(6)(x))),
    ),
}


if __name__ == "__main__":
    main()
