"""Checkpoints by the number of the step after which they were written."""

from __future__ import annotations

from pathlib import Path
from time import time
from typing import Final

from popc_runtime.errors import UsageError

__all__ = ["NumberedCheckpoints", "require_positive"]

_PATTERN: Final = "step-*.safetensors"
_SECONDS: Final = 3600


class NumberedCheckpoints:
    """The numbered checkpoints of a folder, of which old ones go."""

    def __init__(self, folder: Path, keep: int, keep_every_hours: float | None = None) -> None:
        """Say which stay.

        Args:
            folder: Where they are.
            keep: How many of the last ones; 0: all.
            keep_every_hours: After which time one more stays for good.
        """
        self._folder = folder
        self._keep = keep
        self._hours = keep_every_hours
        # What an earlier process has left beyond the last ones was to stay.
        lasting = keep and keep_every_hours is not None
        self._kept = set(self.files()[:-keep]) if lasting else set[Path]()
        self._next = time() + _SECONDS * (keep_every_hours or 0)

    @staticmethod
    def name(step: int) -> str:
        """The name of the one after so many steps."""
        return f"step-{step:09}"

    def files(self) -> list[Path]:
        """All that are there, in order."""
        return sorted(self._folder.glob(_PATTERN))

    def remove_old(self) -> None:
        """Remove those that need not stay."""
        going = [file for file in self.files() if file not in self._kept]
        for old in going[: -self._keep] if self._keep else ():
            if self._hours is not None and old.stat().st_mtime >= self._next:
                self._kept.add(old)
                self._next += _SECONDS * self._hours
            else:
                old.unlink(missing_ok=True)


def require_positive(steps: int | None, seconds: float | None, keep: int) -> None:
    """Raise UsageError, which lists them, if numbers about checkpoints are out of range."""
    given = {"save_every_steps": steps, "save_every_seconds": seconds}
    problems = [
        f"{name} is {value}" for name, value in given.items() if value is not None and value <= 0
    ]
    problems += [f"keep is {keep}"] if keep < 0 else []
    if problems:
        raise UsageError("checkpoints: numbers must be positive", details=tuple(problems))
