"""Answers of PyTorch that the repository holds, so that every run of the tests compares with them.

``make oracles`` asks PyTorch anew, in the version that `pyproject.toml` pins, and compares as well.
Each module of tests has a file in ``tests/recorded/``, with the answers under the tests' names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from popc_runtime.format import Array

__all__ = ["Answers", "Pytorch", "Recorder", "look_up", "sampled"]

Answers = Mapping[str, Array]
Pytorch = Callable[[Callable[[], Answers]], Answers]  # the fixture in `tests/conftest.py`

_FOLDER: Final = Path(__file__).parents[1] / "recorded"
_STRIDE: Final = 17  # prime: it walks over all places of rows that are not multiples of it


class Recorder:
    """Asks, and keeps the answers until they are written."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, Array]] = defaultdict(dict)

    def ask(self, file: str, test: str, question: Callable[[], Answers]) -> Answers:
        """The answers to ``question``, which are those of ``test`` in ``file`` from now on."""
        answers = question()
        self._files[file] |= {f"{test}/{name}": np.asarray(a) for name, a in answers.items()}
        return answers

    def write(self) -> None:
        """Write the files of all tests that have asked; others stay as they are."""
        _FOLDER.mkdir(exist_ok=True)
        for file, arrays in self._files.items():
            np.savez_compressed(_FOLDER / f"{file}.npz", allow_pickle=False, **arrays)


def look_up(file: str, test: str) -> Answers:
    """The recorded answers of a test, by name.

    Raises:
        AssertionError: Nothing was recorded for it.
    """
    start = f"{test}/"
    found = {
        name.removeprefix(start): array
        for name, array in _read(file).items()
        if name.startswith(start)
    }
    assert found, f"no answers are recorded for {test}: `make oracles` asks PyTorch for them"
    return found


@cache
def _read(file: str) -> dict[str, Array]:
    path = _FOLDER / f"{file}.npz"
    assert path.exists(), f"{path} is missing: `make oracles` writes it"
    with np.load(path) as archive:
        return dict(archive)


def sampled(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Every seventeenth element of each array, flat: enough of weights to compare them by."""
    return {name: array.reshape(-1)[::_STRIDE] for name, array in arrays.items()}
