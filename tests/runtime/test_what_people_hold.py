"""Archives, inputs and results in the forms in which Python programs hold them."""

from __future__ import annotations

import asyncio
import copy
import io
import pickle
from collections.abc import Callable
from concurrent.futures import Future
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import parser

import popc
import popc_runtime
from popc_runtime.data.dlpack import foreign_tensor
from popc_runtime.errors import (
    InputMismatchError,
    PopcError,
    ResourceError,
    SpokenHint,
    UsageError,
)
from tests.support.models import affine, expected_affine

X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
TWO = """<ir_version: 10, opset_import: ["" : 22]>
    g (float[2] a, float[2] b) => (float[2] y) { y = Sub(a, b) }"""
HALF = """<ir_version: 10, opset_import: ["" : 22]>
    g (bfloat16[2,3] x) => (bfloat16[2,3] y) { y = Neg(x) }"""


class Foreign:
    """An array of a library that speaks DLPack and nothing else."""

    def __init__(self, held: Any, device: tuple[int, int] = (1, 0)) -> None:
        self._held = held
        self._device = device

    def __dlpack__(self, **settings: Any) -> Any:
        return self._held.__dlpack__(**settings)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


class Refusing(Foreign):
    """A tensor with a gradient."""

    def __dlpack__(self, **settings: Any) -> Any:
        raise BufferError("it requires a gradient")


def _two() -> popc_runtime.Executable:
    return popc.compile(parser.parse_model(TWO)).load()


def _held(value: Any) -> Any:
    return value


def _compile(model: Any, **keywords: Any) -> popc.Archive:
    return popc.compile(model, **keywords)


def _load(source: Any, **keywords: Any) -> popc_runtime.Executable:
    return popc_runtime.load(source, **keywords)


def _half(**settings: Any) -> popc_runtime.Executable:
    return popc.compile(parser.parse_model(HALF)).load(**settings)


@pytest.mark.parametrize(
    "form",
    [
        lambda archive: archive,
        lambda archive: archive.to_bytes(),
        lambda archive: bytearray(archive.to_bytes()),
        lambda archive: memoryview(archive.to_bytes()),
        lambda archive: io.BytesIO(archive.to_bytes()),
    ],
)
def test_archives_are_loaded_from_what_holds_them(form: Callable[[popc.Archive], Any]) -> None:
    archive = popc.compile(affine())
    model = popc_runtime.load(form(archive))
    assert model(X)["y"] == expected_affine(X)
    assert popc_runtime.probe(form(archive)) == archive.manifest


@pytest.mark.parametrize(
    "form",
    [
        bytearray,
        io.BytesIO,
    ],
)
def test_models_are_compiled_from_what_holds_them(form: Callable[[bytes], Any]) -> None:
    data = affine().SerializeToString()
    assert popc.compile(form(data)).to_bytes() == popc.compile(data).to_bytes()


def test_packages_have_versions() -> None:
    assert popc.__version__ == version("popc")
    assert popc_runtime.__version__ == version("popc-runtime")


def test_inputs_by_position_and_by_keyword() -> None:
    model = _two()
    a, b = np.array([3, 4], np.float32), np.array([1, 1], np.float32)
    for results in (model(a, b), model(a, b=b), model(a=a, b=b), model.run({"a": a}, b=b)):
        np.testing.assert_array_equal(results["y"], [2, 3])


MISTAKES: list[tuple[Callable[[], object], type[PopcError], str]] = [
    (lambda: _two()(X, X, X), InputMismatchError, "3 inputs are given, but the program has 2"),
    (lambda: _two()(X, a=X), UsageError, "input 'a' is given by position and by keyword"),
    (lambda: _two()(np.zeros(2)), InputMismatchError, "input 'b' is missing"),
    (lambda: _two().run(_held([X])), UsageError, "not as an object of type list"),
    (lambda: _two().run_async(_held([X])), UsageError, "not as an object of type list"),
    (lambda: _two().run_buffers(_held([X])), UsageError, "not as an object of type list"),
    (lambda: _two().run(_held({0: X})), UsageError, "names of inputs are text, not 0"),
    (lambda: _two().run({"a": X}, a=X), UsageError, "in the mapping and by keyword"),
    (lambda: _two()([[1], [2, 3]], X), InputMismatchError, "input 'a': expected float32[2], got "),
    (lambda: _two()(object(), X), InputMismatchError, "got an object of type object"),
    (lambda: _two()(Foreign(X, (2, 0)), X), InputMismatchError, "a tensor on another device"),
    (lambda: _two()(Refusing(X), X), InputMismatchError, "it requires a gradient"),
    (lambda: _load(3), UsageError, "not an object of type int"),
    (lambda: _load(io.StringIO("")), UsageError, "opened as text"),
    (lambda: _load(b"", bfloat16="x"), UsageError, "there is no choice 'x'"),
    (lambda: _compile(3), UsageError, "a model is not an object of type int"),
    (lambda: _compile(affine(), shapes={"x": "2,3"}), UsageError, "the shape of 'x' is text"),
    (lambda: _compile(affine(), shapes={"x": 2}), UsageError, "the shape of 'x' is 2"),
    (lambda: _compile(affine(), shapes=[2]), UsageError, "shapes: expected a mapping, got int"),
    (lambda: _compile(affine(), dims={"N": "2"}), UsageError, "the size of 'N' is '2'"),
    (lambda: _compile(affine(), dims={1: 2}), UsageError, "dims: 1 is no name"),
    (lambda: _compile(affine(), bind=[1]), UsageError, "bind: expected a mapping, got list"),
    (lambda: _compile(affine(), outputs="y"), UsageError, "outputs is 'y'"),
]


