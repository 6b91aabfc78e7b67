"""Small data, and models trained on it and exported."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = [
    "Array",
    "Export",
    "classifier",
    "data",
    "numbers",
    "regressor",
    "sklearn",
    "transformer",
    "with_holes",
    "with_plain_numbers",
]

Array: TypeAlias = "np.ndarray[Any, Any]"
Export: TypeAlias = "tuple[Any, dict[str, Array]]"

_FEATURES = 8
_ROWS = 300


def data(classes: int = 3, features: int = _FEATURES) -> tuple[Array, Array]:
    """Points [rows, features] around a centre for each class, and the classes."""
    rng = np.random.default_rng(classes)
    y = rng.integers(0, classes, _ROWS)
    centres = rng.normal(0, 1.5, (classes, features))
    x = centres[y] + rng.normal(0, 1, (_ROWS, features))
    return x.astype(np.float32), y


def numbers(targets: int = 1) -> tuple[Array, Array]:
    """Points [rows, features] and smooth functions of them."""
    x, _ = data()
    y = np.stack([np.sin(x[:, i]) * 3 + x[:, i + 1] ** 2 for i in range(targets)], axis=1)
    return x, y[:, 0] if targets == 1 else y


def sklearn(model: Any, x: Array, **settings: Any) -> Export:
    """A fitted model of scikit-learn, exported for any number of rows like ``x``."""
    from skl2onnx import to_onnx

    settings.setdefault("target_opset", {"": 18, "ai.onnx.ml": 3})
    return to_onnx(model, x[:1], **settings), {"X": x[:16]}


def classifier(model: Any, classes: int = 3, *, names: bool = False, **settings: Any) -> Export:
    """A classifier, fitted and exported; ``names``: of classes with names."""
    x, y = data(classes)
    labels = np.array(["ash", "beech", "cedar", "fir"])[y] if names else y
    return sklearn(model.fit(x, labels), x, **settings)


def regressor(model: Any, targets: int = 1, **settings: Any) -> Export:
    """A regressor, fitted and exported."""
    x, y = numbers(targets)
    return sklearn(model.fit(x, y), x, **settings)


def transformer(model: Any, *, positive: bool = False) -> Export:
    """A model of anything else, fitted and exported; ``positive``: on such numbers."""
    x, y = data()
    x = np.abs(x) if positive else x
    return sklearn(model.fit(x, y), x)


def _holes() -> Array:
    x, _ = data()
    x[np.random.default_rng(1).random(x.shape) < 0.2] = np.nan
    return x


def with_holes(model: Any) -> Export:
    """A model that is fitted and exported where numbers are missing."""
    x, (_, y) = _holes(), data()
    return sklearn(model.fit(x, y), x)


def with_plain_numbers() -> None:
    """Let skl2onnx hand numbers of numpy's to onnx as those of Python: onnx refuses uint32."""
    from skl2onnx.common import _container

    make_node = _container.make_node

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, np.bool | bool):
            return int(value)
        return value.item() if isinstance(value, np.generic) else value

    def make(*names: Any, **attributes: Any) -> Any:
        return make_node(*names, **{name: plain(value) for name, value in attributes.items()})

    _container.make_node = make
