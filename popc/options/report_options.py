"""Options about budgets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from popc.options.schema import described
from popc.options.table import FrozenTable
from popc.options.transfer_options import TransferOptions

__all__ = ["ReportOptions"]

_NO_BUDGET: Final[FrozenTable[int]] = FrozenTable()


@dataclass(frozen=True, slots=True)
class ReportOptions(TransferOptions):
    """What a program may cost."""

    budget: FrozenTable[int] = field(
        default=_NO_BUDGET,
        metadata=described(
            "ints",
            "What the program may cost. If it costs more, nothing is written, and what costs most "
            "is told. A table with some of max_cycles and max_bytes_per_tile (of a run on the "
            "target, as `popc estimate` computes them), max_archive_bytes, max_arena_bytes (memory "
            "of a run on this machine), max_constant_bytes and max_instructions. In TOML: [budget] "
            "max_cycles = 1_000_000; with --set: budget.max_cycles=1000000.",
            choices=(
                "max_archive_bytes",
                "max_arena_bytes",
                "max_bytes_per_tile",
                "max_constant_bytes",
                "max_cycles",
                "max_instructions",
            ),
            low=1,
        ),
    )
