"""Exit codes beside those of errors."""

from __future__ import annotations

from popc_runtime.ground.hints import Final

__all__ = ["INTERNAL", "INTERRUPTED", "TERMINATED"]

INTERRUPTED: Final = 130  # 128 + SIGINT, as shells report it
TERMINATED: Final = 143  # 128 + SIGTERM
INTERNAL: Final = 70  # EX_SOFTWARE of sysexits.h
