"""ai.graphcore: slices at run-time offsets, packed sequences; judged by numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import helper

import popc
import popc_runtime
from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import import_graph, one_node_model, run_ir, run_model, run_op

_DOMAIN: Final = "ai.graphcore"
_RNG: Final = np.random.default_rng(5)
_X: Final = _RNG.standard_normal((3, 5, 6)).astype(np.float32)
_WINDOW: Final[Mapping[str, Any]] = {"axes": [0, 2], "sizes": [2, 4]}
_OFFSETS: Final = np.array([1, 2], np.uint32)
_PLACE: Final = (slice(1, 3), slice(None), slice(2, 6))
_SLICE: Final = _RNG.standard_normal((2, 5, 4)).astype(np.float32)


def _run(
    op_type: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    constants: Sequence[int] = (),
) -> Array:
    return run_op(op_type, inputs, attributes, constants=constants, domain=_DOMAIN)[0]


@pytest.mark.parametrize("constants", [(), (1,)], ids=["run-time", "known"])
def test_dynamic_slice(constants: Sequence[int]) -> None:
    result = _run("DynamicSlice", [_X, _OFFSETS], _WINDOW, constants)
    np.testing.assert_array_equal(result, _X[_PLACE])
    hint = np.zeros((2, 5, 4), np.float32)
    result = _run("DynamicSlice", [_X, _OFFSETS, hint], {**_WINDOW, "noOverlap": 1}, constants)
    np.testing.assert_array_equal(result, _X[_PLACE])


@pytest.mark.parametrize("constants", [(), (1,)], ids=["run-time", "known"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32])
def test_dynamic_writes(dtype: Any, constants: Sequence[int]) -> None:
    x, part = (10 * _X).astype(dtype), (10 * _SLICE).astype(dtype)
    expected = x.copy()
    expected[_PLACE] = part
    result = _run("DynamicUpdate", [x, _OFFSETS, part], _WINDOW, constants)
    np.testing.assert_array_equal(result, expected)
    expected[_PLACE] = x[_PLACE] + part
    result = _run("DynamicAdd", [x, _OFFSETS, part], _WINDOW, constants)
    np.testing.assert_array_equal(result, expected)
    expected[_PLACE] = 0
    result = _run("DynamicZero", [x, _OFFSETS], _WINDOW, constants)
    np.testing.assert_array_equal(result, expected)


def test_an_update_may_lack_dimensions_of_size_one() -> None:
    part = np.ones((5, 6), np.float32)
    result = _run("DynamicUpdate", [_X, np.array(2, np.int32), part], {"axes": [0], "sizes": [1]})
    np.testing.assert_array_equal(result, [_X[0], _X[1], part])


def test_strided_operands() -> None:
    x = np.asfortranarray(_X)
    attributes = {"axes": (0, 2), "sizes": (2, 4)}
    (result,) = run_ir("DynamicSlice", [x, _OFFSETS[::1]], attributes)
    np.testing.assert_array_equal(result, _X[_PLACE])
    (result,) = run_ir("DynamicAdd", [x, _OFFSETS, np.asfortranarray(_SLICE)], attributes)
    np.testing.assert_allclose(result[_PLACE], _X[_PLACE] + _SLICE)


def test_a_slice_must_stay_inside() -> None:
    with pytest.raises(IndexError, match="a slice of 4 from 3 on does not fit axis 2 of size 6"):
        _run("DynamicSlice", [_X, np.array([1, 3])], _WINDOW)
    with pytest.raises(ModelError, match="a slice of 4 from 3 on leaves axis 2"):
        _run("DynamicSlice", [_X, np.array([1, 3])], _WINDOW, [1])


# -- sequences -------------------------------------------------------------------------------------


_SOURCE: Final = np.repeat(np.arange(6, dtype=np.float32)[:, None], 3, axis=1)
_COUNTS: Final = np.array([2, 0, 2], np.uint32)
_READ: Final = np.array([2, 5, 1], np.uint32)
_WRITTEN: Final = np.array([0, 3, 4], np.uint32)


@pytest.mark.parametrize("zero", [0, 1])
def test_sequence_slice(zero: int) -> None:
    destination = np.full((6, 3), 9, np.float32)
    inputs = [_SOURCE, destination, _COUNTS, _READ, _WRITTEN]
    result = _run("SequenceSlice", inputs, {"zeroUnused": zero})
    rest = 0 if zero else 9
    np.testing.assert_array_equal(result[:, 0], [2, 3, rest, rest, 1, 2])


def test_rows_of_another_shape() -> None:
    source = np.arange(24, dtype=np.int32).reshape(4, 6)
    runs = [np.array([1], np.int32), np.array([3], np.int32), np.array([0], np.int32)]
    result = _run("SequenceSlice", [source, np.zeros((2, 2, 3), np.int32), *runs])
    np.testing.assert_array_equal(result, [source[3].reshape(2, 3), np.zeros((2, 3))])


def test_sequences_packed_and_unpacked() -> None:
    unpacked = _run("SequenceSliceUnpack", [_SOURCE, _COUNTS, _READ], {"totalElements": 5})
    np.testing.assert_array_equal(unpacked[:, 0], [2, 3, 1, 2, 0])
    places = np.array([2, 0, 1], np.uint32)
    inputs = [unpacked[:4], np.zeros((6, 3), np.float32), _COUNTS, places]
    packed = _run("SequenceSlicePack", inputs, {"zeroUnused": 0})
    np.testing.assert_array_equal(packed[:, 0], [0, 1, 2, 3, 0, 0])


def test_a_run_must_stay_inside() -> None:
    destination = np.zeros((3, 3), np.float32)
    one, two = np.array([1], np.int32), np.array([2], np.int32)
    with pytest.raises(
        IndexError, match="2 rows from row 2 on cannot be written: there are 3 rows"
    ):
        _run("SequenceSlice", [_SOURCE, destination, two, one, two])


# -- PackedDataBlock -------------------------------------------------------------------------------


def _block_model(lengths: Sequence[int], batch: int, *, known: bool) -> onnx.ModelProto:
    """Sequences times their own transpose: [longest, 5] -> [longest, longest]."""
    callback = helper.make_graph(
        [
            helper.make_node("Transpose", ["d"], ["t"], perm=[0, 2, 1]),
            helper.make_node("MatMul", ["d", "t"], ["r"]),
        ],
        "callback",
        [onnx.ValueInfoProto(name="d")],
        [onnx.ValueInfoProto(name="r")],
    )
    names = ["data", "offsets", "lengths", "offsets", "lengths"]
    node = helper.make_node(
        "PackedDataBlock",
        names,
        ["y"],
        domain=_DOMAIN,
        callback=callback,
        callbackBatchSize=batch,
        maxSequenceLengths=[8],
        resultSize=sum(lengths),
    )
    count, uint32 = len(lengths), onnx.TensorProto.UINT32
    places = np.cumsum([0, *lengths[:-1]]).astype(np.uint32)
    constants = {"offsets": places, "lengths": np.array(lengths, np.uint32)} if known else {}
    graph = helper.make_graph(
        [node],
        "block",
        [
            helper.make_tensor_value_info("data", onnx.TensorProto.FLOAT, [sum(lengths), 5]),
            *(
                helper.make_tensor_value_info(name, uint32, [count])
                for name in ("offsets", "lengths")
                if not known
            ),
        ],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 11), helper.make_opsetid(_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 6])
def test_packed_data_block(batch: int, known: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """Through the whole compiler: the callback is a loop."""
    lengths = [3, 5, 7, 4, 6, 2]
    data = _RNG.integers(1, 9, (sum(lengths), 5)).astype(np.float32)
    offsets = np.cumsum([0, *lengths[:-1]]).astype(np.uint32)
    feeds = {"data": data, "offsets": offsets, "lengths": np.array(lengths, np.uint32)}
    if known:
        feeds = {"data": data}
    path = tmp_path / "block.popx"
    popc.compile(_block_model(lengths, batch, known=known)).save(path)
    result = popc_runtime.load(path).run(feeds)["y"]
    expected = np.zeros((sum(lengths), 8), np.float32)
    for start, length in zip(offsets, lengths, strict=True):
        rows = data[start : start + length]
        expected[start : start + length, :length] = rows @ rows.T
    np.testing.assert_array_equal(result, expected)


def test_packed_data_block_needs_whole_batches() -> None:
    with pytest.raises(ModelError, match="6 sequences cannot be given to a callback 4 at a time"):
        run_model(_block_model([1] * 6, 4, known=True), {"data": np.zeros((6, 5), np.float32)})


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "message"),
    [
        ("DynamicSlice", [_X, _OFFSETS], {"axes": [0], "sizes": [2]}, "needs 1 integer offsets"),
        ("DynamicSlice", [_X, _OFFSETS], {"axes": [0, 0], "sizes": [1, 1]}, "sliced twice"),
        ("DynamicSlice", [_X, _OFFSETS], {"axes": [0, 1], "sizes": [1]}, "1 sizes are given"),
        ("DynamicZero", [_X, _OFFSETS], {"axes": [0, 1], "sizes": [4, 1]}, "does not fit axis 0"),
        ("DynamicUpdate", [_X, _OFFSETS, _X], _WINDOW, r"the slice must be float32\[2,5,4\]"),
        (
            "SequenceSlice",
            [_SOURCE, _SOURCE[:, :2], _COUNTS, _READ, _WRITTEN],
            {},
            "do not have the shape of rows",
        ),
        (
            "SequenceSlice",
            [_SOURCE, _SOURCE, _COUNTS, _READ[:2], _WRITTEN],
            {},
            "input 3 must be a vector of 3 integers",
        ),
    ],
)
def test_wrong_axes_sizes_and_offsets_are_refused(
    op_type: str, inputs: list[Array], attributes: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        import_graph(one_node_model(op_type, inputs, attributes, domain=_DOMAIN))
