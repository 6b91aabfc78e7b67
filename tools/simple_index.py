"""A package index of the files in a folder, as pip reads it (PEP 503): simple/NAME/index.html.

    python -m tools.simple_index dist
    pip install --extra-index-url file:///path/to/dist/simple popc

Any web server of files serves it as well.  Pages point to the files beside simple/, by their
SHA-256.
"""

from __future__ import annotations

import hashlib
import html
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

__all__ = ["main", "write_index"]

_PAGE: Final = '<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>{}</title></head><body>\n'


def main(arguments: Sequence[str]) -> int:
    """Write the index into the folder."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    print(write_index(Path(arguments[0])))
    return 0


def write_index(folder: Path) -> Path:
    """Write the index of the wheels and source distributions in ``folder``; where it is."""
    projects: dict[str, list[Path]] = {}
    for file in sorted((*folder.glob("*.whl"), *folder.glob("*.tar.gz"))):
        # a file's name begins with that of the project, whose hyphens are underscores there
        name = re.sub(r"[-_.]+", "-", file.name.removesuffix(".tar.gz").split("-")[0]).lower()
        projects.setdefault(name, []).append(file)
    top = folder / "simple"
    top.mkdir(exist_ok=True)
    _write(top, "index", [(f"{name}/", name) for name in projects])
    for name, files in projects.items():
        (top / name).mkdir(exist_ok=True)
        _write(top / name, name, [(f"../../{_address(file)}", file.name) for file in files])
    return top


def _address(file: Path) -> str:
    return f"{quote(file.name)}#sha256={hashlib.sha256(file.read_bytes()).hexdigest()}"


def _write(folder: Path, title: str, links: Sequence[tuple[str, str]]) -> None:
    lines = [f'<a href="{address}">{html.escape(text)}</a><br>' for address, text in links]
    page = "\n".join([_PAGE.format(html.escape(title)).rstrip(), *lines, "</body></html>", ""])
    (folder / "index.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
