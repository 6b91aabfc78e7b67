"""Which inputs `popc run` takes from what is given, and which files its results get."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import numpy_helper, parser

import popc
from popc.cli.root import run
from tests.support.models import affine, expected_affine


def _archive(folder: Path, inputs: str, outputs: str, body: str, weights: str = "") -> str:
    head = '<ir_version: 8, opset_import: ["" : 17]>'
    text = f"{head} g ({inputs}) => ({outputs}) <{weights}> {{ {body} }}"
    return str(popc.compile(parser.parse_model(text)).save(folder / "model.popx"))


@pytest.mark.parametrize(
    ("names", "files"),
    [
        (("a/b", "a_b"), ("a_b.2", "a_b")),
        (("a b", "a/b", "a_b", "a_b.2"), ("a_b.3", "a_b.4", "a_b", "a_b.2")),
        (("Y", "y"), ("Y", "y.2")),
        (("plain", "x.y"), ("plain", "x.y")),
    ],
)
def test_no_result_replaces_another(
    names: tuple[str, ...],
    files: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    body = " ".join(f'"{name}" = Add (x, "{name}+")' for name in names)
    outputs = ", ".join(f'float[1] "{name}"' for name in names)
    weights = ", ".join(f'float[1] "{name}+" = {{{i}}}' for i, name in enumerate(names))
    archive = _archive(tmp_path, "float[1] x", outputs, body, weights)
    np.save(tmp_path / "x.npy", np.zeros(1, np.float32))
    folder = tmp_path / "out"
    assert run(["run", archive, "-i", f"x={tmp_path / 'x.npy'}", "-o", str(folder)]) == 0
    assert sorted(path.stem for path in folder.iterdir()) == sorted(files)
    out = capsys.readouterr().out
    for number, (name, file) in enumerate(zip(names, files, strict=True)):
        assert np.load(folder / f"{file}.npy") == number
        line = f"{name} is in {folder / f'{file}.npy'}"
        assert (line in out.splitlines()) == (name != file)


def test_two_results_do_not_fit_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = _archive(tmp_path, "float[1] x", "float[1] y, float[1] z", "y = Neg (x) z = Abs (x)")
    file = tmp_path / "one.npy"
    assert run(["run", archive, "-i", "x=random:0", "-o", f"y={file}", "-o", f"z={file}"]) == 2
    assert "'y' and 'z' would both be written to" in capsys.readouterr().err
    assert not file.exists()


def _write_tensor(path: Path, values: Any) -> str:
    path.write_bytes(numpy_helper.from_array(np.asarray(values)).SerializeToString())
    return str(path)


@pytest.mark.parametrize("kind", ["float", "float16", "bfloat16", "int64", "bool"])
def test_tensors_of_test_data(kind: str, tmp_path: Path) -> None:
    archive = _archive(tmp_path, f"{kind}[3] x", "float[3] y", "y = Cast<to=1>(x)")
    dtype = {"float": np.float32, "bfloat16": ml_dtypes.bfloat16}.get(kind, kind)
    given = _write_tensor(tmp_path / "input_0.pb", np.array([1, 0, 1], dtype))
    assert run(["run", archive, "-i", f"x={given}", "-o", f"y={tmp_path / 'y.npy'}"]) == 0
    assert np.load(tmp_path / "y.npy").tolist() == [1, 0, 1]


def test_words_of_test_data(tmp_path: Path) -> None:
    archive = _archive(
        tmp_path, "string[2] x", "bool[2] y", 'c = Constant<value_strings=["a"]>() y = Equal(x, c)'
    )
    given = _write_tensor(tmp_path / "x.pb", np.array(["a", "é"], object))
    assert run(["run", archive, "-i", f"x={given}", "-o", f"y={tmp_path / 'y.npy'}"]) == 0
    assert np.load(tmp_path / "y.npy").tolist() == [True, False]


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (None, 2, "there is no file"),
        (b"", 7, "is not a tensor of ONNX"),
        (b"\xff" * 9, 7, "is not a tensor of ONNX: it is damaged"),
        (b"\x08\x03\x10\x01\x4a\x02ab", 7, "is not a tensor of ONNX: .* needs 12 bytes, but has 2"),
    ],
)
def test_tensors_that_are_none(
    content: bytes | None,
    code: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    archive = _archive(tmp_path, "float[3] x", "float[3] y", "y = Neg (x)")
    if content is not None:
        (tmp_path / "x.pb").write_bytes(content)
    assert run(["run", archive, "-i", f"x={tmp_path / 'x.pb'}"]) == code
    assert re.search(message, capsys.readouterr().err)


def test_names_may_hold_equals_signs(tmp_path: Path) -> None:
    archive = _archive(
        tmp_path,
        'float[1] "in", float[1] "in=x"',
        'float[1] "out=y"',
        '"out=y" = Sub ("in=x", "in")',
    )
    arrays: dict[str, Any] = {"in=x": np.ones(1, np.float32)}
    np.savez(tmp_path / "x.npz", **arrays)
    np.save(tmp_path / "in.npy", np.full(1, 3, np.float32))
    inputs = ["-i", f"in=x={tmp_path / 'x.npz'}", "-i", f"in={tmp_path / 'in.npy'}"]
    assert run(["run", archive, *inputs, "-o", f"out=y={tmp_path / 'y.npy'}"]) == 0
    assert np.load(tmp_path / "y.npy").tolist() == [-2]


def test_files_that_exist_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = _archive(tmp_path, "float[1] x", "float[1] y, float[1] z", "y = Neg (x) z = Abs (x)")
    arguments = ["run", archive, "-i", "x=random:0", "-o", str(tmp_path)]
    assert run(arguments) == 0
    assert run(arguments) == 7
    err = capsys.readouterr().err
    assert "y.npy, " in err
    assert "z.npy exist already\nhint: --force replaces them" in err
    (tmp_path / "z.npy").unlink()
    assert run(arguments) == 7
    assert "y.npy exists already\nhint: --force replaces it\n" in capsys.readouterr().err


def test_a_bound_file_gives_the_array_of_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez("x.npz", q=x + 1, x=x)
    np.savez("q.npz", q=x)
    Path("model.onnx").write_bytes(affine().SerializeToString())
    assert run(["compile", "model.onnx", "--bind", "x=x.npz"]) == 0
    assert run(["run", "model.popx", "-o", "out"]) == 0
    expected = x * np.linspace(1, 2, 3) + np.linspace(-1, 1, 3)
    np.testing.assert_allclose(np.load("out/y.npy"), expected, rtol=1e-6)
    verify = ["verify", "model.popx", "--model", "model.onnx", "--bind"]
    assert run([*verify, "x=x.npz"]) == 0
    capsys.readouterr()
    assert run([*verify, "x=q.npz"]) == 2
    assert "bind x: there is no array 'x', only 'q'" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".npy", ".bin"])
def test_samples_of_several_steps_lie_in_a_row(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "m.popx"
    popc.compile(affine(), options={"batches_per_step": 4}).save(archive)
    samples = np.random.default_rng(0).standard_normal((8, 2, 3)).astype(np.float32)
    source = tmp_path / f"x{suffix}"
    samples.tofile(source) if suffix == ".bin" else np.save(source, samples)
    words = ["run", str(archive), "-i", f"x={source}", "-o", str(tmp_path), "--steps"]
    assert run([*words, "2"]) == 0
    found = np.load(tmp_path / "y.npy")
    assert found.shape == (2, 4, 2, 3)
    for sample, result in zip(samples, found.reshape(-1, 2, 3), strict=True):
        assert result == expected_affine(sample)
    capsys.readouterr()
    assert run([*words, "3", "--force"]) == 2
    assert "input 'x' has 8 samples, but 3 steps take 12" in capsys.readouterr().err
