"""Tensors in files beside the model, and tensors in every form that ONNX has."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from popc.frontend import expose_tensors, import_model, load_model
from popc.frontend.tensors import decode_sparse_tensor, decode_tensor
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.support.oracles import import_graph, run_graph, run_onnxruntime


def _external(dims: tuple[int, ...], **entries: str) -> TensorProto:
    tensor = TensorProto(name="w", dims=dims, data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def _model(weight: TensorProto | onnx.SparseTensorProto) -> onnx.ModelProto:
    sparse = [weight] if isinstance(weight, onnx.SparseTensorProto) else []
    dense = [weight] if isinstance(weight, TensorProto) else []
    graph = helper.make_graph(
        [helper.make_node("Neg", ["w"], ["y"])],
        "g",
        [],
        [onnx.ValueInfoProto(name="y")],
        dense,
        sparse_initializer=sparse,
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, ir_version=11, opset_imports=opsets)


def _weight(folder: Path, weight: TensorProto) -> Tensor:
    path = folder / "m.onnx"
    path.write_bytes(_model(weight).SerializeToString())
    return import_model(load_model(path)).graph.tensors["w"]


def test_data_is_mapped_not_read(tmp_path: Path) -> None:
    values = np.arange(5000, dtype=np.float32)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"\0" * 6 + values.tobytes())
    tensor = _weight(tmp_path, _external((50, 100), location="sub/w.bin", offset="6"))
    assert tensor.data is not None
    np.testing.assert_array_equal(tensor.data, values.reshape(50, 100))
    assert not tensor.data.flags.writeable
    base: Any = tensor.data
    while isinstance(base, np.ndarray):
        base = base.base
    assert isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def test_length_may_be_given_and_empty_tensors_need_no_bytes(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(np.ones(3, np.float32).tobytes())
    tensor = _weight(tmp_path, _external((3,), location="w", offset="0", length="12"))
    assert tensor.data is not None
    assert tensor.data.tolist() == [1, 1, 1]
    (tmp_path / "empty").write_bytes(b"")
    assert _weight(tmp_path, _external((0, 3), location="empty")).type.shape == (0, 3)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "/etc/passwd"}, "must lie in the model's folder"),
        ({"location": "../w"}, "must lie in the model's folder"),
        ({"location": "a/../../w"}, "must lie in the model's folder"),
        ({"location": "..\\w"}, "must lie in the model's folder"),
        ({"location": "C:\\w"}, "must lie in the model's folder"),
        ({"location": "\\\\host\\w"}, "must lie in the model's folder"),
        ({"location": "out"}, "a link that leaves the model's folder"),
        ({"location": "linked/secret"}, "a link that leaves the model's folder"),
        ({"location": "missing"}, "which is not in the model's folder"),
        ({"location": "."}, "which is not in the model's folder"),
        ({"location": "w\0x"}, "which is no path: embedded null byte"),
        ({"location": "circle"}, "which is no path: Symlink loop"),
        ({"location": "w" * 5000}, "which is no path: File name too long"),
        ({}, "without a location"),
        ({"location": "w", "offset": "4"}, "bytes 4 to 16 of 'w', which has only 12"),
        ({"location": "w", "offset": "9" * 5000}, "the offset of its external data is '999"),
        ({"location": "w", "offset": "\N{ARABIC-INDIC DIGIT ONE}"}, "the offset of its external"),
        ({"location": "w", "offset": "-4"}, "the offset of its external data is '-4'"),
        ({"location": "w", "offset": "99999999999999999999"}, "which has only 12"),
        ({"location": "w", "length": "8"}, "needs 12 bytes, but its external data has 8"),
        ({"location": "w", "length": "1e3"}, "the length of its external data is '1e3'"),
    ],
)
def test_what_external_data_must_not_do(
    tmp_path: Path, entries: dict[str, str], message: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "w").write_bytes(bytes(12))
    (tmp_path / "secret").write_bytes(bytes(12))
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "circle").symlink_to(folder / "circle")
    with pytest.raises(ModelError, match="tensor 'w'") as caught:
        _weight(folder, _external((3,), **entries))
    assert message in str(caught.value)


def test_links_inside_the_folder_are_fine(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(np.ones(3, np.float32).tobytes())
    (tmp_path / "w").symlink_to("real")
    assert _weight(tmp_path, _external((3,), location="w")).type.shape == (3,)


def test_a_model_that_is_no_file_has_no_external_data() -> None:
    with pytest.raises(ModelError, match="was not loaded from a file") as caught:
        import_graph(_model(_external((3,), location="w")))
    assert caught.value.hint == "give the path of the model"


def test_constants_may_be_external_too(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(np.full(3, 2, np.float32).tobytes())
    model = _model(numpy_helper.from_array(np.zeros(1, np.float32), "unused"))
    constant = helper.make_node("Constant", [], ["w"], value=_external((3,), location="w"))
    model.graph.node.insert(0, constant)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    (y,) = run_graph(import_model(load_model(path)).graph, {})
    assert y.tolist() == [-2, -2, -2]


def test_external_data_goes_along_to_onnxruntime(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(np.full(3, 2, np.float32).tobytes())
    path = tmp_path / "m.onnx"
    path.write_bytes(_model(_external((3,), location="w")).SerializeToString())
    exposed = onnx.load_from_string(expose_tensors(load_model(path), ["y"]))
    (y,) = run_onnxruntime(exposed, {})
    assert y.tolist() == [-2, -2, -2]


@pytest.mark.slow
def test_models_over_two_gigabytes(tmp_path: Path) -> None:
    rows, columns = 3 << 10, 1 << 18  # 3 GB of float32
    with (tmp_path / "w").open("wb") as file:
        os.truncate(file.fileno(), rows * columns * 4)
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(7).tobytes())
    model = _model(_external((rows, columns), location="w"))
    node = helper.make_node("Gather", ["w", "i"], ["y"], axis=0)
    del model.graph.node[:]
    model.graph.node.append(node)
    model.graph.initializer.append(numpy_helper.from_array(np.array([rows - 1]), "i"))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    graph = import_model(load_model(path)).graph
    assert graph.tensors["w"].type.nbytes == 3 << 30
    data = graph.tensors["w"].data
    assert data is not None
    assert (data[-1, -1], data[-1, -2]) == (7, 0)


# -- forms of tensors ------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(
    "dtype",
    [
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", ml_dtypes.bfloat16),
    ],
)
def test_every_element_type_in_both_forms(dtype: Any, raw: bool) -> None:  # noqa: FBT001
    values = np.array([[0, 1, 1], [2, 3, 100]]).astype(dtype)
    number = helper.np_dtype_to_tensor_dtype(values.dtype)
    if raw:
        proto = numpy_helper.from_array(values, "w")
    else:
        proto = helper.make_tensor("w", number, (2, 3), values.astype(np.float64).ravel())
    type_, data = decode_tensor(proto)
    assert (data.dtype, data.shape) == (type_.dtype.storage, (2, 3))
    np.testing.assert_array_equal(data.view(values.dtype), values)


def test_bools_are_zero_or_one() -> None:
    proto = TensorProto(name="b", dims=[3], data_type=TensorProto.BOOL, raw_data=b"\0\1\7")
    assert decode_tensor(proto)[1].view(np.uint8).tolist() == [0, 1, 1]
    proto = TensorProto(name="b", data_type=TensorProto.BOOL, raw_data=b"\7")
    assert decode_tensor(proto)[1].shape == ()


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (
            TensorProto(name="w", dims=[3], data_type=1, raw_data=bytes(8)),
            r"tensor 'w' of shape \[3\] needs 12 bytes, but has 8",
        ),
        (TensorProto(name="w", dims=[3], data_type=1, float_data=[1, 2]), "cannot be decoded"),
        (TensorProto(name="w", dims=[-1], data_type=1), r"has the shape \[-1\]"),
        (TensorProto(name="w", dims=[1 << 62], data_type=1, raw_data=b"1234"), "but has 4"),
        (TensorProto(name="w", data_type=8, string_data=[b"a"]), "type string is not supported"),
        (TensorProto(name="w", data_type=22, raw_data=b"a"), "type int4 is not supported"),
        (TensorProto(name="w", data_type=999), "type element type 999 is not supported"),
    ],
)
def test_damaged_tensors(proto: TensorProto, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        decode_tensor(proto)


def _sparse(indices: Array, dims: tuple[int, ...] = (2, 3)) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([5, 7], np.float32), "w"),
        numpy_helper.from_array(indices.astype(np.int64), "i"),
        dims,
    )


@pytest.mark.parametrize("indices", [np.array([1, 5]), np.array([[0, 1], [1, 2]])])
def test_sparse_weights_are_made_dense(indices: Array) -> None:
    (y,) = run_graph(import_graph(_model(_sparse(indices))), {})
    assert y.tolist() == [[0, -5, 0], [0, 0, -7]]


@pytest.mark.parametrize(
    "indices",
    [np.array([1, 6]), np.array([-1, 5]), np.array([[0, 1], [2, 0]]), np.array([1, 2, 3])],
)
def test_damaged_sparse_weights(indices: Array) -> None:
    with pytest.raises(ModelError, match="sparse tensor 'w' of shape"):
        decode_sparse_tensor(_sparse(indices))


def test_huge_sparse_weights_are_refused_in_words() -> None:
    with pytest.raises(ModelError, match="cannot be made dense"):
        decode_sparse_tensor(_sparse(np.array([1, 2]), (1 << 31, 1 << 31)))
