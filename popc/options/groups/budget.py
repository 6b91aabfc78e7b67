"""Options about budgets."""

from __future__ import annotations

from typing import Final

from popc.options.kinds import Table, Truth, Whole
from popc.options.schema import option
from popc.options.table import FrozenTable
from popc_runtime.ground.frozen import inheritable

__all__ = ["BudgetOptions"]

# What can be limited.
_LIMITS: Final = (
    "max_archive_bytes",
    "max_arena_bytes",
    "max_bytes_per_tile",
    "max_constant_bytes",
    "max_cycles",
    "max_instructions",
)


@inheritable
class BudgetOptions:
    """The limits for the costs of a program."""

    allow_out_of_memory: bool = option(
        Truth(),
        False,
        "Write the archive of a program that does not fit its target anyway. It runs "
        "as any other, and holds the cost report. Without a choice of target, or of how much "
        "of it is used, nothing is refused.",
    )
    budget: FrozenTable[int] = option(
        Table(
            Whole(low=1),
            "from names to whole numbers",
            keys=_LIMITS,
            example="max_archive_bytes=1000",
        ),
        FrozenTable(),
        "Limits for the costs of the program. If it costs more, no archive is written, and the "
        "largest costs are listed. A table with some of max_cycles and max_bytes_per_tile (of a "
        "run on the target, as `popc estimate` computes them), max_archive_bytes, "
        "max_arena_bytes (memory of a run on this machine), max_constant_bytes and "
        "max_instructions. In TOML: [budget] max_cycles = 1_000_000; with --set: "
        "budget.max_cycles=1000000.",
    )
    cost_report: bool = option(
        Truth(),
        False,
        "Put what `popc estimate` would say into the archive. That is cycles and bytes of "
        "every op and tile, as JSON.",
    )
