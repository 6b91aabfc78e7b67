"""The rules: every part of an op gives its part of the whole result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest

from popc.ir import Graph, Op, TensorType
from popc.ops import OPS
from popc.ops.build import build, evaluate
from popc.transforms.batch_serialization.cut import Case, Combination, Cut
from popc.transforms.batch_serialization.rules import RULES, cut_op
from popc_runtime.format import Array, DType

PARTS = 2


def _op(op_type: str, arrays: Sequence[Array | None], attributes: dict[str, Any]) -> Op:
    graph = Graph("one")
    inputs = [
        None
        if array is None
        else graph.add_input("x", TensorType(DType.of(array.dtype), array.shape))
        for array in arrays
    ]
    return build(graph, op_type, inputs, attributes)


def _parts(array: Array | None, axis: int | None) -> list[Array | None]:
    if array is None or axis is None:
        return [array] * PARTS
    return [np.ascontiguousarray(part) for part in np.split(array, PARTS, axis)]


def _together(parts: Sequence[Array], place: int | Combination) -> Array:
    if isinstance(place, int):
        return np.concatenate(parts, place)
    ufunc = {
        Combination.MAX: np.maximum,
        Combination.MIN: np.minimum,
        Combination.PRODUCT: np.multiply,
    }.get(place, np.add)
    total: Array = ufunc.reduce(np.stack(parts), axis=0)
    return total / PARTS if place is Combination.MEAN else total


def check(
    op_type: str,
    arrays: Sequence[Array | None],
    axes: Sequence[int | None],
    attributes: dict[str, Any],
) -> Cut:
    """The op's cut, if its parts give what the op gives."""
    op = _op(op_type, arrays, attributes)
    cut = cut_op(Case(op, tuple(axes), PARTS))
    assert isinstance(cut, Cut), cut
    operands = [_parts(array, axis) for array, axis in zip(arrays, cut.operands, strict=True)]
    results: list[list[Array]] = []
    for phase in range(PARTS):
        inputs = [operand[phase] for operand in operands]
        for index in cut.divided:
            whole = inputs[index]
            assert whole is not None
            inputs[index] = (whole / PARTS).astype(whole.dtype)
        part = _op(op_type, inputs, {**attributes, **cut.attributes})
        results.append(list(evaluate(part, inputs)))
    for index, whole in enumerate(evaluate(op, arrays)):
        found = _together([result[index] for result in results], cut.results[index])
        assert found.shape == whole.shape
        np.testing.assert_allclose(found, whole, rtol=1e-5, atol=1e-5)
    return cut


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def numbers(high: int, *shape: int) -> Array:
    return np.random.default_rng(7).integers(0, high, shape)


