"""All models on both engines and any number of threads, as wholes and by instruction."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import popc
import popc_runtime
from popc_runtime.format import Array
from popc_runtime.native import find_library
from tests.native.shadow import shadowed
from tests.zoo.inputs import INPUTS
from tests.zoo.light import NAMES, light_model, picture
from tests.zoo.test_models import archive_of, tolerance

# Sums in another order and Winograd's algorithm, after up to a hundred layers: relative to the peak
_TOLERANCE = 5e-4

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_library() is None, reason="there are no native kernels"),
]
_MODELS = [
    *(pytest.param(name, marks=pytest.mark.network) for name in sorted(INPUTS)),
    *NAMES,
]


def _saved(name: str, folder: Path) -> tuple[Path, dict[str, Array]]:
    """The archive of a model, and inputs."""
    path = folder / f"{name}.popx"
    if name in INPUTS:
        return archive_of(name).save(path), INPUTS[name]()
    archive = popc.compile(light_model(name), options={"weights": "mmap"}).save(path)
    return archive, {popc_runtime.load(archive).inputs[0].name: picture()}


@pytest.mark.parametrize("name", _MODELS)
def test_native_agrees_with_numpy(name: str, tmp_path: Path) -> None:
    path, feeds = _saved(name, tmp_path)
    expected = popc_runtime.load(path, engine="numpy").run(feeds)
    allowed = max(_TOLERANCE, tolerance(name, feeds) if name in INPUTS else 0.0)
    first: dict[str, bytes] = {}
    for threads in (1, 2, 3):
        executable = popc_runtime.load(path, engine="native", threads=threads)
        for _ in range(2):
            for output, got in executable.run(feeds).items():
                assert first.setdefault(output, got.tobytes()) == got.tobytes(), "not the same bits"
                peak = float(np.abs(expected[output]).max())
                np.testing.assert_allclose(got, expected[output], rtol=0, atol=allowed * peak)


@pytest.mark.parametrize("name", _MODELS)
def test_every_instruction_agrees(name: str, tmp_path: Path) -> None:
    path, feeds = _saved(name, tmp_path)
    library = find_library()
    assert library is not None
    with shadowed(library) as hows:
        popc_runtime.load(path, engine="numpy", threads=1).run(feeds)
    assert hows["kernel"] > 0.5 * hows.total()
