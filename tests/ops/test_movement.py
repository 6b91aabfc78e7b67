"""Views, copies, joins, splits: opset forms, dtypes, corner cases."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from popc_runtime.errors import DataDependentShapeError, ModelError
from popc_runtime.format import Array
from tests.support.oracles import assert_matches_onnxruntime, run_ir, run_op

_RNG = np.random.default_rng(1)
_X = _RNG.normal(size=(2, 3, 4)).astype(np.float32)
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


def _ints(*values: int) -> Array:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("shape", "wanted", "opset", "attributes"),
    [
        ((2, 3, 4), (4, -1), 5, {}),
        ((2, 3, 4), (0, -1, 1), 13, {}),
        ((2, 3, 4), (), 13, None),
        ((2, 0, 4), (0, 0, 2, 2), 13, {}),
        ((0, 3), (3, 0), 14, {"allowzero": 1}),
        ((1, 1), (), 21, {}),
        ((), (1, -1), 21, {}),
    ],
)
def test_reshape(
    shape: tuple[int, ...],
    wanted: tuple[int, ...],
    opset: int,
    attributes: dict[str, Any] | None,
) -> None:
    x = _RNG.normal(size=shape).astype(np.float32)
    if attributes is None:
        with pytest.raises(ModelError, match="cannot take the shape"):
            run_op("Reshape", [x, _ints(*wanted)], opset=opset, constants=[1])
    else:
        assert_matches_onnxruntime(
            "Reshape", [x, _ints(*wanted)], attributes, opset=opset, constants=[1]
        )


def test_reshape_of_opset_1_has_an_attribute() -> None:
    (y,) = run_op("Reshape", [_X], {"shape": [3, -1]}, opset=1)
    np.testing.assert_array_equal(y, _X.reshape(3, 8))


@pytest.mark.parametrize("wanted", [(-1, -1), (5, -1), (2, 3, 4, 0), (-2, 3, 4)])
def test_reshape_refuses_what_is_not_a_shape(wanted: tuple[int, ...]) -> None:
    with pytest.raises(ModelError):
        run_op("Reshape", [_X, _ints(*wanted)], constants=[1])


def test_a_shape_of_run_time_must_not_be_huge() -> None:
    x = np.zeros(5000, np.float32)
    with pytest.raises(DataDependentShapeError, match=r"Reshape: .* 25,000,000 elements"):
        run_op("Reshape", [x, _ints(50, 100)])


@pytest.mark.parametrize("opset", [11, 13, 21])
@pytest.mark.parametrize(
    ("op_type", "shape", "axes"),
    [
        ("Squeeze", (1, 3, 1, 2), (0,)),
        ("Squeeze", (1, 3, 1, 2), (-2, 0)),
        ("Squeeze", (1, 3, 1, 2), None),
        ("Unsqueeze", (3, 2), (0, 3)),
        ("Unsqueeze", (3, 2), (2,)),
        ("Unsqueeze", (), (0,)),
        ("Unsqueeze", (3, 2), (-1, 1)),
    ],
)
def test_squeeze_and_unsqueeze(
    op_type: str, shape: tuple[int, ...], axes: tuple[int, ...] | None, opset: int
) -> None:
    x = _RNG.normal(size=shape).astype(np.float32)
    operands: list[Array | None] = [x]
    attributes = {}
    if axes is not None and opset < 13:
        attributes["axes"] = list(axes)
    elif axes is not None:
        operands.append(_ints(*axes))
    assert_matches_onnxruntime(op_type, operands, attributes, opset=opset, constants=[1])


def test_squeeze_with_an_empty_list_of_axes_squeezes_all() -> None:
    x = np.ones((1, 3, 1), np.float32)
    assert_matches_onnxruntime("Squeeze", [x, _ints()], constants=[1])


@pytest.mark.parametrize(
    ("op_type", "axes"), [("Squeeze", (1,)), ("Squeeze", (5,)), ("Unsqueeze", (0, -5))]
)
def test_wrong_axes(op_type: str, axes: tuple[int, ...]) -> None:
    with pytest.raises(ModelError):
        run_op(op_type, [_X, _ints(*axes)], constants=[1])


@pytest.mark.parametrize("axis", [0, 1, 3, -1])
@pytest.mark.parametrize("opset", [11, 13])
def test_flatten(axis: int, opset: int) -> None:
    assert_matches_onnxruntime("Flatten", [_X], {"axis": axis}, opset=opset)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64"])
def test_transpose_of_every_width(dtype: str) -> None:
    assert_matches_onnxruntime("Transpose", [_X.astype(dtype)], {"perm": [2, 0, 1]})
    assert_matches_onnxruntime("Transpose", [_X.astype(dtype)])


def test_transpose_refuses_what_is_not_a_permutation() -> None:
    with pytest.raises(ModelError, match="not a permutation"):
        run_op("Transpose", [_X], {"perm": [0, 0, 1]})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(axis: int) -> None:
    shapes = [[2, 3, 4] for _ in range(3)]
    for length, shape in enumerate(shapes):
        shape[axis] = length
    operands: list[Array | None] = [_RNG.normal(size=s).astype(np.float32) for s in shapes]
    assert_matches_onnxruntime("Concat", operands, {"axis": axis}, opset=13)


def test_concat_before_opset_4_defaults_to_axis_1() -> None:
    (y,) = run_op("Concat", [_X, _X], opset=3)
    np.testing.assert_array_equal(y, np.concatenate([_X, _X], 1))


def test_concat_of_strided_operands() -> None:
    x = _RNG.normal(size=(200, 150)).astype(np.float32)
    (y,) = run_ir("Concat", [x.T, np.broadcast_to(x[:1, :200].T[:150], (150, 3))], {"axis": 1})
    np.testing.assert_array_equal(y, np.concatenate([x.T, np.repeat(x[:1].T, 3, 1)], 1))


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (np.ones((2, 4, 4), np.float32), "operand 1"),
        (np.ones((2, 3, 4), np.int8), "must have the same type"),
    ],
)
def test_concat_refuses_operands_that_do_not_fit(other: Array, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        run_op("Concat", [_X, other], {"axis": 0})


@pytest.mark.parametrize(
    ("opset", "split", "attributes", "outputs"),
    [
        (2, None, {"axis": 1, "split": [1, 2]}, 2),
        (11, None, {"axis": -1}, 2),
        (13, (1, 0, 2), {"axis": 1}, 3),
        (13, None, {"axis": 2}, 4),
        (18, None, {"axis": 2, "num_outputs": 3}, 3),
        (18, (3,), {"axis": 1}, 1),
    ],
)
def test_split(
    opset: int, split: tuple[int, ...] | None, attributes: dict[str, Any], outputs: int
) -> None:
    operands = [_X] if split is None else [_X, _ints(*split)]
    if attributes.get("num_outputs") == 3:
        operands[0] = np.concatenate([_X, _X[..., :3]], -1)  # 7 = 3 + 3 + 1
    assert_matches_onnxruntime(
        "Split", operands, attributes, opset=opset, outputs=outputs, constants=[1]
    )


@pytest.mark.parametrize(("opset", "split"), [(13, (1, 1)), (13, None), (11, (5, -2))])
def test_split_refuses_parts_that_do_not_add_up(opset: int, split: tuple[int, ...] | None) -> None:
    attributes: dict[str, Any] = {"axis": 1}
    operands: list[Array | None] = [_X]
    if split and opset < 13:
        attributes["split"] = split
    elif split:
        operands.append(_ints(*split))
    with pytest.raises(ModelError):
        run_op("Split", operands, attributes, opset=opset, outputs=2, constants=[1])


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ((0, 1), (2, 3), (0, 1), None),
        ((1,), (_INT_MAX,), (-1,), (2,)),
        ((-1,), (_INT_MIN,), (2,), (-1,)),
        ((3, 2), (-10, 0), (2, 1), (-2, -1)),
        ((5,), (9,), (0,), (1,)),
        ((-100, 1, 2), (100, -1, 1), None, None),
        ((0,), (-1,), (1,), (100,)),
        ((-100,), (-100,), (2,), (-1,)),  # begins at the first element
        ((-4, -4), (-5, 0), (2, 1), (-3, -1)),
        ((100,), (2,), (2,), (-1,)),
    ],
)
def test_slice(
    starts: tuple[int, ...],
    ends: tuple[int, ...],
    axes: tuple[int, ...] | None,
    steps: tuple[int, ...] | None,
) -> None:
    operands = [_X, _ints(*starts), _ints(*ends)]
    if axes is not None:
        operands.append(_ints(*axes))
    if steps is not None:
        operands.append(_ints(*steps))
    assert_matches_onnxruntime("Slice", operands, constants=range(1, 5))
    if steps is None:
        attributes = {"starts": starts, "ends": ends} | ({"axes": axes} if axes else {})
        assert_matches_onnxruntime("Slice", [_X], attributes, opset=9)


def test_slice_refuses_step_0_and_repeated_axes() -> None:
    for axes, steps in [((0,), (0,)), ((0, -3), (1, 1))]:
        ends = _ints(*(1 for _ in axes))
        with pytest.raises(ModelError, match="sliced twice, or by step 0"):
            run_op("Slice", [_X, ends, ends, _ints(*axes), _ints(*steps)], constants=range(1, 5))


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 4), (5, 1, 1, 1), (0, 1, 1, 1)])
def test_expand(shape: tuple[int, ...]) -> None:
    x = _X if shape == (2, 3, 4) else _X[:, :, :1] if len(shape) == 2 else _X
    assert_matches_onnxruntime("Expand", [x, _ints(*shape)], constants=[1])


@pytest.mark.parametrize("repeats", [(1, 1, 1), (2, 1, 3), (0, 2, 2)])
def test_tile(repeats: tuple[int, ...]) -> None:
    assert_matches_onnxruntime("Tile", [_X, _ints(*repeats)], constants=[1])


def test_tile_of_opset_1_repeats_one_axis() -> None:
    operands = [_X, np.array(3, np.float32), np.array(1, np.float32)]
    (y,) = run_op("Tile", operands, opset=1, constants=[1, 2])
    np.testing.assert_array_equal(y, np.tile(_X, (1, 3, 1)))


@pytest.mark.parametrize(
    ("opset", "attributes"),
    [(13, {}), (15, {"start": 1}), (15, {"start": -2, "end": -1}), (21, {"start": 3, "end": -9})],
)
def test_shape(opset: int, attributes: dict[str, int]) -> None:
    assert_matches_onnxruntime("Shape", [_X], attributes, opset=opset)


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_size(shape: tuple[int, ...]) -> None:
    assert_matches_onnxruntime("Size", [np.ones(shape, np.float32)])


@pytest.mark.parametrize(
    ("op_type", "shape", "opset", "attributes"),
    [
        ("DepthToSpace", (2, 8, 3, 5), 1, {}),
        ("DepthToSpace", (2, 8, 3, 5), 13, {"mode": "DCR"}),
        ("DepthToSpace", (2, 8, 3, 5), 13, {"mode": "CRD"}),
        ("SpaceToDepth", (2, 3, 4, 6), 1, {}),
        ("SpaceToDepth", (2, 3, 4, 6), 13, {}),
    ],
)
def test_blocks(
    op_type: str, shape: tuple[int, ...], opset: int, attributes: dict[str, Any]
) -> None:
    x = _RNG.normal(size=shape).astype(np.float32)
    assert_matches_onnxruntime(op_type, [x], {"blocksize": 2, **attributes}, opset=opset)
    with pytest.raises(ModelError, match="blocks of 5 by 5"):
        run_op(op_type, [x], {"blocksize": 5}, opset=opset)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, 0, 2, -1, 9])
@pytest.mark.parametrize("constants", [(), (1,)])
def test_trilu(upper: int, k: int | None, constants: tuple[int, ...]) -> None:
    x = np.concatenate([_X, np.full((1, 3, 4), np.nan, np.float32)])
    operands = [x] if k is None else [x, np.array(k, np.int64)]
    assert_matches_onnxruntime("Trilu", operands, {"upper": upper}, constants=constants)


@pytest.mark.parametrize("batch_axis", [0, 1])
@pytest.mark.parametrize("constants", [(), (1,)])
def test_reverse_sequence(batch_axis: int, constants: tuple[int, ...]) -> None:
    x = _RNG.normal(size=(4, 4, 2)).astype(np.float32)
    attributes = {"batch_axis": batch_axis, "time_axis": 1 - batch_axis}
    operands = [x, _ints(4, 1, 3, 2)]
    assert_matches_onnxruntime("ReverseSequence", operands, attributes, constants=constants)


def test_reverse_sequence_refuses_lengths_beyond_the_sequence() -> None:
    with pytest.raises(IndexError, match=r"not all from 0 to 2"):
        run_op("ReverseSequence", [_X, _ints(1, 2, 3)], {"batch_axis": 1, "time_axis": 0})


@pytest.mark.parametrize("axes", [None, [0, 2], [-1]])
@pytest.mark.parametrize("sizes", [(5, 2, 3), (1, 4, 9)])
def test_center_crop_pad(axes: list[int] | None, sizes: tuple[int, ...]) -> None:
    sizes = sizes[: len(axes)] if axes else sizes
    attributes = {"axes": axes} if axes else {}
    assert_matches_onnxruntime(
        "CenterCropPad", [_X, _ints(*sizes)], attributes, opset=18, constants=[1]
    )


def test_bfloat16_moves_unchanged() -> None:
    x = _X.astype(ml_dtypes.bfloat16)
    x[0, 0, 0] = np.nan
    (y,) = run_op("Transpose", [x], {"perm": [1, 0, 2]})
    np.testing.assert_array_equal(y, x.astype(np.float32).transpose(1, 0, 2))
    (y,) = run_op("Pad", [x, _ints(0, 0, 1, 0, 0, 0), np.array(-3, x.dtype)], constants=[1, 2])
    np.testing.assert_array_equal(y[:, :, 0], np.full((2, 3), -3, np.float32))
