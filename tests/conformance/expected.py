"""Backend tests that popc fails by design, and why."""

from __future__ import annotations

from typing import Final

EXPECTED_FAILURES: Final[dict[str, str]] = {}
