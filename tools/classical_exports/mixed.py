"""Columns of words and numbers, and models of LightGBM and XGBoost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tools.classical_exports.data import Array, Export, data, numbers, sklearn

__all__ = ["boosting", "columns", "ordinal_words"]

_ROWS = 300


def columns(*, words: bool) -> Export:
    """A ColumnTransformer of numbers and of categories in front of a classifier."""
    from skl2onnx import to_onnx
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    x, y = data()
    if not words:
        mixed = np.concatenate([x[:, :4], np.abs(x[:, 4:6]).astype(np.int64)], axis=1)
        parts = ColumnTransformer([
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), [0, 1, 2, 3]),
            ("categories", OneHotEncoder(handle_unknown="ignore"), [4, 5]),
        ])  # fmt: skip
        model = make_pipeline(parts, LogisticRegression()).fit(mixed.astype(np.float32), y)
        return sklearn(model, mixed.astype(np.float32))
    return _named_columns(x, y, to_onnx, ColumnTransformer, OneHotEncoder)


def _named_columns(
    x: Array, y: Array, to_onnx: Any, column_transformer: Any, one_hot: Any
) -> Export:
    """Columns with names, two of them words."""
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(2)
    trees = np.array(["ash", "beech", "cedar"], object)[(y + rng.integers(0, 2, len(y))) % 3]
    soils = np.array(["clay", "loam", "sand"], object)[rng.integers(0, 3, len(y))]
    table = _frame({"height": x[:, 0], "width": x[:, 1], "tree": trees, "soil": soils})
    parts = column_transformer([
        ("numbers", StandardScaler(), ["height", "width"]),
        ("words", one_hot(handle_unknown="ignore"), ["tree", "soil"]),
    ])  # fmt: skip
    names = np.array(["low", "middle", "high"])[y]
    model = make_pipeline(parts, LogisticRegression()).fit(table, names)
    one = [None, 1]
    types = [("height", FloatTensorType(one)), ("width", FloatTensorType(one)),
             ("tree", StringTensorType(one)), ("soil", StringTensorType(one))]  # fmt: skip
    exported = to_onnx(model, initial_types=types, target_opset={"": 18, "ai.onnx.ml": 3})
    return exported, {
        "height": x[:16, :1],
        "width": x[:16, 1:2],
        "tree": trees[:16, None].astype(str),
        "soil": soils[:16, None].astype(str),
    }


def _frame(columns: Mapping[str, Array]) -> Any:
    import pandas as pd

    return pd.DataFrame(dict(columns))


def ordinal_words() -> Export:
    """An encoder of words as numbers."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.preprocessing import OrdinalEncoder

    rng = np.random.default_rng(3)
    words = np.array(["red", "green", "blue"], object)[rng.integers(0, 3, (_ROWS, 2))]
    model = OrdinalEncoder().fit(words)
    types = [("X", StringTensorType([None, 2]))]
    exported = to_onnx(model, initial_types=types, target_opset={"": 18, "ai.onnx.ml": 3})
    return exported, {"X": words[:16].astype(str)}


def _lightgbm(model: Any, *, classes: int = 0, words: bool = False) -> Export:
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    x, y = data(classes) if classes else numbers()
    model.fit(x, y)
    del words
    types = [("X", FloatTensorType([None, x.shape[1]]))]
    exported = onnxmltools.convert_lightgbm(model, initial_types=types, target_opset=15)
    return exported, {"X": x[:16]}


def _xgboost(model: Any, *, classes: int = 0) -> Export:
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    x, y = data(classes) if classes else numbers()
    x = x.copy()
    x[::7, 2] = np.nan
    model.fit(x, y)
    types = [("X", FloatTensorType([None, x.shape[1]]))]
    exported = onnxmltools.convert_xgboost(model, initial_types=types, target_opset=15)
    return exported, {"X": x[:16]}


def boosting() -> dict[str, Callable[[], Export]]:
    """Models of LightGBM and XGBoost, by name."""
    import lightgbm
    import xgboost

    few: dict[str, Any] = {"n_estimators": 10, "n_jobs": 1}
    light: dict[str, Any] = {**few, "verbose": -1, "random_state": 0}
    return {
        "lightgbm": lambda: _lightgbm(lightgbm.LGBMClassifier(**light), classes=3),
        "lightgbm_binary": lambda: _lightgbm(lightgbm.LGBMClassifier(**light), classes=2),
        "lightgbm_regressor": lambda: _lightgbm(lightgbm.LGBMRegressor(**light)),
        "lightgbm_forest": lambda: _lightgbm(
            lightgbm.LGBMRegressor(
                **light, boosting_type="rf", bagging_freq=1, bagging_fraction=0.5
            )
        ),
        "xgboost": lambda: _xgboost(xgboost.XGBClassifier(**few), classes=3),
        "xgboost_binary": lambda: _xgboost(xgboost.XGBClassifier(**few), classes=2),
        "xgboost_regressor": lambda: _xgboost(xgboost.XGBRegressor(**few)),
    }
