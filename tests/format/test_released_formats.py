"""Archives of every released format, written by the popc of that time, load and compute.

Results are those of onnxruntime, kept beside the archives, or numpy's here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import popc_runtime
from popc_runtime.format.header import FORMAT_VERSION, Header
from tools.released_archives import ACME, RATE

_FOLDER: Final = Path(__file__).parents[1] / "golden" / "archives"
_ARCHIVES: Final = sorted(_FOLDER.glob("*/*.popx"))
_ENGINES: Final = ("numpy", "native")
_EVERYWHERE: Final = {"image", "sequence", "control", "types", "training"}


def _name_of(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def _of(stem: str) -> list[Any]:
    return [pytest.param(path, id=_name_of(path)) for path in _ARCHIVES if path.stem == stem]


@pytest.fixture(params=_ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def cube() -> Iterator[None]:
    popc_runtime.custom.register(
        ACME, "Cube", types=popc_runtime.custom.like_first, compute=lambda x, _: x[0] ** 3
    )
    yield
    popc_runtime.custom.unregister(ACME, "Cube")


def test_every_format_has_archives() -> None:
    """Who raises the format's version runs ``python -m tools.released_archives``."""
    found = {folder.name: {path.stem for path in folder.iterdir()} for folder in _FOLDER.iterdir()
             if folder.is_dir()}  # fmt: skip
    major, minor = FORMAT_VERSION
    assert found.keys() == {f"{major}.{number}" for number in range(minor + 1)}
    assert all(stems >= _EVERYWHERE for stems in found.values())


@pytest.mark.parametrize("path", _ARCHIVES, ids=_name_of)
def test_archives_are_of_the_format_that_their_folder_names(path: Path) -> None:
    header = Header.parse(path.read_bytes())
    assert f"{header.version[0]}.{header.version[1]}" == path.parent.name
    assert header.built_by.startswith("popc")


@pytest.mark.parametrize(
    "path",
    [each for each in _ARCHIVES if (_FOLDER / f"{each.stem}.npz").exists()
     and each.stem != "shapes"],
    ids=_name_of,
)  # fmt: skip
def test_results_are_those_of_onnxruntime(path: Path, engine: str) -> None:
    with np.load(_FOLDER / f"{path.stem}.npz") as file:
        kept = dict(file)
    inputs = {key.removeprefix("in "): kept[key] for key in kept if key.startswith("in ")}
    model = popc_runtime.load(path, engine=engine, limits="strict")
    results = model.run(inputs)
    for spec in model.outputs:
        found = results[spec.name]
        words = np.array(spec.labels)[found] if spec.labels else found
        _compare(words, kept[f"out {spec.name}"])


def _compare(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    assert found.shape == expected.shape
    if expected.dtype.kind == "f":
        # sums of at most 64 terms of size 1, in float32, or in float16 of four terms
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
    else:
        assert (found == expected).all()


@pytest.mark.parametrize("path", _of("shapes"))
def test_every_shape_of_an_archive(path: Path, engine: str) -> None:
    with np.load(_FOLDER / "shapes.npz") as kept:
        x, y = kept["in x"], kept["out y"]
    model = popc_runtime.load(path, engine=engine)
    for rows in (1, 2, 4):
        np.testing.assert_allclose(model.run(x=x[:rows])["y"], y[:rows], rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("cube")
@pytest.mark.parametrize("path", _of("custom"))
def test_operators_of_users(path: Path, engine: str) -> None:
    x = np.array([-2, 0, 1, 3], np.float32)
    assert (popc_runtime.load(path, engine=engine).run(x=x)["y"] == x**3).all()


@pytest.mark.parametrize("path", _of("training"))
def test_a_step_of_training(path: Path, engine: str, tmp_path: Path) -> None:
    """Least squares by gradient descent, the mean over all elements; and checkpoints go on."""
    model = popc_runtime.load(path, engine=engine)
    before = {name: value.copy() for name, value in model.state.read().items()}
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    t = np.linspace(2, 1, 8, dtype=np.float32).reshape(4, 2)
    difference = x @ before["w"] + before["b"] - t
    results = model.run(x=x, t=t)
    (loss,) = [value for name, value in results.items() if name != "y"]
    np.testing.assert_allclose(loss, (difference**2).mean(), rtol=1e-5)
    gradient = 2 * difference / difference.size
    after = model.state.read()
    np.testing.assert_allclose(after["w"], before["w"] - RATE * x.T @ gradient, rtol=1e-5)
    np.testing.assert_allclose(after["b"], before["b"] - RATE * gradient.sum(0), rtol=1e-5)
    model.state.save_checkpoint(tmp_path / "c.safetensors")
    model.state.reset()
    model.state.load_checkpoint(tmp_path / "c.safetensors")
    assert all((value == after[name]).all() for name, value in model.state.read().items())
