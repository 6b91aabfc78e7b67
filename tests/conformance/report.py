"""Count the backend tests that pass, by group, and list the others with their reasons.

make conformance
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

from tests.conformance.adapter import run_case
from tests.conformance.cases import GROUPS, cases
from tests.conformance.expected import EXPECTED_FAILURES


def main() -> int:
    """Print the table; 1 if a test fails that is expected to pass, or the other way round."""
    warnings.simplefilter("ignore")
    surprises = 0
    for group in GROUPS:
        counts: Counter[str] = Counter()
        for name, case in cases(group).items():
            with tempfile.TemporaryDirectory() as folder:
                try:
                    bound = run_case(case, Path(folder))
                except Exception as error:  # noqa: BLE001 - whatever it is, it is a failure
                    counts["failed"] += 1
                    reason = EXPECTED_FAILURES.get(f"{group}/{name}")
                    surprises += reason is None
                    what = reason or f"UNEXPECTED {type(error).__name__}: {error}"
                    print(f"  {group}/{name}: {' '.join(what.split())[:160]}")
                else:
                    counts["passed"] += 1
                    counts["bound"] += bound
                    if f"{group}/{name}" in EXPECTED_FAILURES:
                        surprises += 1
                        print(f"  {group}/{name}: passes, but is listed as an expected failure")
        total = counts["passed"] + counts["failed"]
        print(
            f"{group:18} {counts['passed']:5} of {total} pass"
            f" ({counts['bound']} with shape-deciding inputs bound)"
        )
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
