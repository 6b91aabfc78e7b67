"""Inputs that kernels read in the caller's arrays, against the same runs with copies of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from onnx import parser

from popc_runtime import Executable
from popc_runtime.device import Engine
from popc_runtime.errors import DeviceError
from popc_runtime.format import Region
from popc_runtime.native import find_library
from tests.native.lending import before_a_guard
from tests.support.models import executable

pytestmark = pytest.mark.skipif(find_library() is None, reason="there are no native kernels here")

_HEADER: Final = '<ir_version: 10, opset_import: ["" : 18]> g '
# Of a model: its text, and the inputs that are not copied.
_MODELS: Final = {
    "a map": ("(float[40,40] x) => (float[40,40] y) { y = Relu(x) }", "x"),
    "maps, the first in place": (
        "(float[40,40] x) => (float[40,40] y) { a = Tanh(x) b = Softmax(a) y = Neg(b) }",
        "x",
    ),
    "twice": ("(float[40,40] x) => (float[40,40] y) { a = Neg(x) y = MatMul(a, x) }", "x"),
    "with itself": ("(float[40,40] x) => (float[40,40] y) { y = MatMul(x, x) }", "x"),
    "two inputs": (
        "(float[40,40] a, float[40,40] b) => (float[40,40] y) { y = MatMul(a, b) }",
        "a b",
    ),
    "views": (
        """(float[40,40] x, int64[2] starts) => (float[40,4] y) <
            int64[1] zero = {0}, int64[1] four = {4}, int64[1] one = {1}, int64[2] flat = {4, 400}
        > {
            a = Transpose(x)
            b = Reshape(x, flat)
            c = ReduceSum <keepdims = 0> (b)
            d = Slice(a, zero, four, one)
            y = Add(d, c)
        }""",
        "x",
    ),
    "images": (
        """(float[1,3,24,24] x, float[8,3,3,3] w) => (float[1,8,11,11] y) {
            a = Conv <strides = [2, 2]> (x, w)
            y = Relu(a)
        }""",
        "x",
    ),
    "images of many channels": (
        """(float[1,32,9,9] x, float[32,32,3,3] w) => (float[1,32,9,9] y) {
            a = Conv <pads = [1, 1, 1, 1]> (x, w)
            y = Add(a, x)
        }""",
        "x",
    ),
    "few channels, the last of which ends the memory": (
        """(float[1,20,20,5] x, float[5,1,3,3] w) => (float[1,5,18,18] y) {
            a = Transpose <perm = [0, 3, 1, 2]> (x)
            y = Conv <group = 5> (a, w)
        }""",
        "x",
    ),
    "a table": (
        "(float[400,5] x, int64[700] i) => (float[700,5] y) { y = Gather(x, i) }",
        "x",  # indices are looked at twice
    ),
    "elements": (
        "(float[40,40] x, int64[40,40] i) => (float[40,40] y) { y = GatherElements(x, i) }",
        "x i",  # each index is looked at once
    ),
    "a cache": (
        """(float[1,4,60,8] old, float[1,4,1,8] new) => (float[1,4,61,8] all) {
            all = Concat <axis = 2> (old, new)
        }""",
        "old",
    ),
    "a loop": (
        """(float[40,40] x, float[40,40] y) => (float[40,40] z)
        <int64 three = {3}, bool yes = {1}> {
            z = Loop <body = turn (int64 i, bool go, float[40,40] s)
                => (bool still, float[40,40] u) {
                still = Identity(go)
                a = MatMul(s, x)
                u = Tanh(a)
            }> (three, yes, y)
        }""",
        "x",
    ),
    "a branch": (
        """(float[40,40] x, bool flag) => (float[40,40] y) {
            y = If (flag) <
                then_branch = t () => (float[40,40] r) { r = Exp(x) },
                else_branch = e () => (float[40,40] n) { n = Neg(x) }
            >
        }""",
        "x",
    ),
    "a result": (
        "(float[40,40] x) => (float[40,40] y, float[40,40] z) { y = Identity(x) z = Neg(x) }",
        "x",
    ),
    "results alone": (
        """(float[40,40] x) => (float[40,40] y, float[1600] z, float[40,40] t) <
            int64[1] flat = {1600}
        > {
            y = Identity(x)
            z = Reshape(x, flat)
            t = Transpose(x)
        }""",
        "x",
    ),
    "parts": (
        """(float[40,60] x) => (float[3,60] a, float[37,60] b, float[40,7] c, float[40,53] d) <
            int64[2] rows = {3, 37}, int64[2] columns = {7, 53}
        > {
            a, b = Split <axis = 0> (x, rows)
            c, d = Split <axis = 1> (x, columns)
        }""",
        "x",
    ),
    "a result of a branch": (
        """(float[40,40] x, bool flag) => (float[40,40] y) {
            y = If (flag) <
                then_branch = t () => (float[40,40] r) { r = Identity(x) },
                else_branch = e () => (float[40,40] n) { n = Neg(x) }
            >
        }""",
        "x",
    ),
    "few elements": ("(float[4,4] x) => (float[4,4] y) { y = Neg(x) }", ""),
    "bytes": ("(uint8[5000] x) => (uint8[5000] y) { y = Max(x, x) }", "x"),
    "doubles": ("(double[5000] x) => (double[5000] y) { y = Neg(x) }", "x"),
    "halves": ("(float16[50,50] x) => (float16[50,50] y) { y = Relu(x) }", "x"),
}


def _loaded(text: str, tmp_path: Path, **options: Any) -> Executable:
    return executable(parser.parse_model(_HEADER + text), tmp_path, **options)


def _given(model: Executable, seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {
        spec.name: np.asarray(random.normal(size=spec.shape) * 3).astype(spec.dtype.storage)
        if spec.dtype.is_float
        else random.integers(0, 2, spec.shape).astype(spec.dtype.storage)
        for spec in model.inputs
    }


def _copied(model: Executable, given: Any) -> dict[str, bytes]:
    """The results of a run that Python leads."""
    return _bytes(model.run(given, timeout=100))


def _bytes(results: Any) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in results.items()}


def _direct(model: Executable) -> Any:
    direct: Any = model._direct
    assert direct is not None, "nothing else calls Python"
    return direct


def _spoil(model: Executable) -> None:
    """Forget everything that a run has left in memory."""
    engine = model._engine
    assert isinstance(engine, Engine)
    memory = engine.program.memory._regions[Region.ARENA]
    memory[:] = b"\xff" * len(memory)


@pytest.mark.parametrize("name", _MODELS)
def test_runs_give_the_bits_of_runs_with_copies(name: str, tmp_path: Path) -> None:
    text, lent = _MODELS[name]
    model = _loaded(text, tmp_path)
    direct = _direct(model)
    assert direct.__self__.lent() == lent.split()
    for seed in range(2):
        given = _given(model, seed)
        wanted = _copied(model, given)
        held = {key: before_a_guard(array.tobytes()) for key, array in given.items()}
        placed = {
            key: held[key][0].view(array.dtype).reshape(array.shape) for key, array in given.items()
        }  # which cannot be written
        _spoil(model)
        assert _bytes(direct(placed, None)) == wanted
        assert _copied(model, given) == wanted, "the run with copies reads the copies again"


@pytest.mark.parametrize(
    ("name", "filled"),
    [
        ("a map", "y"),
        ("with itself", "y"),
        ("bytes", "y"),
        ("a table", "y"),
        ("a cache", "all"),
        ("a result", "y z"),
        ("results alone", "y z t"),
        ("parts", "a b c d"),
        ("a loop", ""),
        ("few elements", ""),
    ],
)
def test_kernels_write_results_where_they_are(name: str, filled: str, tmp_path: Path) -> None:
    model = _loaded(_MODELS[name][0], tmp_path)
    direct = _direct(model)
    assert direct.__self__.filled() == filled.split()
    given, others = _given(model), _given(model, 1)
    wanted = [_copied(model, each) for each in (given, others)]
    results = direct(given, None)
    assert _bytes(direct(others, None)) == wanted[1]
    own = {spec.name: np.empty(spec.shape, spec.dtype.storage) for spec in model.outputs}
    assert _bytes(model.run(given, out=own)) == wanted[0]
    assert _copied(model, others) == wanted[1]
    assert _bytes(results) == wanted[0], "a result belongs to whoever asked for it"


@pytest.mark.parametrize("name", ["a map", "doubles", "images", "halves", "views"])
def test_arrays_at_odd_addresses_are_left_to_python(name: str, tmp_path: Path) -> None:
    model = _loaded(_MODELS[name][0], tmp_path)
    given = _given(model)
    odd = {}
    for key, array in given.items():
        memory = np.zeros(array.nbytes + 1, np.uint8)
        memory[1:] = np.frombuffer(array.tobytes(), np.uint8)
        odd[key] = memory[1:].view(array.dtype).reshape(array.shape)
    assert _direct(model)(odd, None) is None
    assert _bytes(model.run(odd)) == _copied(model, given)


def test_results_may_go_where_inputs_are(tmp_path: Path) -> None:
    text = "(float[50,50] x) => (float[50,50] y, float[50,50] z) { y = Neg(x) z = MatMul(x, x) }"
    model = _loaded(text, tmp_path)
    x = _given(model)["x"]
    wanted = _copied(model, {"x": x.copy()})
    assert _direct(model).__self__.lent() == ["x"]
    z = np.empty_like(x)
    results = model.run({"x": x}, out={"y": x, "z": z})
    assert _bytes(results) == wanted
    assert results["y"] is x


def test_parts_may_go_where_the_whole_is(tmp_path: Path) -> None:
    model = _loaded(_MODELS["parts"][0], tmp_path)
    x = _given(model)["x"]
    wanted = _copied(model, {"x": x.copy()})
    own = {spec.name: np.empty(spec.shape, np.float32) for spec in model.outputs}
    for rows in (slice(0, 37), slice(3, 40)):
        given = x.copy()
        out = {**own, "b": given[rows]}
        assert _direct(model)({"x": given}, out) is not None
        assert _bytes(out) == wanted, "all is read before any is written"


def test_errors_tell_what_kernels_have_read(tmp_path: Path) -> None:
    model = _loaded(_MODELS["a table"][0], tmp_path)
    given = _given(model)
    wanted = _copied(model, given)
    told = []
    for wrong in (given["i"] + 399, list(given["i"] + 399)):  # a list goes by way of Python
        with pytest.raises(DeviceError) as raised:
            model.run({**given, "i": wrong}, cast="safe")
        told.append(str(raised.value))
    assert told[0] == told[1]
    assert _bytes(model.run(given)) == wanted


def test_threads_do_not_see_the_arrays_of_others(tmp_path: Path) -> None:
    model = _loaded(_MODELS["maps, the first in place"][0], tmp_path)
    inputs = [_given(model, seed) for seed in range(8)]
    wanted = [_copied(model, given) for given in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(lambda given: _bytes(model.run(given)), inputs)) == wanted


def test_steps_of_several_batches_copy(tmp_path: Path) -> None:
    model = _loaded(_MODELS["twice"][0], tmp_path, batches_per_step=2)
    assert model._direct is None
    single = _loaded(_MODELS["twice"][0], tmp_path)
    x = [_given(single, seed)["x"] for seed in range(2)]
    results = model.run(x=np.stack(x))["y"]
    for part, result in zip(x, results, strict=True):
        np.testing.assert_array_equal(result, single.run(x=part)["y"])
