"""Random numbers: distributions, seeds, the device's generator; dropout in both modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from popc.frontend import Bindings, TrainingBindings, import_model, load_model
from popc.ir import TensorType
from popc.ops.build import infer_types
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import KERNELS, Binding, RandomState, Scratch, prepare
from tests.support.oracles import one_node_model, run_graph, run_op

_T = onnx.TensorProto
_N = 20000
_TRAINING = np.ones((), np.bool_)


class _Op:
    """One IR op bound once, to be run repeatedly."""

    def __init__(
        self,
        name: str,
        inputs: list[Array],
        attributes: dict[str, Attribute],
        random: RandomState | None = None,
    ) -> None:
        types = [TensorType(DType.of(array.dtype), array.shape) for array in inputs]
        results = infer_types(name, types, attributes)
        self.outputs = tuple(np.empty(type_.shape, type_.dtype.storage) for type_ in results)
        binding = Binding(
            inputs=tuple(inputs),
            outputs=self.outputs,
            input_dtypes=tuple(type_.dtype for type_ in types),
            output_dtypes=tuple(type_.dtype for type_ in results),
            attributes=attributes,
            constant=(False,) * len(inputs),
            scratch=Scratch(),
            random=random or RandomState(),
        )
        self.calls = prepare(KERNELS[name], binding)

    def run(self) -> Array:
        for call in self.calls:
            call()
        return self.outputs[0].copy()


_NORMAL: dict[str, Attribute] = {"shape": (100,), "to": "float32", "mean": 2.0, "scale": 3.0}
_UNIFORM: dict[str, Attribute] = {"shape": (100,), "to": "float32", "low": 0.0, "high": 1.0}


@pytest.mark.parametrize("dtype", [_T.FLOAT, _T.DOUBLE, _T.FLOAT16, _T.BFLOAT16])
def test_normal(dtype: int) -> None:
    attributes = {"mean": 2.0, "scale": 3.0, "dtype": dtype}
    (drawn,) = run_op("RandomNormal", [], {"shape": [_N // 2, 2], **attributes})
    (like,) = run_op("RandomNormalLike", [np.zeros(_N, np.int32)], attributes)
    for sample in (drawn.astype(np.float64), like.astype(np.float64)):
        assert abs(sample.mean() - 2) < 0.1
        assert abs(sample.std() - 3) < 0.1
        assert abs(np.mean(sample < 2) - 0.5) < 0.02


@pytest.mark.parametrize("dtype", [_T.FLOAT, _T.DOUBLE, _T.FLOAT16])
def test_uniform(dtype: int) -> None:
    attributes = {"low": -1.0, "high": 3.0, "dtype": dtype}
    (drawn,) = run_op("RandomUniform", [], {"shape": [_N], **attributes})
    (like,) = run_op("RandomUniformLike", [np.zeros(_N, np.int32)], attributes)
    for sample in (drawn, like):
        assert sample.dtype == onnx.helper.tensor_dtype_to_np_dtype(dtype)
        assert -1 <= sample.min() < -0.9
        assert 2.9 < sample.max() <= 3
        assert abs(sample.astype(np.float64).mean() - 1) < 0.05


def test_like_takes_the_type_of_its_input() -> None:
    assert run_op("RandomNormalLike", [np.zeros((2, 3))])[0].dtype == np.float64


def test_seeded_ops_repeat_their_own_sequence() -> None:
    first, second = (_Op("RandomNormal", [], {**_NORMAL, "seed": 5}) for _ in range(2))
    runs = [first.run(), first.run()]
    assert not np.array_equal(runs[0], runs[1])
    np.testing.assert_array_equal(runs, [second.run(), second.run()])
    other = _Op("RandomNormal", [], {**_NORMAL, "seed": 6}).run()
    assert not np.array_equal(other, runs[0])


def test_ops_without_a_seed_follow_the_device() -> None:
    device = RandomState(1)
    ops = [_Op("RandomNormal", [], _NORMAL, device), _Op("RandomUniform", [], _UNIFORM, device)]
    runs = [op.run() for op in ops]
    device.seed(1)
    np.testing.assert_array_equal([op.run() for op in ops], runs)
    assert not np.array_equal(ops[0].run(), runs[0])


@pytest.mark.parametrize(("seed", "same"), [(1.0, 1.0), (0.25, 0.25), (-3.0, -3.0)])
def test_seed_of_a_node(seed: float, same: float) -> None:
    attributes = {"shape": [50], "seed": seed}
    a, b = (run_op("RandomUniform", [], {**attributes, "seed": s})[0] for s in (seed, same))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, run_op("RandomUniform", [], {**attributes, "seed": 9.0})[0])


@pytest.mark.parametrize("dtype", [None, _T.BOOL, _T.INT32, _T.FLOAT16])
@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
def test_bernoulli(source: Any, dtype: int | None) -> None:
    p = np.broadcast_to(np.array([0, 0.25, 1], source), (_N, 3))
    attributes = {} if dtype is None else {"dtype": dtype}
    (actual,) = run_op("Bernoulli", [p], attributes)
    expected = np.dtype(source) if dtype is None else onnx.helper.tensor_dtype_to_np_dtype(dtype)
    assert actual.dtype == expected
    np.testing.assert_allclose(actual.mean(axis=0, dtype=np.float64), [0, 0.25, 1], atol=0.02)
    assert set(np.unique(actual).tolist()) <= {0, 1}


@pytest.mark.parametrize("dtype", [_T.INT32, _T.INT64])
def test_multinomial(dtype: int) -> None:
    shares = np.array([[0.5, 0.3, 0.2, 0], [0, 0, 0, 1], [0.1, 0.2, 0.3, 0.4]])
    with np.errstate(divide="ignore"):
        logits = (np.log(shares) + np.array([[100], [0], [-100]])).astype(np.float32)
    (actual,) = run_op("Multinomial", [logits], {"sample_size": _N, "dtype": dtype})
    assert actual.dtype == onnx.helper.tensor_dtype_to_np_dtype(dtype)
    for row, share in zip(actual, shares, strict=True):
        np.testing.assert_allclose(np.bincount(row, minlength=4) / _N, share, atol=0.02)


@pytest.mark.parametrize("opset", [1, 6, 7, 10, 12, 22])
def test_dropout_for_inference_is_the_identity(opset: int) -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    attributes = {"ratio": 0.4} if opset < 12 else {}
    y, mask = run_op("Dropout", [x], attributes, opset=opset, outputs=2)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(mask, np.ones((3, 4)))
    assert mask.dtype == (np.bool_ if opset >= 10 else np.float32)


@pytest.mark.parametrize(
    ("opset", "attributes", "kept"),
    [
        (1, {"ratio": 0.75, "is_test": 0}, 0.25),
        (6, {"ratio": 0.75, "is_test": 1}, 1),
        (7, {"ratio": 0.75}, 0.25),
        (7, {"ratio": 0.0}, 1),
        (10, {}, 0.5),
        (10, {"ratio": 0.25}, 0.75),
        (12, {}, 1),
    ],
)
def test_dropout_without_a_mode_drops_while_the_model_is_trained(
    opset: int, attributes: dict[str, float], kept: float
) -> None:
    x = np.full((_N,), 3, np.float32)
    model = one_node_model("Dropout", [x], attributes, opset=opset, outputs=2)
    training = Bindings(training=TrainingBindings(lambda name, type_: False))
    y, mask = run_graph(import_model(load_model(model), training).graph, {"x0": x})
    assert mask.dtype == (np.bool_ if opset >= 10 else np.float32)
    assert abs(mask.mean() - kept) < 0.02
    np.testing.assert_array_equal(y, np.where(mask != 0, np.float32(3 / kept), 0))


@pytest.mark.parametrize("constants", [set(), {1, 2}])
@pytest.mark.parametrize("seed", [None, 4])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_dropout_for_training(constants: set[int], seed: int | None, dtype: Any) -> None:
    x = np.full((_N,), 2, dtype)
    operands = [x, np.array(0.75, np.float32), _TRAINING]
    attributes = {} if seed is None else {"seed": seed}
    y, mask = run_op("Dropout", operands, attributes, outputs=2, constants=constants)
    assert mask.dtype == np.bool_
    assert abs(mask.mean() - 0.25) < 0.02
    np.testing.assert_array_equal(y, np.where(mask, 8, 0))


def test_dropout_obeys_a_mode_that_changes_at_run_time() -> None:
    x, training = np.ones(1000, np.float32), np.zeros((), np.bool_)
    op = _Op("Dropout", [x, np.array(0.5, np.float32), training], {})
    assert np.all(op.run() == 1)
    training[...] = True
    assert 400 < np.count_nonzero(op.run()) < 600


def test_dropout_default_ratio() -> None:
    operands = [np.ones(_N, np.float32), None, _TRAINING]
    y = run_op("Dropout", operands, constants={2})[0]
    assert abs(np.count_nonzero(y) / _N - 0.5) < 0.02


def _by_seed(x: Array, ratio: float, seed: Sequence[int]) -> tuple[Array, Array]:
    inputs = [x, np.array(ratio, np.float32), _TRAINING, np.array(seed, np.uint32)]
    op = _Op("SeededDropout", inputs, {})
    op.run()
    return op.outputs[0], op.outputs[1]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_seed_decides_what_is_dropped(dtype: Any) -> None:
    x = np.random.default_rng(0).normal(size=(40, 50)).astype(dtype)
    y, mask = _by_seed(x, 0.25, [3, 9])
    again, _ = _by_seed(x, 0.25, [3, 9])
    np.testing.assert_array_equal(y, again)
    expected = np.random.Generator(np.random.Philox(key=3 + (9 << 32))).random(x.shape, np.float32)
    np.testing.assert_array_equal(mask, expected >= 0.25)
    for other in ([4, 9], [3, 8]):
        assert abs((_by_seed(x, 0.25, other)[1] == mask).mean() - 0.625) < 0.06


def test_dropouts_of_a_run_are_different() -> None:
    """Each has a seed of its own, and another one in each run."""
    seeds = _Op("RandomSeed", [], {})
    drawn = {tuple(map(int, seeds.run())) for _ in range(8)}
    assert len(drawn) == 8


def test_dropout_with_a_seed_attribute_draws_the_numbers_of_the_reference() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    op = _Op("Dropout", [x, np.array(0.25, np.float32), _TRAINING], {"seed": 7})
    op.run()
    expected = np.random.RandomState(7).uniform(0, 1, x.shape) >= 0.25
    np.testing.assert_array_equal(op.outputs[1], expected)


@pytest.mark.parametrize(
    ("name", "types", "attributes", "message"),
    [
        ("RandomNormal", [], {**_NORMAL, "to": "int32"}, "int32"),
        ("RandomUniform", [], {**_UNIFORM, "shape": (-1,)}, "negative"),
        (
            "SeededDropout",
            [TensorType(DType.FLOAT32, (2,))] * 2
            + [TensorType(DType.BOOL, ()), TensorType(DType.UINT32, (3,))],
            {},
            "seed must be",
        ),
        (
            "Multinomial",
            [TensorType(DType.FLOAT32, (2, 0))],
            {"sample_size": 1, "to": "int32"},
            "0 classes",
        ),
        (
            "Multinomial",
            [TensorType(DType.FLOAT32, (2,))],
            {"sample_size": 1, "to": "int32"},
            "2 dimensions",
        ),
        (
            "Multinomial",
            [TensorType(DType.FLOAT32, (2, 2))],
            {"sample_size": 1, "to": "float32"},
            "element type float32",
        ),
    ],
)
def test_refusals(
    name: str, types: list[TensorType], attributes: dict[str, Attribute], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        infer_types(name, types, attributes)
