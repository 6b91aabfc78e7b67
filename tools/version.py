"""The version of popc's distributions, which the first heading of CHANGELOG.md with a number names.

    python -m tools.version          # says it, and that everything agrees
    python -m tools.version 0.2.0    # begins that release: a heading, and the number everywhere

``[Unreleased]`` becomes the section of the new version, dated by ``SOURCE_DATE_EPOCH`` or today.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

__all__ = ["changelog_version", "main", "problems"]

_ROOT: Final = Path(__file__).resolve().parent.parent
_NUMBER: Final = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"
_HEADING: Final = re.compile(rf"^## \[({_NUMBER})\] - (\d{{4}}-\d\d-\d\d)$", re.MULTILINE)
_UNRELEASED: Final = "## [Unreleased]\n"
# Where the number stands: of the distribution itself, and of those that it needs exactly.
_PLACE: Final = re.compile(
    rf'(^version = "|"popc(?:-runtime|-popart)?==)({_NUMBER})(?=")', re.MULTILINE
)
_PROJECTS: Final = ("pyproject.toml", "runtime/pyproject.toml", "facade/pyproject.toml")


def main(arguments: Sequence[str]) -> int:
    """Say the version, or begin a new one; 1 if places do not agree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", nargs="?", help="such as 0.2.0")
    given = parser.parse_args(arguments)
    if given.version:
        if not re.fullmatch(_NUMBER, given.version):
            parser.error(f"{given.version} is no version such as 0.2.0 or 0.2.0rc1")
        _begin(given.version)
    wrong = problems()
    print("\n".join(wrong) if wrong else changelog_version())
    return 1 if wrong else 0


def changelog_version() -> str:
    """The newest version that CHANGELOG.md has a section of; "" if there is none."""
    found = _HEADING.search((_ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    return found[1] if found else ""


def problems() -> list[str]:
    """Lines that say where a version does not agree with CHANGELOG.md."""
    expected = changelog_version()
    if not expected:
        return ["CHANGELOG.md has no heading such as: ## [0.2.0] - 2026-12-31"]
    return [
        f"{project}: {place[0].strip()} has {place[2]}, CHANGELOG.md has {expected}"
        for project in _PROJECTS
        for place in _PLACE.finditer((_ROOT / project).read_text(encoding="utf-8"))
        if place[2] != expected
    ]


def _begin(version: str) -> None:
    path = _ROOT / "CHANGELOG.md"
    text = path.read_text(encoding="utf-8")
    if f"## [{version}]" in text:
        raise SystemExit(f"CHANGELOG.md has a section of {version} already")
    if _UNRELEASED not in text:
        raise SystemExit(f"CHANGELOG.md has no line {_UNRELEASED.strip()}")
    chosen = os.environ.get("SOURCE_DATE_EPOCH")
    when = datetime.fromtimestamp(int(chosen), UTC) if chosen else datetime.now(UTC)
    heading = f"{_UNRELEASED}\n## [{version}] - {when:%Y-%m-%d}\n"
    path.write_text(text.replace(_UNRELEASED, heading, 1), encoding="utf-8")
    for project in _PROJECTS:
        file = _ROOT / project
        changed = _PLACE.sub(rf"\g<1>{version}", file.read_text(encoding="utf-8"))
        file.write_text(changed, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
