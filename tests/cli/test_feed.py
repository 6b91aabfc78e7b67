"""popc feed: data sets become files that programs read, and are measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest

from popc.cli.root import run
from popc_runtime.format import Array
from tests.support.models import affine, expected_affine

_ROWS: Final = np.arange(600, dtype=np.float32).reshape(100, 2, 3) - 300

pairs = [(row, np.int32(place)) for place, row in enumerate(_ROWS)]
uneven = [np.zeros(2), np.zeros(3)]
words = ["a", "b"]
once = iter([np.zeros(2)])
number = 3


def by_name() -> Iterator[dict[str, Array]]:
    """A data set that is made anew each time, as those of TensorFlow are."""
    return ({"x": row, "label": np.array(1)} for row in _ROWS)


def _document(capsys: pytest.CaptureFixture[str], *words_: str) -> dict[str, Any]:
    capsys.readouterr()
    run(["--format", "json", *words_])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_pairs_are_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As export_dataset_to_file writes them."""
    target = str(tmp_path / "my_dataset.bin")
    assert run(["feed", "write", f"{__name__}:pairs", "-o", target, "--count", "100"]) == 0
    assert "write" in capsys.readouterr().err, "progress"
    numbers = np.fromfile(tmp_path / "my_dataset.1.bin", np.int32)
    np.testing.assert_array_equal(numbers, np.arange(100))
    onnx.save(affine(), tmp_path / "m.onnx")
    feed, results = f"x={tmp_path / 'my_dataset.0.bin'}", str(tmp_path / "y.npy")
    line = ["run", str(tmp_path / "m.onnx"), "-i", feed, "--steps", "100", "-o", f"y={results}"]
    assert run(line) == 0
    assert np.load(results).reshape(_ROWS.shape) == expected_affine(_ROWS)


def test_parts_by_name_and_npy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "d.npy")
    document = _document(capsys, "feed", "write", f"{__name__}:by_name", "-o", target)
    assert [(row["part"], row["samples"], row["shape"]) for row in document["files"]] == [
        ("x", 100, [2, 3]),
        ("label", 100, []),
    ]
    np.testing.assert_array_equal(np.load(tmp_path / "d.0.npy"), _ROWS)
    assert np.load(tmp_path / "d.1.npy").shape == (100,)


def test_a_sealed_feed_is_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k").write_bytes(bytes(32))
    np.save(tmp_path / "x.npy", _ROWS[:1])
    onnx.save(affine(), tmp_path / "m.onnx")
    source, target, key = (str(tmp_path / name) for name in ("x.npy", "f.bin", "k"))
    assert run(["feed", "write", source, "-o", target, "--key", f"{key}@7"]) == 0
    line = ["run", str(tmp_path / "m.onnx"), "-i", f"x={target}", "--feed-key"]
    assert run([*line, f"{key}@7"]) == 0
    assert run([*line, key]) == 6
    assert "stream 'x'" in capsys.readouterr().err
    assert run(["run", str(tmp_path / "m.onnx"), "-i", "x=random:0", "--feed-key", key]) == 2
    data = bytearray((tmp_path / "f.bin").read_bytes())
    data[3] ^= 64
    (tmp_path / "f.bin").write_bytes(data)
    capsys.readouterr()
    assert run([*line, f"{key}@7"]) == 6
    assert "stream 'x': sample 0" in capsys.readouterr().err
    assert run(["feed", "write", source, "-o", target, "--force"]) != 0
    assert "is the seal of an earlier file" in capsys.readouterr().err


def test_the_figures_of_a_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["feed", "bench", f"{__name__}:by_name", "--epochs", "2", "--elements", "150"]
    epochs = _document(capsys, *line)["epochs"]
    assert [epoch["elements_processed"] for epoch in epochs] == [150, 150]
    assert epochs[0]["total_bytes_processed"] == 150 * (24 + 8)
    assert all(
        epoch[name] > 0
        for epoch in epochs
        for name in ("time_elapsed", "elements_per_second", "bandwidth")
    )
    assert epochs[0]["latency_seconds"].keys() == {"p50", "p90", "p99", "max"}
    assert run(line) == 0
    assert "elements/s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words_", "message"),
    [
        (["write", f"{__name__}:pairs", "-o", "x.txt"], "a feed is a file"),
        (["write", f"{__name__}:pairs", "-o", "x.bin", "--count", "101"], "ended after 100 of 101"),
        (["write", f"{__name__}:uneven", "-o", "x.bin"], "element 1 is float64[3]"),
        (["write", f"{__name__}:words", "-o", "x.bin"], "no numbers"),
        (["write", f"{__name__}:number", "-o", "x.bin"], "gives no elements"),
        (["write", f"{__name__}:missing", "-o", "x.bin"], "PYTHONPATH"),
        (["write", "nothing", "-o", "x.bin"], "expected MODULE:NAME"),
        (["write", "nothing.npy", "-o", "x.bin"], "cannot read nothing.npy"),
        (["bench", f"{__name__}:once", "--elements", "2"], "only once"),
    ],
)
def test_mistakes(
    words_: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["feed", *words_]) != 0
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
