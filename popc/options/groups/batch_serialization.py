"""Options about batch serialization."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Final, Literal, TypeAlias

from popc.options.kinds import Choice, Kind, Table, Truth, Whole
from popc.options.schema import option
from popc.options.table import FrozenTable
from popc_runtime.ground.frozen import inheritable

__all__ = [
    "OVERLAPPING",
    "AxisNumber",
    "BatchOptions",
    "PartsContext",
    "PartsMethod",
    "PartsSchedule",
]


class PartsSchedule(StrEnum):
    """In which order the ops of the parts of a batch run."""

    SCHEDULER = "scheduler"
    ISOMORPHIC = "isomorphic"
    OVERLAP_ON_IO = "overlap_on_io"
    OVERLAP_ON_COMPUTE = "overlap_on_compute"


class PartsMethod(StrEnum):
    """The form of the program for the parts of a batch."""

    UNROLL_DYNAMIC = "unroll_dynamic"
    UNROLL_STATIC = "unroll_static"
    LOOP = "loop"


class PartsContext(StrEnum):
    """The time when a batch is cut: before or behind the backward pass."""

    FWD = "fwd"
    BWD = "bwd"


# The number of a dimension, or that there is none: all parts read the whole.
Dimension: TypeAlias = "int | Literal['none']"

_LARGEST_AXIS: Final = 7  # a guess: batches are among the first dimensions

# Schedules in which the transfers of a part overlap with another part.
OVERLAPPING: Final = (PartsSchedule.OVERLAP_ON_IO, PartsSchedule.OVERLAP_ON_COMPUTE)


class AxisNumber(Kind[Dimension]):
    """The number of a dimension, or none."""

    called: ClassVar[str] = "axis"
    called_in_tables: ClassVar[str] = "axes"

    _WORDS: ClassVar[Choice[str]] = Choice("none", *map(str, range(_LARGEST_AXIS + 1)))

    @property
    def choices(self) -> tuple[str, ...]:
        """None, and the numbers."""
        return self._WORDS.choices

    def parse(self, value: object) -> Dimension:
        """A number, also as text, or none."""
        is_number = isinstance(value, int) and not isinstance(value, bool)
        word = self._WORDS.parse(str(value) if is_number else value)
        return "none" if word == "none" else int(word)

    def entry(self, value: Dimension) -> str:
        """The number as text, or none."""
        return str(value)


def _on_change(what: str) -> str:
    return (
        f"Put a tensor together before it {what}. It is cut again behind. If not, parts cross over."
    )


@inheritable
class BatchOptions:
    """The cut of a batch into parts that run one after another."""

    batch_serialization_axes: FrozenTable[Dimension] = option(
        Table(AxisNumber(), "from names to numbers of dimensions, or none"),
        FrozenTable(),
        "Dimension along which an input is cut. A table from names or patterns of inputs to "
        "the number of the dimension, or none for an input that all parts read as a whole. "
        "An input that it does not name is cut along dimension 0 if that is as long as that "
        "of most other inputs. In TOML: [batch_serialization_axes] hidden = 1; with --set: "
        "batch_serialization_axes.hidden=1.",
    )
    batch_serialization_batch_schedule: PartsSchedule = option(
        Choice(*PartsSchedule),
        PartsSchedule.ISOMORPHIC,
        "Order in which the ops of parts run. The parts follow each other. Scheduler leaves "
        "the order within each part to the scheduler, isomorphic lets all parts follow the "
        "order of the first. With overlap_on_io and overlap_on_compute what fetches the next "
        "part runs before what stores the current one; with overlap_on_compute also before "
        "anything of the current one is computed.",
        popart="batchSerializationSettings.batchSchedule",
    )
    batch_serialization_concat_on_execution_phase_change: bool = option(
        Truth(),
        True,
        _on_change("goes to another execution phase"),
        popart="batchSerializationSettings.concatOnExecutionPhaseChange",
    )
    batch_serialization_concat_on_pipeline_stage_change: bool = option(
        Truth(),
        True,
        _on_change("goes to another pipeline stage"),
        popart="batchSerializationSettings.concatOnPipelineStageChange",
    )
    batch_serialization_concat_on_virtual_graph_change: bool = option(
        Truth(),
        True,
        _on_change("goes to another virtual graph"),
        popart="batchSerializationSettings.concatOnVirtualGraphChange",
    )
    batch_serialization_factor: int = option(
        Whole(high=1 << 16),
        0,
        "Number of parts into which the batch is cut. Each part goes through the ops that do "
        "not mix samples by itself, so that only one part's intermediate results take memory at "
        "a time. It must divide the batch. With 0 or 1 the batch stays whole.",
        popart="batchSerializationSettings.factor",
    )
    batch_serialization_method: PartsMethod = option(
        Choice(*PartsMethod),
        PartsMethod.UNROLL_DYNAMIC,
        "Form of the program for the parts. unroll_dynamic repeats the ops, and reads and "
        "writes parts with slices that differ in an index only; unroll_static reads parts with "
        "plain slices, which are free, and joins them; loop makes one loop over the parts, which "
        "is written out as unroll_dynamic does it where batch_serialization_batch_schedule lets "
        "parts overlap.",
        popart="batchSerializationSettings.method",
    )
    batch_serialization_transform_context: PartsContext = option(
        Choice(*PartsContext, synonyms={"forward": PartsContext.FWD, "backward": PartsContext.BWD}),
        PartsContext.FWD,
        "Time at which the batch is cut: before the backward pass is added (fwd) or after it "
        "(bwd). With fwd the backward pass works on parts by itself. Without training there is "
        "no difference.",
        popart="batchSerializationSettings.transformContext",
    )

    @property
    def cuts_batch(self) -> bool:
        """True if the batch is cut at all."""
        return self.batch_serialization_factor > 1

    @property
    def method_for_parts(self) -> PartsMethod:
        """The method, but for parts that are to overlap: these are repeated, not in a loop."""
        if self.batch_serialization_batch_schedule in OVERLAPPING:
            in_loop = self.batch_serialization_method is PartsMethod.LOOP
            return PartsMethod.UNROLL_DYNAMIC if in_loop else self.batch_serialization_method
        return self.batch_serialization_method

    def batch_axis(self, name: str) -> Dimension | None:
        """The dimension of an input that is its batch; ``None`` if nothing is said."""
        return self.batch_serialization_axes.matching(name)
