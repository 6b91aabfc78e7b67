"""Unpack the corpus: python fuzz/unpack.py FOLDER makes FOLDER/TARGET/ for each target."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import zstandard

__all__ = ["unpack"]

_CORPUS = Path(__file__).parent / "corpus"
_MOST = 1 << 30


def unpack(folder: Path) -> None:
    """The seeds of every target, in a folder of its name."""
    for packed in sorted(_CORPUS.glob("*.tar.zst")):
        target = folder / packed.name.partition(".")[0]
        target.mkdir(parents=True, exist_ok=True)
        raw = zstandard.ZstdDecompressor().decompress(packed.read_bytes(), _MOST)
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            archive.extractall(target, filter="data")


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
