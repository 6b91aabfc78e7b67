"""Memory of results that runs use again: never while anything refers to it."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

from popc_runtime import Executable
from popc_runtime.errors import DeviceError
from popc_runtime.native import find_library
from tests.support.models import executable

pytestmark = pytest.mark.skipif(find_library() is None, reason="there are no native kernels here")

_HEADER: Final = '<ir_version: 10, opset_import: ["" : 18]> g '
_TEXT: Final = """(float[300,100] x) => (float[300,100] y, float[300,100] z, float s) {
    y = Neg(x)
    z = Add(x, x)
    s = ReduceSum <keepdims = 0> (x)
}"""


def _loaded(folder: Path, text: str = _TEXT) -> Executable:
    return executable(parser.parse_model(_HEADER + text), folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Executable:
    made = _loaded(tmp_path_factory.mktemp("results"))
    assert made._direct is not None, "nothing calls Python"
    return made


def _x(number: int) -> Any:
    return np.full((300, 100), number, np.float32)


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


_VIEWS: Final[dict[str, Callable[[Any], Any]]] = {
    "the array": lambda y: y,
    "a row": lambda y: y[7],
    "an empty part": lambda y: y[:0],
    "a view of a view": lambda y: y[5:].T[::2],
    "other elements": lambda y: y.view(np.uint32).reshape(-1),
    "a memoryview": memoryview,
    "bytes of a memoryview": lambda y: memoryview(y).cast("B")[16:],
    "DLPack": np.from_dlpack,
    "the base": lambda y: y.base,
    "a buffer of the base": lambda y: np.frombuffer(y.base, np.float32),
    "an array interface": lambda y: np.asarray(_Interface(y)),
    "an iterator": iter,
    "a flat iterator": lambda y: y.flat,
}


class _Interface:
    def __init__(self, array: Any) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


def test_memory_is_used_again(model: Executable) -> None:
    results = model.run({"x": _x(1)})
    held = {name: _address(results[name]) for name in "yz"}
    del results
    results = model.run({"x": _x(2)})
    assert {name: _address(results[name]) for name in "yz"} == held
    assert (results["y"] == -2).all()
    assert (results["z"] == 4).all()


@pytest.mark.parametrize("name", _VIEWS)
def test_views_keep_it(name: str, model: Executable) -> None:
    y = model.run({"x": _x(3)})["y"]
    view = _VIEWS[name](y)
    low, high = _address(y), _address(y) + y.nbytes
    del y
    others = [model.run({"x": _x(number)})["y"] for number in range(3)]
    assert not any(low <= _address(other) < high for other in others)
    if isinstance(view, np.ndarray | memoryview) and len(view):
        seen = np.frombuffer(np.asarray(view).tobytes(), np.float32)
        assert (seen == -3).all()
    del view
    found = [_address(model.run({"x": _x(number)})["y"]) for number in range(2)]
    assert found == [low, low], "nothing refers to it any more"


def test_results_are_arrays_like_any_other(model: Executable) -> None:
    y = model.run({"x": _x(1)})["y"]
    assert type(y) is np.ndarray
    assert y.flags.writeable
    assert y.flags.c_contiguous
    assert y.flags.aligned
    assert _address(y) % 64 == 0
    y.setflags(write=False)
    y.setflags(write=True)
    y += 1
    assert (y == 0).all()
    block: Any = type(y.base)
    with pytest.raises(TypeError, match="cannot create"):
        block()


def test_results_outlive_their_program(tmp_path: Path) -> None:
    model = _loaded(tmp_path)
    results = model.run({"x": _x(5)})
    rows = results["z"][3:]
    del model, results
    gc.collect()
    rows[0] = 1
    assert (rows[1:] == 10).all()


def test_results_of_the_caller_are_left_alone(model: Executable) -> None:
    own = np.empty((300, 100), np.float32)
    for number in range(3):
        results = model.run({"x": _x(number)}, out={"y": own})
        assert results["y"] is own
        del results
    model.run({"x": _x(9)})
    assert (own == -2).all()


def test_runs_that_fail_leave_what_others_hold(tmp_path: Path) -> None:
    text = """(float[400,60] x, int64[700] i) => (float[700,60] y, float[400,60] z) {
        z = Neg(x)
        y = Gather(x, i)
    }"""
    model = _loaded(tmp_path, text)
    x = np.full((400, 60), 2, np.float32)
    inside, outside = np.zeros(700, np.int64), np.full(700, 400, np.int64)
    held = model.run({"x": x, "i": inside})
    for _ in range(3):
        with pytest.raises(DeviceError):
            model.run({"x": -x, "i": outside})
    assert (held["y"] == 2).all()
    assert (held["z"] == -2).all()
    assert (model.run({"x": x + 1, "i": inside})["y"] == 3).all()


@given(
    st.lists(
        st.tuples(st.sampled_from(["run", "drop", "view", "swap"]), st.integers(0, 7)), max_size=40
    )
)
def test_whatever_is_held_stays_as_it_is(model: Executable, steps: list[tuple[str, int]]) -> None:
    held: list[tuple[Any, float]] = []
    for number, (step, which) in enumerate(steps):
        if step == "run":
            results = model.run({"x": _x(number)})
            held.append((results["y"], -number))
            if which % 2:
                held.append((results["z"], 2 * number))
            del results
        elif held and step == "drop":
            del held[which % len(held)]
        elif held and step == "view":
            array, value = held[which % len(held)]
            held[which % len(held)] = array[which:, ::3], value
            del array
        elif held:
            held.append(held.pop(which % len(held)))
        for array, value in held:
            assert (array == value).all()


def test_threads_see_their_own_results(model: Executable) -> None:
    def work(number: int) -> bool:
        kept: list[Any] = []
        for turn in range(30):
            kept = [*kept, model.run({"x": _x(100 * number + turn)})["z"]][-(turn % 4) :]
            start = turn + 1 - len(kept)
            if not all(
                (each == 2 * (100 * number + start + place)).all()
                for place, each in enumerate(kept)
            ):
                return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))


_COUNTING: Final = """
import sys
import numpy as np
import popc_runtime

def pages():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

x = np.ones((1024, 1024), np.float32)
for turn in range(60):
    model = popc_runtime.load(sys.argv[1])
    held = [model.run({"x": x})["y"] for _ in range(4)]
    del held[:2]
    if turn % 2:
        del model
    held.clear()
    model = None
    if turn == 9:
        start = pages()
print((pages() - start) * 4096)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell")
def test_nothing_leaks(tmp_path: Path) -> None:
    text = "(float[1024,1024] x) => (float[1024,1024] y) { y = Neg(x) }"
    _loaded(tmp_path, text)
    command = [sys.executable, "-c", _COUNTING, str(tmp_path / "model.popx")]
    done = subprocess.run(command, capture_output=True, check=True, timeout=300, text=True)
    assert int(done.stdout) < 8 << 20, "fifty programs leave less than the memory of two results"
