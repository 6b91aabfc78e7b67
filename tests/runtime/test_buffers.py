"""Runs on plain memory, and processes that never import numpy."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

import popc
import popc_runtime
from popc_runtime.data.tensors import ResultTensor
from popc_runtime.errors import DeviceError, InputMismatchError, StreamUnderrunError
from popc_runtime.format import DType, TensorSpec
from popc_runtime.kernels.parts.float8 import to_float8
from popc_runtime.native import find_library
from popc_runtime.native.encoders.families import FAMILIES
from tests.support.models import affine, counter_loop, executable

X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
_HEAD = '<ir_version: 10, opset_import: ["" : 22]> g '
_NETWORKS = {
    "images": """(float[1,3,16,16] x, float[8,3,3,3] w, float[8] b, float[8,5] m) => (float[1,5] y)
        { c = Conv<pads=[1,1,1,1]>(x, w, b)  r = Relu(c)  p = MaxPool<kernel_shape=[2,2]>(r)
          a = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(p)  g = GlobalAveragePool(a)
          f = Flatten(g)  d = MatMul(f, m)  y = Softmax(d) }""",
    "sizes": """(float[1,3,6,6] x, float[16,3,3,3] w) => (float[1,32,12,12] y)
        { n = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()
          c = Conv<pads=[1,1,1,1]>(x, w)  a = Resize<mode="nearest">(c, , n)
          b = Resize<mode="linear">(c, , n)  y = Concat<axis=1>(a, b) }""",
    "sequences": """(float[6,2,4] x, float[1,12,4] w, float[1,12,3] r) => (float[6,1,2,3] y)
        { y, h, c = LSTM<hidden_size=3>(x, w, r) }""",
    "tokens": """(int64[2,7] x, float[20,8] t, float[8] s, float[8] z, float[8,8] m)
        => (float[2,8,9] y)
        { e = Gather(t, x)  n = LayerNormalization(e, s, z)  k = Transpose<perm=[0,2,1]>(n)
          v = MatMul(n, m)  g = Gelu(v)  a = MatMul(g, k)  p = Softmax(a)  c = MatMul(p, n)
          j = Concat<axis=1>(c, n)  h, q = Split<num_outputs=2, axis=1>(j)
          i = Transpose<perm=[0,2,1]>(h)  w = Constant<value_ints=[0,0,1,0,0,1]>()
          y = Pad<mode="reflect">(i, w) }""",
}


def _network(text: str) -> onnx.ModelProto:
    """The model, whose inputs but the first are constants."""
    model = parser.parse_model(_HEAD + text)
    generator = np.random.default_rng(0)
    for value in list(model.graph.input)[1:]:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        constant = generator.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(constant, value.name))
        model.graph.input.remove(value)
    return model


_PROCESS = """
import json, sys
import popc_runtime
found = {}
for path in sys.argv[1:]:
    with popc_runtime.load(path) as model:
        model.warmup()
        results = model.run_buffers({spec.name: bytes(spec.nbytes) for spec in model.inputs})
        found[path] = {name: result.data.hex() for name, result in results.items()}
