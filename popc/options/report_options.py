"""Options about budgets."""

from __future__ import annotations

from dataclasses import dataclass

from popc.options.transfer_options import TransferOptions

__all__ = ["ReportOptions"]


@dataclass(frozen=True, slots=True)
class ReportOptions(TransferOptions):
    """What a program may cost."""
