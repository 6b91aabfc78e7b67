"""The files of PopART's tests, and the device on which PopART runs each."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

INTEGRATION: Final = "tests/integration"
_LIST: Final = "files.tsv"
_CALL: Final = re.compile(r"^[ \t]*add_popart_py_unit_test\(([^)]*)\)", re.MULTILINE)
_VARIANTS: Final = re.compile(r"\bVARIANTS\s+(.+)", re.DOTALL)
# What runs on a model of two chips elsewhere is a test of several chips here as well.
_DEVICES: Final = {"IpuModel": "IpuModel2", "Sim": "IpuModel2"}
# Folders of other modules than `popart`: popxl, and classes of PopART's own IR.
_OTHER_MODULES: Final = ("popxl", "popart.ir", "popart._internal")


@dataclass(frozen=True)
class TestFile:
    """A file of tests.

    Attributes:
        path: The file, relative to the root of the suite.
        device: Cpu, IpuModel2 or Hw.
    """

    path: str
    device: str


def find_files(root: Path, only: list[str]) -> list[TestFile]:
    """The files of the suite under ``root`` whose path contains one of the words of ``only``.

    Raises:
        FileNotFoundError: there is neither a list of files nor a checkout of PopART's repository.
    """
    listed = root / _LIST
    if listed.is_file():
        files = _read_list(listed)
    elif (root / INTEGRATION / "CMakeLists.txt").is_file():
        files = _read_checkout(root)
    else:
        raise FileNotFoundError(
            f"{root} holds neither {_LIST} nor {INTEGRATION}/CMakeLists.txt: POPART_TESTS has to "
            "name a checkout of PopART's repository, or a folder with a part of its tests"
        )
    return [file for file in files if not only or any(word in file.path for word in only)]


def _read_list(listed: Path) -> list[TestFile]:
    with listed.open(newline="") as text:
        rows = csv.DictReader(text, delimiter="\t")
        return [TestFile(row["file"], row["device"]) for row in rows]


def _read_checkout(root: Path) -> list[TestFile]:
    """The files that the build files of a checkout register; a file runs on its first device."""
    devices: dict[str, str] = {}
    for build_file in sorted((root / INTEGRATION).rglob("CMakeLists.txt")):
        folder = build_file.parent.relative_to(root).as_posix()
        if any(name in folder for name in _OTHER_MODULES):
            continue
        for call in _CALL.findall(build_file.read_text()):
            words = call.split()
            if len(words) > 1 and (build_file.parent / words[1]).is_file():
                devices.setdefault(f"{folder}/{words[1]}", _device(call))
    return [TestFile(path, device) for path, device in sorted(devices.items())]


def _device(call: str) -> str:
    variants = _VARIANTS.search(call)
    first = re.split(r"[;\s]+", variants[1].strip().strip('"'))[0] if variants else "Cpu"
    return _DEVICES.get(first, first)