slow = {"dataclasses", "hashlib", "inspect", "logging", "numpy", "threading", "typing", "zstandard"}
slow &= sys.modules.keys()
assert not slow, f"{slow} were imported"
print(json.dumps(found))
"""


_MAKE_TABLES = {"attention_grad"}  # of masks, by numpy


def test_encoders_do_not_import_numpy() -> None:
    families = [
        f"popc_runtime.native.encoders.{name}" for name in sorted(FAMILIES.keys() - _MAKE_TABLES)
    ]
    code = f"import sys, {', '.join(families)}; assert 'numpy' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_processes_without_numpy(tmp_path: Path) -> None:
    if find_library() is None:
        pytest.skip("no native library")
    models = {name: _network(text) for name, text in _NETWORKS.items()}
    models |= {"affine": affine(), "loop": counter_loop()}
    paths = []
    for name, model in models.items():
        for weights in ("compressed", "mmap"):
            archive = popc.compile(model, options={"weights": weights})
            paths.append(archive.save(tmp_path / f"{name}-{weights}.popx"))
    done = subprocess.run(
        [sys.executable, "-c", _PROCESS, *map(str, paths)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for path, results in json.loads(done.stdout).items():
        loaded = popc_runtime.load(path)
        zeros = {spec.name: np.zeros(spec.shape, spec.dtype.storage) for spec in loaded.inputs}
        expected = {name: value.tobytes().hex() for name, value in loaded.run(zeros).items()}
        assert results == expected, path


@pytest.mark.parametrize("engine", ["auto", "numpy"])
def test_results_are_those_of_run(engine: str, tmp_path: Path) -> None:
    archive = popc.compile(_network(_NETWORKS["images"]))
    model = popc_runtime.load(archive.save(tmp_path / "m.popx"), engine=engine)
    x = np.random.default_rng(1).normal(size=(1, 3, 16, 16)).astype(np.float32)
    expected = model.run(x=x)["y"]
    flat = array("f", x.reshape(-1).tolist())
    for given in (x, x.tobytes(), bytearray(x.tobytes()), x.data, x.reshape(-1), flat):
        result = model.run_buffers(x=given)["y"]
        assert (result.name, result.dtype, result.shape) == ("y", DType.FLOAT32, (1, 5))
        assert (np.asarray(result) == expected).all()
        assert result.tolist() == expected.tolist()


class _Picture:
    """What only has an array interface."""

    def __init__(self, value: np.ndarray[Any, Any]) -> None:
        self.__array_interface__ = value.__array_interface__
        self._kept = value


def test_array_interfaces(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    expected = model.run(x=X)["y"]
    assert (np.asarray(model.run_buffers(x=_Picture(X))["y"]) == expected).all()
    again = model.run_buffers(x=ResultTensor(TensorSpec("x", DType.FLOAT32, (2, 3)), bytearray(X)))
    assert (np.asarray(again["y"]) == expected).all()


def test_steps_of_several_batches(tmp_path: Path) -> None:
    options = {"batches_per_step": 4, "default_anchor": "all"}
    model = executable(affine(), tmp_path, **options)
    x = np.stack([X + n for n in range(4)])
    result = model.run_buffers(x=x.tobytes())["y"]
    assert result.shape == model.outputs[0].shape
    assert (np.asarray(result) == model.run(x=x)["y"]).all()


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"x": bytes(23)}, "input 'x': expected float32[2,3], got 23 bytes"),
        ({"x": X.astype(np.float64)}, "input 'x': expected float32[2,3], got float64[2,3]"),
        ({"x": X.astype(np.int32)}, "input 'x': expected float32[2,3], got int32[2,3]"),
        ({"x": X.T.copy()}, "input 'x': expected float32[2,3], got float32[3,2]"),
        ({"x": X[:, ::-1]}, "input 'x': expected float32[2,3], got memory that is not contiguous"),
        ({"x": X.astype(">f4")}, "input 'x': expected float32[2,3], got format '>f'[2,3]"),
        ({"x": X.astype("S4")}, "input 'x': expected float32[2,3], got format '4s'[2,3]"),
        ({"x": X.astype("M8[s]")}, "input 'x': expected float32[2,3], got datetime64[s][2,3]"),
        ({"x": [1.0]}, "input 'x': expected float32[2,3], got an object of type list"),
        ({}, "input 'x' is missing"),
        ({"x": X, "z": X}, "there is no input 'z'"),
    ],
)
def test_wrong_buffers_are_named(feeds: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputMismatchError) as caught:
        executable(affine(), tmp_path).run_buffers(feeds)
    assert caught.value.message == message
    assert caught.value.hint


def test_all_problems_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputMismatchError) as caught:
        executable(affine(), tmp_path).run_buffers(x=b"", z=b"")
    assert len(caught.value.details) == 2


@pytest.mark.parametrize("found", [">i4", "S8", "complex64", "O", "float64"])
def test_elements_of_other_types_are_refused(found: str, tmp_path: Path) -> None:
    """Also those of as many bytes."""
    model = popc_runtime.load(
        popc.compile(parser.parse_model(_HEAD + "(int64[2] x, int32[2] i) => (int64[2] y) "
                                        "{ c = Cast<to=7>(i)  y = Add(x, c) }"))
        .save(tmp_path / "m.popx")
    )  # fmt: skip
    right = {"x": np.zeros(2, np.int64), "i": np.zeros(2, np.int32)}
    model.run_buffers(right)
    for name in right:
        with pytest.raises(InputMismatchError):
            model.run_buffers(right | {name: np.zeros(2, found)})


def test_bfloat16_arrays(tmp_path: Path) -> None:
    model = _network("(bfloat16[3] x) => (bfloat16[3] y) { y = Neg(x) }")
    loaded = popc_runtime.load(popc.compile(model).save(tmp_path / "m.popx"))
    x = np.array([1, -2, 3], ml_dtypes.bfloat16)
    assert loaded.run_buffers(x=x)["y"].tolist() == [-1, 2, -3]
    assert loaded.run_buffers(x=x.view(np.uint16))["y"].tolist() == [-1, 2, -3]


def test_memory_is_the_callers_again(tmp_path: Path) -> None:
    """Whether a run ends well or not; a memory that is exported could not be cleared."""
    model = executable(affine(), tmp_path)
    given = bytearray(X)
    model.run_buffers(x=given)
    given.clear()
    x = X.copy()
    before = sys.getrefcount(x)
    model.profile({"x": x})
    with pytest.raises(StreamUnderrunError):
        model.run_connected({"x": iter([x, x][2:])}, {})
    with pytest.raises(DeviceError):
        model.run_connected({"x": iter((x,))}, {"y": lambda _: 1 // 0})
    assert sys.getrefcount(x) == before


@pytest.mark.parametrize("dtype", DType)
def test_values_of_tensors(dtype: DType) -> None:
    is_real = dtype.is_float or dtype.is_float8
    values = np.array([[0, 1, 2], [3, 4, 1]]).astype("float32" if is_real else dtype.value)
    stored = values.view(np.uint16)[:, 1::2] if dtype is DType.BFLOAT16 else values
    stored = to_float8(values, dtype) if dtype.is_float8 else stored
    stored = np.ascontiguousarray(stored.astype(dtype.storage))
    tensor = ResultTensor(TensorSpec("y", dtype, (2, 3)), bytearray(stored.tobytes()))
    assert tensor.tolist() == values.tolist()
    assert (np.asarray(tensor) == stored).all()
    assert np.asarray(tensor).dtype == dtype.storage
    assert (len(tensor), tensor.nbytes) == (2, stored.nbytes)
    assert str(dtype) in repr(tensor)
    if dtype is DType.FLOAT16:
        with pytest.raises(BufferError):
            tensor.__buffer__(0)
    else:
        buffer = tensor.__buffer__(0)
        assert (buffer.format, buffer.shape) == (dtype.code, (2, 3))


def test_tensors_leave_nothing_to_the_collector() -> None:
    """It would end the process in early versions of Python 3.12: a memoryview is being read."""
    before = gc.isenabled()
    gc.disable()
    try:
        gc.collect()
        tensor = ResultTensor(TensorSpec("y", DType.INT8, (2, 3)), bytearray(6))
        assert tensor.tolist() == np.asarray(tensor).tolist()
        del tensor
        assert gc.collect() == 0
    finally:
        (gc.enable if before else gc.disable)()


def test_shapes_of_tensors() -> None:
    assert ResultTensor(TensorSpec("y", DType.INT32, ()), bytearray(b"\7\0\0\0")).tolist() == 7
    assert ResultTensor(TensorSpec("y", DType.INT32, (2, 0)), bytearray()).tolist() == [[], []]
    assert ResultTensor(TensorSpec("y", DType.INT32, (0, 2)), bytearray()).tolist() == []


def test_empty_tensors_have_no_buffer() -> None:
    empty = ResultTensor(TensorSpec("y", DType.INT32, (2, 0)), bytearray())
    with pytest.raises(BufferError):
        empty.__buffer__(0)
    assert np.asarray(empty).shape == (2, 0)
    assert len(empty) == 2


def test_truth_and_length_of_tensors() -> None:
    one, zero = (
        ResultTensor(TensorSpec("y", DType.FLOAT32, ()), bytearray(np.float32(n).tobytes()))
        for n in (3, 0)
    )
    assert one
    assert not zero
    with pytest.raises(TypeError, match="scalar"):
        len(one)
    for shape in ((2,), (0, 2)):
        several = ResultTensor(
            TensorSpec("y", DType.INT8, shape), bytearray(2 if 0 not in shape else 0)
        )
        with pytest.raises(ValueError, match="neither true nor false"):
            bool(several)


def test_gradients_of_norms_load_without_dataclasses() -> None:
    program = (
        "import sys, popc_runtime.native.encoders.norm_grad;"
        "assert not {'dataclasses', 'numpy'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
