"""Pictures as inputs, and the best classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from PIL import Image

from popc.cli.root import run
from popc.inputs.images import read_image
from popc_runtime.errors import ResourceError, UsageError
from popc_runtime.format import DType, TensorSpec

_COLOURS = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)


def _picture(folder: Path) -> Path:
    Image.fromarray(_COLOURS).save(folder / "p.png")
    return folder / "p.png"


@pytest.mark.parametrize(
    ("shape", "dtype", "pixels", "expected"),
    [
        ((1, 8, 12, 3), "uint8", "auto", _COLOURS[None]),
        ((8, 12, 3), "float32", "bytes", _COLOURS.astype(np.float32)),
        ((1, 3, 8, 12), "float32", "unit", _COLOURS.transpose(2, 0, 1)[None] / np.float32(255)),
        (
            (1, 3, 8, 12),
            "float32",
            "auto",
            ((_COLOURS / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).transpose(2, 0, 1)[
                None
            ],
        ),
    ],
)
def test_pixels(
    shape: tuple[int, ...], dtype: str, pixels: str, expected: Any, tmp_path: Path
) -> None:
    found = read_image(_picture(tmp_path), TensorSpec("x", DType(dtype), shape), pixels)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_the_middle_of_other_sizes_is_cut_out(tmp_path: Path) -> None:
    whole = np.zeros((80, 160, 3), np.uint8)
    whole[:, 60:100] = 255
    Image.fromarray(whole).save(tmp_path / "p.png")
    spec = TensorSpec("x", DType.UINT8, (1, 20, 20, 1))
    found = read_image(tmp_path / "p.png", spec)
    assert found.shape == spec.shape
    assert found[0, 10, 10, 0] == 255
    assert not found[0, :, [0, -1]].any()


@pytest.mark.parametrize(
    ("shape", "dtype", "pixels", "message"),
    [
        ((2, 3, 8, 8), "float32", "auto", "does not take a picture"),
        ((1, 8, 8, 3), "uint8", "unit", "takes integers"),
        ((1, 1, 8, 8), "float32", "imagenet", "is for three channels"),
    ],
)
def test_inputs_that_take_no_picture(
    shape: tuple[int, ...], dtype: str, pixels: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        read_image(_picture(tmp_path), TensorSpec("x", DType(dtype), shape), pixels)


def test_files_that_are_no_picture(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_text("no picture")
    spec = TensorSpec("x", DType.UINT8, (1, 8, 8, 3))
    with pytest.raises(ResourceError, match="is not a picture"):
        read_image(tmp_path / "p.png", spec)
    with pytest.raises(UsageError, match="there is no file"):
        read_image(tmp_path / "q.png", spec)


def test_the_best_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """<ir_version: 9, opset_import: ["" : 17]>
        g (uint8[1, 8, 12, 3] x) => (float[1, 3] y) {
        f = Cast <to = 1> (x) y = ReduceMean <axes = [1, 2], keepdims = 0> (f) }"""
    onnx.save(parser.parse_model(text), tmp_path / "m.onnx")
    (tmp_path / "labels.txt").write_text("red\ngreen\nblue\n")
    command = ["run", str(tmp_path / "m.onnx"), "-i", f"x={_picture(tmp_path)}", "--no-cache"]
    named = [*command, "--top", "2", "--labels", str(tmp_path / "labels.txt")]
    assert run(["-q", "--format", "json", *named]) == 0
    (found,) = json.loads(capsys.readouterr().out)["top"]["y"]
    means = _COLOURS.mean((0, 1))
    order = np.argsort(-means)[:2].tolist()
    assert [item["index"] for item in found] == order
    assert [item["label"] for item in found] == [["red", "green", "blue"][n] for n in order]
    np.testing.assert_allclose([item["score"] for item in found], means[order], rtol=1e-5)
    assert run(["-q", *named]) == 0
    assert ["red", "green", "blue"][order[0]] in capsys.readouterr().out
    assert run(["-q", *command, "--labels", str(tmp_path / "labels.txt")]) == 2
    (tmp_path / "labels.txt").write_text("red\n")
    assert run(["-q", *named]) == 2
    assert "y has 3 classes, but there is a name for 1 of them only" in capsys.readouterr().err