@pytest.mark.parametrize(("call", "kind", "message"), MISTAKES)
def test_wrong_kinds_of_arguments(
    call: Callable[[], object], kind: type[PopcError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert message in str(caught.value)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize("layout", [lambda x: x, np.asfortranarray])
def test_tensors_of_other_libraries(layout: Callable[[Any], Any]) -> None:
    model = popc.compile(affine()).load()
    assert model(Foreign(layout(X)))["y"] == expected_affine(X)
    if layout(X).flags.c_contiguous:
        buffers = model.run_buffers(x=Foreign(layout(X)))
        assert np.asarray(buffers["y"]) == expected_affine(X)
    else:
        with pytest.raises(InputMismatchError, match="not contiguous"):
            model.run_buffers(x=Foreign(layout(X)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint64", "bool", "float16"])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (2, 3)])
def test_foreign_memory_is_what_numpy_has(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype)
    tensor = foreign_tensor(Foreign(array))
    assert (tensor.dtype, tensor.shape) == (dtype, shape)
    assert bytes(tensor.memory) == array.tobytes()


def test_results_are_shared_with_other_libraries() -> None:
    result = popc.compile(affine()).load().run_buffers(x=X)["y"]
    np.testing.assert_array_equal(np.from_dlpack(result), np.asarray(result))
    assert result.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("settings", [{}, {"max_version": (1, 0)}])
def test_bfloat16_travels_as_numbers(settings: dict[str, Any]) -> None:
    numbers = X.astype(ml_dtypes.bfloat16)
    bits = _half()(numbers)["y"]
    assert bits.dtype == np.uint16
    shown = _half(bfloat16="ml_dtypes")(numbers)["y"]
    assert shown.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(shown, -numbers)
    result = _half().run_buffers(x=numbers)["y"]
    assert "dltensor" in repr(result.__dlpack__(**settings))
    again = _half()(Foreign(result))["y"]  # read as bfloat16, which the input takes
    np.testing.assert_array_equal(again.view(ml_dtypes.bfloat16), numbers)
    with pytest.raises(InputMismatchError, match=r"got bfloat16\[2,3\]"):
        popc.compile(affine()).load()(Foreign(result))


def test_bfloat16_variables_are_written_as_numbers_or_bits() -> None:
    model = parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> '
        "m (bfloat16[3] h) => (bfloat16[3] y, bfloat16[3] hn) { y = Neg(h) hn = Abs(h) }"
    )
    program = popc.compile(model, options={"states": {"h": "hn"}}).load(bfloat16="ml_dtypes")
    numbers = np.array([1.5, 2, -3], ml_dtypes.bfloat16)
    for value in (numbers, numbers.view(np.uint16)):
        program.state.write({"h": value})
        np.testing.assert_array_equal(program.run()["y"], -numbers)
    np.testing.assert_array_equal(program.state.read()["h"], abs(numbers).view(np.uint16))


def test_coroutines_await_runs() -> None:
    model = popc.compile(affine()).load()

    async def several() -> list[dict[str, Any]]:
        return list(await asyncio.gather(*(model.run_async(x=X * n) for n in range(3))))

    for n, results in enumerate(asyncio.run(several())):
        assert results["y"] == expected_affine(X * n)
    future = model.run_async(x=X)
    assert isinstance(future, Future)
    assert future.result()["y"] == expected_affine(X)

    async def failing() -> None:
        await model.run_async(x=X[0])

    with pytest.raises(InputMismatchError):
        asyncio.run(failing())


def test_copies_load_the_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    popc.compile(affine(), options={"constant_weights": False}).save("model.popx")
    model = popc_runtime.load("model.popx", threads=1)
    model.state.write({"scale": np.zeros(3, np.float32)})
    monkeypatch.chdir("/")
    for other in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other(X)["y"], model(X)["y"])
    popc.compile(affine(2, 4)).save(tmp_path / "model.popx", force=True)
    with pytest.raises(ResourceError, match="not the archive any more"):
        copy.copy(model)


def test_executables_of_memory_are_not_copied() -> None:
    with pytest.raises(UsageError, match="was in memory"):
        pickle.dumps(popc.compile(affine()).load())


def test_hints_have_two_tongues(tmp_path: Path) -> None:
    archive = popc.compile(affine())
    archive.save(tmp_path / "model.popx")
    with pytest.raises(ResourceError) as caught:
        archive.save(tmp_path / "model.popx")
    error = pickle.loads(pickle.dumps(caught.value))
    assert "force=True" in error.hint
    assert isinstance(error.hint, SpokenHint)
    assert "--force" in error.hint.command_line


def test_notebooks_show_archives() -> None:
    archive = popc.compile(affine())
    for shown in (archive._repr_html_(), archive.load()._repr_html_()):
        assert "<td>input</td><td>x</td><td>float32[2,3]</td>" in shown
