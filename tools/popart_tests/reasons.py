"""Why a test cannot pass, by patterns of file and function."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

_TABLE: Final = Path(__file__).with_name("reasons.toml")


@dataclass(frozen=True)
class Reason:
    """Tests that do not pass, and why.

    Attributes:
        file: A pattern of files, relative to the folder of the integration tests.
        functions: Patterns of functions.
        text: The reason.
    """

    file: str
    functions: tuple[str, ...]
    text: str

    def covers(self, file: str, function: str) -> bool:
        """True if the test is one of those."""
        return fnmatchcase(file, self.file) and any(
            fnmatchcase(function, pattern) for pattern in self.functions
        )


def read_reasons() -> list[Reason]:
    """The rows of the table."""
    rows = tomllib.loads(_TABLE.read_text())["reason"]
    return [Reason(row["file"], tuple(row["functions"]), row["why"]) for row in rows]


def reason_for(reasons: Iterable[Reason], file: str, function: str) -> str | None:
    """The reason of a test; ``None`` if the table has none."""
    return next((reason.text for reason in reasons if reason.covers(file, function)), None)
