"""Operators of ai.onnx.ml but for trees, against onnxruntime."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import popc
from popc_runtime.errors import DeviceError, ModelError
from popc_runtime.format import Array
from tests.support.classical import check, ml_model, typed

_RNG = np.random.default_rng(3)
_X: Final[Array] = (_RNG.integers(-8, 9, (5, 4)) / 4).astype(np.float32)
_HOLES: Final[Array] = np.where(_RNG.random((5, 4)) < 0.3, np.float32(np.nan), _X)
_WHOLE: Final[Array] = _RNG.integers(-2, 3, (5, 4))
_WORDS: Final[Array] = np.array([["red", "blue"], ["mauve", "green"], ["red", ""]], object)
_FOUR: Final = [0.5, -1.0, 0.25, 2.0]
_CATS: Final = ["red", "green", "blue"]
_TREES: Final = ["ash", "fir", "oak"]

Case = tuple[str, dict[str, Any], list[Array]]


def _coefficients(count: int) -> list[float]:
    drawn = np.random.default_rng(count).integers(-8, 9, count)
    return [float(number) / 8 for number in drawn]


def _linear(classes: int, **more: Any) -> dict[str, Any]:
    intercepts = [0.25, -0.5, 0.125][:classes]
    return {"coefficients": _coefficients(4 * classes), "intercepts": intercepts, **more}


def _svm(kernel: str, counts: list[int], **more: Any) -> dict[str, Any]:
    classes, total = len(counts), sum(counts)
    pairs = classes * (classes - 1) // 2
    return {
        "kernel_type": kernel,
        "kernel_params": [0.5, 0.25, 2.0],
        "support_vectors": _coefficients(4 * total),
        "vectors_per_class": counts,
        "coefficients": _coefficients((classes - 1) * total + 1)[1:],
        "rho": [0.125, -0.25, 0.5][:pairs],
        "classlabels_ints": [7, 3, 5][:classes],
        **more,
    }


def _single(kernel: str, **more: Any) -> dict[str, Any]:
    return {
        "kernel_type": kernel,
        "kernel_params": [0.25, 0.5, 3.0],
        "support_vectors": _coefficients(12),
        "coefficients": [0.5, -0.25, 1.0],
        "n_supports": 3,
        "rho": [0.125],
        **more,
    }


_FEATURES: Final[list[Case]] = [
    ("Scaler", {"offset": _FOUR, "scale": _FOUR}, [_X]),
    ("Scaler", {"offset": [0.5], "scale": [2.0]}, [_X]),
    ("Scaler", {"offset": _FOUR[::-1], "scale": _FOUR}, [_WHOLE]),
    *[("Normalizer", {"norm": norm}, [x]) for norm in ("MAX", "L1", "L2") for x in (_X, 0 * _X)],
    ("Binarizer", {"threshold": 0.25}, [_X]),
    ("Binarizer", {}, [_X]),
    ("Imputer", {"imputed_value_floats": _FOUR, "replaced_value_float": float("nan")}, [_HOLES]),
    ("Imputer", {"imputed_value_floats": [9.0], "replaced_value_float": 0.5}, [_X]),
    ("Imputer", {"imputed_value_int64s": [9], "replaced_value_int64": 1}, [_WHOLE]),
    ("Imputer", {"imputed_value_int64s": [9, 8, 7, 6], "replaced_value_int64": 0}, [_WHOLE]),
    ("FeatureVectorizer", {"inputdimensions": [4, 4]}, [_X, _HOLES]),
    ("FeatureVectorizer", {"inputdimensions": [4]}, [_X]),
    ("ArrayFeatureExtractor", {}, [_X, np.array([[2, 0]])]),
    ("ArrayFeatureExtractor", {}, [_X[0], np.array([3, 3, 1])]),
    ("OneHotEncoder", {"cats_int64s": [2, 0, -1]}, [_WHOLE]),
    ("OneHotEncoder", {"cats_int64s": [2, 0, -1]}, [_WHOLE.astype(np.float32)]),
    ("OneHotEncoder", {"cats_strings": _CATS}, [_WORDS]),
    ("OneHotEncoder", {"cats_strings": [*_CATS, "mauve", ""], "zeros": 0}, [_WORDS]),
]
_LINEAR: Final[list[Case]] = [
    *[
        ("LinearRegressor", _linear(targets, targets=targets, post_transform=name), [_X])
        for targets in (1, 3)
        for name in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
    ],
    ("LinearRegressor", {"coefficients": _coefficients(4), "targets": 1}, [_X[:1]]),
    *[
        ("LinearClassifier", _linear(3, classlabels_strings=_TREES, post_transform=name), [_X])
        for name in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
    ],
    *[
        ("LinearClassifier", _linear(1, classlabels_ints=[4, 2], post_transform=name), [_X])
        for name in ("NONE", "LOGISTIC")
    ],
    ("LinearClassifier", _linear(2, classlabels_ints=[4, 2]), [_X]),
    ("LinearClassifier", _linear(3, classlabels_ints=[0, 1, 2]), [_X]),
    *[("SVMRegressor", _single(kernel), [_X]) for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID")],
    ("SVMRegressor", _single("RBF", one_class=1), [_X]),
    ("SVMRegressor", {**_single("LINEAR"), "coefficients": _FOUR, "n_supports": 0}, [_X]),
    *[
        ("SVMClassifier", _svm(kernel, [2, 1, 3]), [_X])
        for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID")
    ],
    ("SVMClassifier", _svm("RBF", [2, 3]), [_X]),
    ("SVMClassifier", _svm("RBF", [2, 3], prob_a=[-1.5], prob_b=[0.25]), [_X]),
    (
        "SVMClassifier",
        _svm("POLY", [2, 1, 2], prob_a=[-1.0, -2.0, -0.5], prob_b=[0.25, 0.0, -0.5]),
        [_X],
    ),
]
_LABELS: Final[list[Case]] = [
    ("LabelEncoder", {"keys_strings": _CATS, "values_int64s": [4, 2, 9]}, [_WORDS]),
    ("LabelEncoder", {"keys_strings": _CATS, "values_floats": [0.5, 2.0, 9.0]}, [_WORDS]),
    (
        "LabelEncoder",
        {"keys_strings": _CATS, "values_strings": _TREES, "default_string": "elm"},
        [_WORDS],
    ),
    (
        "LabelEncoder",
        {"keys_int64s": [2, 0, -1], "values_strings": _TREES, "default_string": "oak"},
        [_WHOLE],
    ),
    (
        "LabelEncoder",
        {"keys_int64s": [2, 0], "values_int64s": [20, 10], "default_int64": -7},
        [_WHOLE],
    ),
    ("CategoryMapper", {"cats_strings": _CATS, "cats_int64s": [4, 2, 9]}, [_WORDS]),
    (
        "CategoryMapper",
        {"cats_strings": _TREES, "cats_int64s": [2, 0, -1], "default_string": "?"},
        [_WHOLE],
    ),
]


def _name(case: Case) -> str:
    plain = (value for value in case[1].values() if isinstance(value, str))
    first = case[2][0]
    return "-".join([case[0], *plain, "word" if first.dtype == object else first.dtype.name])


@pytest.mark.parametrize("case", [*_FEATURES, *_LINEAR, *_LABELS], ids=_name)
def test_onnxruntime_gives_the_same(case: Case) -> None:
    op_type, attributes, arrays = case
    results = 2 if op_type.endswith("Classifier") else 1
    check(ml_model(op_type, attributes, results, inputs=range(len(arrays))), arrays)


@pytest.mark.parametrize(
    "keys", [[0.5, float("nan"), -1.0], [0.5, -1.0, 0.5]], ids=["nan", "again"]
)
def test_keys_that_are_no_number_or_repeated(keys: list[float]) -> None:
    values = {"values_floats": [1.0, 2.0, 3.0], "default_float": 9.0}
    check(ml_model("LabelEncoder", {"keys_floats": keys, **values}, 1, version=4), [_HOLES])


@pytest.mark.parametrize("x", [_WORDS, _WHOLE], ids=["words", "numbers"])
def test_encoders_of_the_first_version(x: Array) -> None:
    attributes = {"classes_strings": _CATS, "default_int64": 5, "default_string": "?"}
    check(ml_model("LabelEncoder", attributes, 1, version=1), [x])


@pytest.mark.parametrize(
    "labels",
    [{"classlabels_strings": ["a", "b", "c", "d"]}, {"classlabels_int64s": [4, 0, -1, 9]}],
    ids=["words", "numbers"],
)
def test_maps_are_columns(labels: dict[str, Any]) -> None:
    archive = check(ml_model("ZipMap", labels, 1), [_X])
    (spec,) = archive.manifest.outputs
    assert [list(spec.labels)] == list(labels.values())


_REFUSED: Final[list[tuple[str, dict[str, Any], Array, str]]] = [
    ("Scaler", {"offset": [1.0, 2.0], "scale": [1.0]}, _X, "offset has 2 numbers for 4 features"),
    ("Normalizer", {"norm": "L3"}, _X, "no norm 'L3'"),
    ("Imputer", {"imputed_value_floats": [1.0, 2.0]}, _X, "2 values are imputed in 4 columns"),
    ("FeatureVectorizer", {"inputdimensions": [3]}, _X, r"inputs have \[4\] columns, not \[3\]"),
    ("OneHotEncoder", {"cats_strings": _CATS}, _X, "cats_int64s are required"),
    ("LinearClassifier", {"coefficients": _FOUR, "intercepts": [0.0]}, _X, "lists labels"),
    ("LinearClassifier", _linear(1, classlabels_ints=[1, 2, 3]), _X, "two labels apart, not 3"),
    ("LinearRegressor", _linear(2, targets=3), _X, "2 intercepts for 3 targets"),
    ("LinearRegressor", _linear(3, post_transform="CUBE", targets=3), _X, "no post transform"),
    ("SVMRegressor", _single("CUBIC"), _X, "no kernel 'CUBIC'"),
    ("SVMRegressor", {"coefficients": _FOUR}, _X, "rho is required"),
    ("SVMClassifier", _svm("RBF", [2, 3], classlabels_ints=[1]), _X, r"1 labels have vectors"),
    ("SVMClassifier", _svm("RBF", [2, 3, 1], rho=[1.0]), _X, "too few for 3 pairs"),
    ("LabelEncoder", {"keys_strings": _CATS, "values_int64s": [1]}, _WORDS, "3 keys have 1 values"),
    ("LabelEncoder", {"keys_strings": _CATS}, _WORDS, "values must be given in one form, not 0"),
    ("LabelEncoder", {"keys_strings": _CATS, "values_int64s": [1, 2, 3]}, _X, "must be strings"),
    ("CategoryMapper", {"cats_strings": _CATS, "cats_int64s": [1]}, _WORDS, "3 strings have 1"),
    ("ZipMap", {"classlabels_int64s": [1, 2]}, _X, "2 labels do not name the columns"),
    ("Binarizer", {}, _WORDS, "Binarizer of strings is not supported"),
]


@pytest.mark.parametrize("case", _REFUSED, ids=lambda case: f"{case[0]}-{case[3]}")
def test_what_contradicts_itself_is_refused(
    case: tuple[str, dict[str, Any], Array, str],
) -> None:
    op_type, attributes, x, message = case
    results = 2 if op_type.endswith("Classifier") else 1
    with pytest.raises(ModelError, match=message):
        popc.compile(typed(ml_model(op_type, attributes, results), [x]))


@pytest.mark.parametrize(
    ("attributes", "x"),
    [({"cats_strings": _CATS}, _WORDS), ({"cats_int64s": [2, 0]}, _WHOLE)],
    ids=["words", "numbers"],
)
def test_unknown_categories_stop_a_run(attributes: dict[str, Any], x: Array) -> None:
    model = typed(ml_model("OneHotEncoder", {**attributes, "zeros": 0}, 1), [x])
    with pytest.raises(DeviceError, match="none of the categories"):
        popc.compile(model).load().run({"x0": x})
