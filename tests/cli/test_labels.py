"""Labels and words, as popc run and popc verify print, write and take them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from popc.cli.root import run
from tests.support.classical import colours_model

_WORDS = ["green", "pink"]


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(colours_model(), "colours.onnx")
    np.save("words.npy", np.array(_WORDS))
    np.save("bytes.npy", np.array(_WORDS).astype("S"))
    np.save("places.npy", np.array([1, -1]))
    np.save("objects.npy", np.array(_WORDS, object), allow_pickle=True)
    Path("few.txt").write_text("ash\n")


def _run(*more: str) -> object:
    return run(["run", "colours.onnx", *more])


@pytest.mark.parametrize("given", ["words.npy", "bytes.npy", "places.npy"])
def test_labels_are_printed(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("-i", f"colour={given}", "--top", "1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith("label")).split(maxsplit=5) == [
        *("label", "string[2]", "-", "-", "-", "'fir tree' 'fir tree'")
    ]
    scores = next(line for line in lines if line.startswith("scores"))
    assert all(f"{name}=0." in scores for name in ("ash", "'fir tree'", "oak"))
    assert sum(line.endswith("fir tree") for line in lines) == 2


def test_documents_hold_labels_beside_places(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["--format", "json", "run", "colours.onnx", "-i", "colour=words.npy", "--values"]) == 0
    )
    label, scores = json.loads(capsys.readouterr().out)["outputs"]
    assert label["first_values"] == label["values"] == [1, 1]
    assert label["first_labels"] == label["labels"] == ["fir tree", "fir tree"]
    assert scores["columns"] == ["ash", "fir tree", "oak"]
    assert "first_labels" not in scores


def test_steps_have_labels_too() -> None:
    np.save("words.npy", np.array([_WORDS, ["red", "blue"]]))
    assert _run("-i", "colour=words.npy", "--steps", "2", "-o", "label=label.npy") == 0
    written = np.load("label.npy")
    assert written.tolist() == [["fir tree", "fir tree"], ["ash", "oak"]]


@pytest.mark.parametrize("every", [(), ("--all",)], ids=["outputs", "all"])
@pytest.mark.parametrize("given", ["words.npy", "bytes.npy", "random:3"])
def test_words_are_verified(
    given: str, every: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", "colours.onnx", "-i", f"colour={given}", *every]) == 0
    out = capsys.readouterr().out
    assert "string[2]" in out
    assert f"all {4 if every else 2} tensors agree" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "-i", "colour=objects.npy"], "objects of Python"),
        (["verify", "-i", "colour=places.npy"], "onnxruntime needs the words"),
        (["run", "-i", "colour=words.npy", "--top", "1", "--labels", "few.txt"], "a name for 1"),
    ],
    ids=["objects", "unknown places", "few labels"],
)
def test_refusals(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    verb, *rest = words
    assert run([verb, "colours.onnx", *rest]) != 0
    assert message in capsys.readouterr().err
