"""What the compiler tells about its progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

__all__ = ["Checkpoint", "OnProgress", "ProgressEvent", "Stage"]


class Stage(StrEnum):
    """The stages of a compilation, in order; ``TRAIN`` is for models that are trained."""

    IMPORT = "import"
    TRAIN = "train"
    TRANSFORM = "transform"
    SCHEDULE = "schedule"
    PLAN = "plan"
    LOWER = "lower"
    PACK = "pack"


class Checkpoint(StrEnum):
    """Moments at which the graph can be looked at, in order.  The names are PopART's."""

    FWD0 = "fwd0"  # as it was imported
    FWD1 = "fwd1"  # cleaned up, formulas recognised
    BWD0 = "bwd0"  # with the backward pass and the updates of weights; when training only
    PRE_ALIAS = "pre_alias"  # everything fused
    MAIN_LOOPS = "main_loops"  # within the loops over batches and micro-batches
    FINAL = "final"  # in the order in which it runs


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """One stage began or ended.

    Attributes:
        stage: Which.
        seconds: How long it took; ``None`` when it begins.
        summary: What it produced, in a few words; "" when it begins.
    """

    stage: Stage
    seconds: float | None = None
    summary: str = ""


OnProgress: TypeAlias = Callable[[ProgressEvent], None]