_WINDOW = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
_POOL = {"kernel_shape": (2, 2), "strides": (2, 2), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
_X, _W = floats(4, 2, 6, 6), floats(4, 2, 3, 3)
_POOLED = floats(4, 2, 3, 3)
_LABELS = numbers(5, 4, 3)
_FIRST_OF_FIVE: list[int | None] = [0, None, None, None, None]
_RATIO, _TRUE = np.full((), 0.5, np.float32), np.ones((), np.bool_)
_Case: TypeAlias = "tuple[str, list[Array | None], list[int | None], dict[str, Any], Any]"
_LOSSES: list[_Case] = [
    (name, [floats(4, 5, 3), _LABELS], [0, None], {"reduction": kind}, place)
    for name in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
    for kind, place in (("none", 0), ("sum", Combination.SUM), ("mean", Combination.MEAN))
]


def _loss_grads() -> Iterator[_Case]:
    for kind in ("none", "sum", "mean"):
        grad = floats(*(_LABELS.shape if kind == "none" else ()))
        scores = [grad, floats(4, 5, 3), _LABELS]
        yield "SoftmaxCrossEntropyLossGrad", [*scores], [None, 0, None], {"reduction": kind}, 0
        shaped = {"reduction": kind, "shape": (4, 5, 3)}
        yield "NegativeLogLikelihoodLossGrad", [grad, _LABELS], [None, 0], shaped, 0


_LINEAR: list[Array | None] = [
    floats(4, 2, 5, 6),
    *(floats(3, 4, 2, 1, size) for size in (5, 5, 6)),
    floats(3, 4, 2, 5, 1),
    floats(3, 4, 2, 1, 1),
]
CASES: list[_Case] = [
    # elementwise: operands that broadcast are cut where they have the batch
    ("Relu", [floats(4, 3)], [0], {}, 0),
    ("Add", [floats(4, 3), floats(3)], [0, None], {}, 0),
    ("Add", [floats(4), floats(3, 4)], [0, None], {}, 1),
    ("Add", [floats(4, 1), floats(1, 4)], [0, 1], {}, 0),
    ("Where", [floats(4, 1) > 0, floats(3), floats(4, 3)], [0, None, 0], {}, 0),
    ("Sum", [floats(4, 3), floats(4, 3), floats(1, 3)], [0, 0, None], {}, 0),
    ("PRelu", [floats(4, 3), floats(3)], [0, None], {}, 0),
    ("ReluGrad", [floats(4, 3), floats(4, 3)], [None, 0], {}, 0),
    ("Cast", [floats(3, 4)], [1], {"to": "float64"}, 1),
    ("DropoutGrad", [floats(4, 3), floats(4, 3) > 0, _RATIO, _TRUE], [0, None, None, None], {}, 0),
    ("QuantizeLinear", [floats(4, 3), np.array([0.1, 0.2, 0.3], np.float32), None],
     [0, None, None], {"axis": 1, "dtype": "int8"}, 0),
    # movement
    ("Reshape", [floats(4, 3, 2)], [0], {"shape": (12, 2)}, 0),
    ("Reshape", [floats(12, 2)], [0], {"shape": (4, 6)}, 0),
    ("Reshape", [floats(4, 3)], [0], {"shape": (6, 2)}, 0),
    ("Reshape", [floats(3, 4, 2)], [1], {"shape": (3, 8)}, 1),
    ("Reshape", [floats(3, 4)], [1], {"shape": (3, 1, 2, 2)}, 2),
    ("Transpose", [floats(3, 4, 2)], [1], {"perm": (1, 2, 0)}, 0),
    ("Expand", [floats(4, 1)], [0], {"shape": (2, 4, 3)}, 1),
    ("Concat", [floats(4, 3), floats(4, 2)], [0, None], {"axis": 1}, 0),
    ("Split", [floats(4, 5)], [0], {"axis": 1, "split": (2, 3)}, 0),
    ("Slice", [floats(4, 5)], [0], {"starts": (0, 4), "sizes": (4, 2), "steps": (1, -2)}, 0),
    ("Pad", [floats(4, 5)], [0], {"pads": (0, 1, 0, 2), "mode": "edge", "value": 0}, 0),
    ("PadGrad", [floats(4, 5)], [0], {"pads": (0, 1, 0, 1), "mode": "reflect"}, 0),
    ("Tile", [floats(4, 2)], [0], {"repeats": (1, 3)}, 0),
    ("Trilu", [floats(4, 3, 3)], [0], {"upper": 1}, 0),
    ("TopK", [floats(4, 5)], [0], {"axis": 1, "k": 2, "largest": 1, "sorted": 1}, 0),
    ("CumSum", [floats(4, 5)], [0], {"axis": 1, "exclusive": 0, "reverse": 0}, 0),
    ("Resize", [floats(4, 2, 3, 3)], [0],
     {"shape": (4, 2, 6, 6), "mode": "linear", "coordinate_transformation_mode": "half_pixel",
      "scales": (1.0, 1.0, 2.0, 2.0)}, 0),
    ("DynamicSlice", [floats(4, 5), np.array([2])], [0, None], {"axes": (1,), "sizes": (2,)}, 0),
    ("DynamicUpdate", [floats(4, 5), np.array([2]), floats(4, 2)], [None, None, 0],
     {"axes": (1,), "sizes": (2,)}, 0),
    ("ReverseSequence", [floats(5, 4), numbers(5, 4) + 1], [1, None],
     {"batch_axis": 1, "time_axis": 0}, 1),
    ("Det", [floats(4, 3, 3)], [0], {}, 0),
    ("DetGrad", [floats(4), floats(4, 3, 3)], [0, 0], {}, 0),
    ("Inverse", [floats(4, 3, 3)], [0], {}, 0),
    # products
    ("MatMul", [floats(4, 3), floats(3, 2)], [0, None], {}, 0),
    ("MatMul", [floats(3, 4), floats(4, 2)], [1, 0], {}, Combination.SUM),
    ("MatMul", [floats(2, 3), floats(3, 4)], [None, 1], {}, 1),
    ("MatMul", [floats(4, 2, 3), floats(3, 5)], [0, None], {}, 0),
    ("MatMul", [floats(2, 3), floats(4, 3, 5)], [None, 0], {}, 0),
    ("MatMul", [floats(4, 1, 2, 3), floats(5, 3, 2)], [0, None], {}, 0),
    ("MatMul", [floats(3), floats(3, 4)], [None, 1], {}, 0),
    ("MatMul", [floats(4), floats(4, 2)], [0, None], {}, Combination.SUM),
    ("MatMul", [floats(4, 3), floats(3)], [0, None], {}, 0),
    ("MatMul", [floats(2, 5, 4), floats(4)], [2, 0], {}, Combination.SUM),
    ("MatMul", [floats(4, 3), floats(3, 4)], [0, 1], {}, 0),
    ("MatMul", [floats(4, 3), floats(3, 2), floats(2), floats(4, 2)], [0, None, None, None],
     {"activation": "Relu"}, 0),
    ("MatMul", [floats(4, 3), floats(3, 2), None, floats(4, 2)], [None, None, None, 0], {}, 0),
    ("Gemm", [floats(4, 3), floats(3, 2), floats(2)], [0, None, None], {}, 0),
    ("Gemm", [floats(3, 4), floats(2, 3)], [1, None], {"transA": 1, "transB": 1}, 0),
    ("Gemm", [floats(4, 3), floats(4, 2)], [0, 0], {"transA": 1, "alpha": 0.5},
     Combination.SUM),
    ("Gemm", [floats(2, 3), floats(4, 3), floats(4)], [None, 0, None], {"transB": 1}, 1),
    # windows
    ("Conv", [_X, _W, floats(4)], [0, None, None], {**_WINDOW, "group": 1}, 0),
    ("Conv", [_X, _W, None, floats(4, 4, 6, 6)], [0, None, None, None],
     {**_WINDOW, "group": 1, "activation": "Relu"}, 0),
    ("ConvTranspose", [_X, floats(2, 3, 3, 3)], [0, None],
     {**_WINDOW, "group": 1, "output_padding": (0, 0)}, 0),
    ("ConvWeightsGrad", [floats(4, 4, 6, 6), _X], [0, 0],
     {**_WINDOW, "group": 1, "kernel_shape": (3, 3)}, Combination.SUM),
    ("AveragePool", [_X], [0], {**_POOL, "count_include_pad": 0}, 0),
    ("AveragePoolGrad", [_POOLED], [0], {**_POOL, "shape": (4, 2, 6, 6)}, 0),
    ("MaxPool", [_X], [0], _POOL, 0),
    ("MaxPoolGrad", [_POOLED, _X, _X.reshape(4, 2, 3, 2, 3, 2).max((3, 5))], [0, 0, 0], _POOL, 0),
    ("LpPool", [_X], [0], {**_POOL, "p": 2}, 0),
    ("GridSample", [_X, floats(4, 3, 3, 2)], [0, None],
     {"mode": "linear", "padding_mode": "zeros", "align_corners": 0}, 0),
    # norms
    ("BatchNormalization", [_X, *(abs(floats(2, seed=i)) for i in range(4))], _FIRST_OF_FIVE,
     {"epsilon": 1e-5}, 0),
    ("BatchNormalizationGrad", [_X, floats(4, 2, 6, 6, seed=1),
                                *(abs(floats(2, seed=i)) for i in range(3))],
     _FIRST_OF_FIVE, {"epsilon": 1e-5, "training_mode": 0}, 0),
    ("GroupNormalization", [_X, floats(2), floats(2)], [0, None, None],
     {"num_groups": 2, "epsilon": 1e-5}, 0),
    ("InstanceNormalizationGrad", [_X, floats(4, 2, 6, 6, seed=1), floats(2)], [0, 0, None],
     {"epsilon": 1e-5}, 0),
    ("LayerNormalization", [floats(4, 3, 5), floats(5), floats(5)], [0, None, None],
     {"axis": -1, "epsilon": 1e-5, "stash_type": "float32"}, 0),
    ("LayerNormalizationGrad", [floats(4, 3, 5), floats(4, 3, 5, seed=1), floats(5), None, None],
     [0, 0, None, None, None], {"axis": -1, "epsilon": 1e-5}, 0),
    ("RMSNormalization", [floats(4, 5), floats(5)], [0, None], {"axis": 1, "epsilon": 1e-5}, 0),
    ("LRN", [_X], [0], {"size": 3, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}, 0),
    # reductions
    ("ReduceMean", [floats(4, 3)], [0], {"axes": (0, 1), "keepdims": 0}, Combination.MEAN),
    ("ReduceSum", [floats(4, 3)], [0], {"axes": (0,), "keepdims": 1}, Combination.SUM),
    ("ReduceMax", [floats(4, 3)], [0], {"axes": (0,), "keepdims": 1}, Combination.MAX),
    ("ReduceMin", [floats(4, 3)], [0], {"axes": (0,), "keepdims": 1}, Combination.MIN),
    ("ReduceProd", [floats(4, 3)], [0], {"axes": (0,), "keepdims": 1}, Combination.PRODUCT),
    ("ReduceL1", [floats(4, 3)], [0], {"axes": (0,), "keepdims": 1}, Combination.SUM),
    ("ReduceL2", [floats(3, 4)], [1], {"axes": (0,), "keepdims": 0}, 0),
    ("ReduceSum", [floats(3, 2, 4)], [2], {"axes": (0, 1), "keepdims": 0}, 0),
    ("ArgMax", [floats(3, 4)], [1], {"axis": 0, "keepdims": 0, "select_last_index": 0}, 0),
    # indexing
    ("Gather", [floats(5, 3), numbers(5, 4, 2)], [None, 0], {"axis": 0}, 0),
    ("Gather", [floats(4, 3, 2), numbers(3, 2, 2)], [0, None], {"axis": 1}, 0),
    ("Gather", [floats(3, 4), numbers(3, 2, 2)], [1, None], {"axis": 0}, 2),
    ("GatherGrad", [floats(4, 2, 3), numbers(5, 4, 2)], [0, 0], {"axis": 0, "size": 5},
     Combination.SUM),
    ("GatherGrad", [floats(4, 2, 3), numbers(5, 2)], [0, None], {"axis": 1, "size": 5}, 0),
    ("GatherElements", [floats(4, 3), numbers(3, 4, 2)], [0, 0], {"axis": 1}, 0),
    ("GatherElements", [floats(3, 2), numbers(3, 4, 2)], [None, 0], {"axis": 0}, 0),
    ("GatherND", [floats(4, 3, 2), numbers(2, 4, 1)], [0, 0], {"batch_dims": 1}, 0),
    ("GatherND", [floats(5, 2), numbers(5, 4, 1)], [None, 0], {"batch_dims": 0}, 0),
    ("OneHot", [numbers(3, 4), floats(2)], [0, None], {"axis": -1, "depth": 3}, 0),
    ("OneHot", [numbers(3, 4), floats(2)], [0, None], {"axis": 0, "depth": 3}, 1),
    ("ScatterElements", [floats(4, 3), numbers(3, 4, 1), floats(4, 1)], [0, None, None],
     {"axis": 1, "reduction": "none"}, 0),
    ("TensorScatter", [floats(4, 5, 2), floats(4, 1, 2), numbers(4, 4)], [None, 0, None],
     {"axis": 1, "mode": "linear"}, 0),
    # losses
    ("Softmax", [floats(4, 3)], [0], {"axis": 1}, 0),
    ("SoftmaxGrad", [floats(4, 3), floats(4, 3)], [0, None], {"axis": 1}, 0),
    *_LOSSES,
    ("Nll", [abs(floats(4, 3, 5)), _LABELS], [None, 0], {"reduction": "mean"}, Combination.MEAN),
    *_loss_grads(),
    ("NllGrad", [floats(), abs(floats(4, 3, 5)) + 1, _LABELS], [None, None, 0],
     {"reduction": "mean"}, 0),
    # sequences
    ("Attention", [floats(4, 2, 3, 5), floats(4, 2, 6, 5), floats(4, 2, 6, 5), floats(3, 6)],
     [0, None, None, None], {"scale": 0.5}, 0),
    ("Attention", [floats(4, 2, 3, 5), floats(4, 2, 6, 5), floats(4, 2, 6, 5),
                   floats(4, 1, 3, 6)], [0, 0, 0, 0], {"scale": 0.5, "heads_last": 1}, 0),
    ("RotaryEmbedding", [floats(4, 2, 3, 4), floats(3, 2), floats(3, 2)], [0, None, None],
     {"interleaved": 0}, 0),
    ("LSTM", [floats(3, 4, 2), floats(1, 20, 2), floats(1, 20, 5), None, None, floats(1, 4, 5)],
     [1, None, None, None, None, None],
     {"direction": "forward", "activations": ("sigmoid", "tanh", "tanh"),
      "alphas": (0.0,) * 3, "betas": (0.0,) * 3}, 2),
    ("LinearAttention", _LINEAR, [0, *[1] * 5], {}, 1),
    ("LinearAttentionGrad", [*_LINEAR, floats(3, 4, 2, 1, 6), floats(4, 2, 5, 6)],
     [0, *[1] * 6, 0], {"wanted": (1, 0, 5)}, 1),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "arrays", "axes", "attributes", "place"), CASES)
