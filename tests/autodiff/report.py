"""Which op has a type rule, a kernel and a gradient.

python -m tests.autodiff.report
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from popc.autodiff.backward import no_gradient
from popc.autodiff.rules import GRADIENTS, NOT_DIFFERENTIABLE
from popc.ops import OPS
from popc_runtime.kernels import KERNELS
from popc_runtime.kernels.core.families import FAMILIES

__all__ = ["Row", "rows", "table"]


@dataclass(frozen=True, slots=True)
class Row:
    """What there is for one op.

    Attributes:
        op_type: The op.
        family: The file of its kernel; "" if it has none.
        gradient: "rule", "zero" (constant wherever it is differentiable), "none" (see ``why``) or
            "missing".
        why: Why it has no gradient.
    """

    op_type: str
    family: str
    gradient: str
    why: str = ""


def _gradient(op_type: str) -> str:
    if op_type in GRADIENTS:
        return "zero" if GRADIENTS[op_type] is no_gradient else "rule"
    return "none" if op_type in NOT_DIFFERENTIABLE else "missing"


def rows() -> list[Row]:
    """One row per op, by name."""
    families = {op_type: family for family, names in FAMILIES.items() for op_type in names}
    return [
        Row(
            op_type,
            families[op_type] if op_type in KERNELS else "",
            _gradient(op_type),
            NOT_DIFFERENTIABLE.get(op_type, ""),
        )
        for op_type in sorted(OPS)
    ]


def table(all_rows: list[Row]) -> Iterator[str]:
    """The lines of the report: ops, counts, and those without a gradient by reason."""
    yield f"{'op':32} {'kernel':18} gradient"
    for row in all_rows:
        yield f"{row.op_type:32} {row.family or '-':18} {row.gradient}"
    yield ""
    kernels = sum(bool(row.family) for row in all_rows)
    yield f"{len(all_rows)} ops, {kernels} with a kernel of their own"
    for kind in ("rule", "zero", "none", "missing"):
        yield f"{sum(row.gradient == kind for row in all_rows):5} gradient: {kind}"
    reasons: dict[str, list[str]] = {}
    for row in all_rows:
        if row.gradient in ("none", "missing"):
            reasons.setdefault(row.why or "has no rule", []).append(row.op_type)
    for reason, names in sorted(reasons.items()):
        yield f"  {reason}: {', '.join(names)}"


def main() -> int:
    """Print the report; 1 if an op is missing from it."""
    all_rows = rows()
    sys.stdout.write("\n".join(table(all_rows)) + "\n")
    return 1 if any(row.gradient == "missing" for row in all_rows) else 0


if __name__ == "__main__":
    sys.exit(main())
