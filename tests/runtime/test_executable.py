"""Running archives: inputs, results, steps, threads."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import parser

import popc
import popc_runtime
from popc_runtime.errors import DeviceError, InputMismatchError, UsageError
from tests.support.models import affine, counter_loop, executable, expected_affine

X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)


def test_run_takes_mapping_or_keywords(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    assert model.run({"x": X})["y"] == expected_affine(X)
    assert model.run(x=X)["y"] == expected_affine(X)


def test_results_are_fresh_unless_out_is_given(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    first = model.run(x=X)["y"]
    kept = first.copy()
    model.run(x=X + 1)
    assert (first == kept).all()
    target = np.zeros((2, 3), np.float32)
    assert model.run({"x": X}, out={"y": target})["y"] is target
    assert target == expected_affine(X)


@pytest.mark.parametrize("batches", [1, 3])
def test_out_may_have_any_strides(batches: int, tmp_path: Path) -> None:
    model = executable(affine(), tmp_path, batches_per_step=batches, replicated_graph_count=2)
    shape = model.outputs[0].shape
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = model.run(x=x)["y"]
    targets = [
        np.zeros(shape, np.float32),
        np.zeros(shape, np.float32, order="F"),
        np.zeros((2 * shape[0], *shape[1:]), np.float32)[::2],
        np.zeros((shape[0], 3 * shape[1], *shape[2:]), np.float32)[:, ::3],
        np.zeros((*shape[:-1], 2 * shape[-1]), np.float32)[..., ::-2],
        np.zeros((*shape, 4), np.int8).view(np.float32)[..., 0],
    ]
    for target in targets:
        assert model.run({"x": x}, out={"y": target})["y"] is target
        np.testing.assert_array_equal(target, expected)


def test_out_may_be_an_array_of_bfloat16(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["" : 22]> g (bfloat16[2,3] x) => (bfloat16[2,3] y) '
    model = executable(parser.parse_model(text + "{ y = Neg(x) }"), tmp_path)
    x = X.astype(ml_dtypes.bfloat16)
    for target in (np.zeros_like(x), np.zeros_like(x, order="F")):
        assert model.run({"x": x}, out={"y": target})["y"] is target
        np.testing.assert_array_equal(target, -x)
    bits = np.zeros(x.shape, np.uint16)
    assert model.run({"x": x}, out={"y": bits})["y"] is bits
    np.testing.assert_array_equal(bits.view(x.dtype), -x)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([[0.0] * 3] * 2, "out 'y': expected a numpy array, got an object of type list"),
        (np.broadcast_to(X[0], X.shape), "out 'y': the array is read-only"),
        (X.astype(np.float64), "out 'y': expected float32[2,3], got float64[2,3]"),
        (X.astype(">f4"), "out 'y': expected float32[2,3], got >f4[2,3]"),
        (X[:1].copy(), "out 'y': expected float32[2,3], got float32[1,3]"),
    ],
)
def test_what_cannot_be_written_to_is_refused(target: Any, message: str, tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    with pytest.raises((UsageError, InputMismatchError)) as caught:
        model.run({"x": X}, out={"y": target})
    assert caught.value.message == message
    assert "numpy.empty((2, 3), 'float32')" in caught.value.hint
    assert model.stats().runs == 0


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"x": X.astype(">f4")}, "input 'x': expected float32[2,3], got >f4[2,3]"),
        ({"x": X.astype(np.float64)}, "input 'x': expected float32[2,3], got float64[2,3]"),
        ({"x": X[:1]}, "input 'x': expected float32[2,3], got float32[1,3]"),
        ({}, "input 'x' is missing"),
        ({"x": X, "z": X}, "there is no input 'z'"),
        ({"z": X}, "input 'x' is missing; there is no input 'z'"),
    ],
)
def test_wrong_inputs_are_named(feeds: dict[str, Any], message: str, tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    with pytest.raises(InputMismatchError) as caught:
        model.run(feeds)
    assert caught.value.message == message
    assert caught.value.hint


@pytest.mark.parametrize("value", [None, "text", ["a", "b"], object()])
def test_what_is_no_number_is_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(InputMismatchError) as refused:
        executable(affine(), tmp_path).run({"x": value})
    assert refused.value.hint.startswith("pass an array of numbers")


def test_cast_safe_widens_but_never_narrows(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    assert model.run({"x": X.astype(np.float16)}, cast="safe")["y"] == expected_affine(X)
    assert model.run({"x": X.astype(">f4")}, cast="equiv")["y"] == expected_affine(X)
    with pytest.raises(InputMismatchError):
        model.run({"x": X.astype(np.float64)}, cast="safe")


def test_input_may_be_strided_and_is_not_modified(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    wide = np.repeat(X, 2, axis=1)[:, ::2]
    wide.flags.writeable = False
    assert model.run(x=wide)["y"] == expected_affine(X)


@pytest.mark.parametrize(
    ("anchor", "expected"),
    [
        ("all", lambda y: y),
        ("final", lambda y: y[-1]),
        ("sum", lambda y: y.sum(axis=0)),
        ({"type": "every_n", "n": 2}, lambda y: y[1::2]),
        ({"type": "every_n", "n": 4}, lambda y: y[3]),
    ],
)
def test_anchor_return_types(anchor: object, expected: Any, tmp_path: Path) -> None:
    model = executable(affine(), tmp_path, batches_per_step=4, anchors={"y": anchor, "m": "final"})
    batches = np.random.default_rng(0).standard_normal((4, 2, 3)).astype(np.float32)
    results = model.run(x=batches)
    reference = executable(affine(), tmp_path)
    each = np.stack([reference.run(x=batch)["y"] for batch in batches])
    np.testing.assert_allclose(results["y"], expected(each), rtol=1e-6)
    assert results["m"].shape == (2, 3)
    assert [spec.shape for spec in model.outputs] == [expected(each).shape, (2, 3)]


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_loop_with_run_time_trip_count_and_swapped_states(count: int, tmp_path: Path) -> None:
    model = executable(counter_loop(), tmp_path)
    p, q = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    results = model.run(n=np.int64(count), p=p, q=q)
    for _ in range(count):
        p, q = q + q, p
    np.testing.assert_array_equal(results["pn"], p)
    np.testing.assert_array_equal(results["qn"], q)


def test_one_executable_serves_many_threads(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    inputs = [np.full((2, 3), value, np.float32) for value in range(64)]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda x: model.run(x=x)["y"], inputs))
    for x, y in zip(inputs, results, strict=True):
        assert y == expected_affine(x)
    assert model.stats().runs == 64


def test_run_async_keeps_order_and_close_ends_it(tmp_path: Path) -> None:
    with executable(affine(), tmp_path) as model:
        futures = [model.run_async(x=np.full((2, 3), i, np.float32)) for i in range(5)]
        for i, future in enumerate(futures):
            assert future.result()["y"] == expected_affine(np.full((2, 3), i, np.float32))
    with pytest.raises(DeviceError, match="closed"):
        model.run_async(x=X)
    with pytest.raises(DeviceError, match="closed"):
        model.run(x=X)


def test_out_must_name_an_output(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no output 'z'"):
        executable(affine(), tmp_path).run({"x": X}, out={"z": X})


def test_specs_and_errors_can_be_pickled(tmp_path: Path) -> None:
    model = executable(affine(), tmp_path)
    assert pickle.loads(pickle.dumps(model.inputs)) == model.inputs
    with pytest.raises(InputMismatchError) as caught:
        model.run({})
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.hint) == (str(caught.value), caught.value.hint)


def test_load_takes_what_compile_returns(tmp_path: Path) -> None:
    x = np.ones((2, 3), np.float32)
    expected = executable(affine(), tmp_path).run(x=x)["y"]
    found = popc_runtime.load(popc.compile(affine())).run(x=x)["y"]
    np.testing.assert_array_equal(found, expected)
    wrong: Any
    for wrong in (affine(), None, 5, [b"popx"]):
        with pytest.raises(UsageError, match=r"bytes or what popc\.compile returns"):
            popc_runtime.load(wrong)


def test_load_from_bytes_and_profile(tmp_path: Path) -> None:
    executable(affine(), tmp_path)
    model = popc_runtime.load((tmp_path / "model.popx").read_bytes())
    opcodes = [row.opcode for row in model.profile({"x": X})]
    assert opcodes[0] == "HostLoad"
    assert opcodes[-1] == "HostStore"


def test_mapped_weights_give_the_same_result(tmp_path: Path) -> None:
    plain = executable(affine(), tmp_path).run(x=X)["y"]
    mapped = executable(affine(), tmp_path, weights="mmap").run(x=X)["y"]
    np.testing.assert_array_equal(plain, mapped)


def test_a_seed_that_the_archive_has() -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g () => (float[9] y)'
    model = parser.parse_model(f"{text} {{ y = RandomNormal <shape = [9]> () }}")

    def drawn(loaded: int | None, **options: object) -> bytes:
        archive = popc.compile(model, options=options)
        return popc_runtime.load(archive, seed=loaded).run()["y"].tobytes()

    assert drawn(None) == drawn(0) != drawn(7)
    assert drawn(None, seed=7) == drawn(7)
    assert drawn(0, seed=7) == drawn(0)