def test_parts_make_up_the_whole(
    op_type: str,
    arrays: list[Array | None],
    axes: list[int | None],
    attributes: dict[str, Any],
    place: Any,
) -> None:
    assert check(op_type, arrays, axes, attributes).results[0] == place


WHOLE: list[tuple[str, list[Array | None], list[int | None], dict[str, Any], str]] = [
    ("Reshape", [floats(6, 2)], [0], {"shape": (3, 4)}, "no dimension"),
    ("Concat", [floats(4, 3), floats(4, 3)], [0, 0], {"axis": 0}, "joins along"),
    ("Slice", [floats(4, 3)], [0], {"starts": (3, 0), "sizes": (4, 3), "steps": (-1, 1)}, "slices"),
    ("Pad", [floats(4)], [0], {"pads": (1, 0), "mode": "constant", "value": 0}, "pads"),
    ("Softmax", [floats(4, 3)], [0], {"axis": 0}, "along the batch"),
    ("ReduceL2", [floats(4, 3)], [0], {"axes": (0,), "keepdims": 0}, "reduces the batch"),
    ("BatchNormalizationTraining", [floats(4, 3), floats(3), floats(3)], [0, None, None],
     {"epsilon": 1e-5}, "statistics"),
    ("MatMul", [floats(3, 4), floats(4, 2), floats(2)], [1, 0, None], {}, "sums over the batch"),
    ("Conv", [_X, _W], [None, 0], {**_WINDOW, "group": 1}, "another axis than their batch"),
    ("MaxPool", [_X], [0], {**_POOL, "indices": 1}, "positions"),
    ("Gather", [floats(4, 3), numbers(4, 2)], [0, None], {"axis": 0}, "anywhere"),
    ("SoftmaxCrossEntropyLoss", [floats(4, 5), numbers(5, 4)], [0, None],
     {"reduction": "mean", "ignore_index": 1}, "labels that count"),
    ("Dropout", [floats(4, 3), _RATIO, _TRUE], [0, None, None], {},
     "random numbers"),
    ("SeededDropout", [floats(4, 3), _RATIO, _TRUE, np.zeros(2, np.uint32)],
     [0, None, None, None], {}, "random numbers"),
    ("PrintTensor", [floats(4, 3)], [0], {"title": "x"}, "acts on the whole"),
    ("LayerNormalization", [floats(4, 3), floats(3)], [1, None],
     {"axis": -1, "epsilon": 1e-5, "stash_type": "float32"}, "normalised"),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "arrays", "axes", "attributes", "reason"), WHOLE)
def test_what_mixes_samples_stays_whole(
    op_type: str,
    arrays: list[Array | None],
    axes: list[int | None],
    attributes: dict[str, Any],
    reason: str,
) -> None:
    found = cut_op(Case(_op(op_type, arrays, attributes), tuple(axes), PARTS))
    assert isinstance(found, str)
    assert reason in found


def test_rules_are_for_ops_that_exist() -> None:
    """But for copies between chips, which are made elsewhere."""
    assert set(RULES) - set(OPS) <= {"IpuCopy"}
