"""Options about batch serialization."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from popc.options.schema import described
from popc.options.streaming_options import StreamingOptions
from popc.options.table import FrozenTable

__all__ = ["BatchOptions"]

_NO_AXES: Final[FrozenTable[str]] = FrozenTable()
_LARGEST_AXIS: Final = 7


def _on_change(what: str) -> str:
    return (
        f"Put a tensor together before it {what}. It is cut again behind. If not, parts cross over."
    )


@dataclass(frozen=True, slots=True)
class BatchOptions(StreamingOptions):
    """How a batch is cut into parts that run one after another."""

    batch_serialization_axes: FrozenTable[str] = field(
        default=_NO_AXES,
        metadata=described(
            "axes",
            "Along which dimension an input is cut. A table from names or patterns of inputs to "
            "the number of the dimension, or none for an input that all parts read as a whole. "
            "An input that it does not name is cut along dimension 0 if that is as long as that "
            "of most other inputs. In TOML: [batch_serialization_axes] hidden = 1; with --set: "
            "batch_serialization_axes.hidden=1.",
            choices=("none", *map(str, range(_LARGEST_AXIS + 1))),
        ),
    )
    batch_serialization_batch_schedule: str = field(
        default="isomorphic",
        metadata=described(
            "choice",
            "In which order the ops of parts run. The parts follow each other. Scheduler leaves "
            "the order within each part to the scheduler, isomorphic lets all parts follow the "
            "order of the first. With overlap_on_io and overlap_on_compute what fetches the next "
            "part runs before what stores the current one; with overlap_on_compute also before "
            "anything of the current one is computed.",
            choices=("scheduler", "isomorphic", "overlap_on_io", "overlap_on_compute"),
            popart="batchSerializationSettings.batchSchedule",
        ),
    )
    batch_serialization_concat_on_execution_phase_change: bool = field(
        default=True,
        metadata=described(
            "bool",
            _on_change("goes to another execution phase"),
            popart="batchSerializationSettings.concatOnExecutionPhaseChange",
        ),
    )
    batch_serialization_concat_on_pipeline_stage_change: bool = field(
        default=True,
        metadata=described(
            "bool",
            _on_change("goes to another pipeline stage"),
            popart="batchSerializationSettings.concatOnPipelineStageChange",
        ),
    )
    batch_serialization_concat_on_virtual_graph_change: bool = field(
        default=True,
        metadata=described(
            "bool",
            _on_change("goes to another virtual graph"),
            popart="batchSerializationSettings.concatOnVirtualGraphChange",
        ),
    )
    batch_serialization_factor: int = field(
        default=0,
        metadata=described(
            "int",
            "Into how many parts the batch is cut. Each part goes through the ops that do not mix "
            "samples by itself, so that only one part's intermediate results take memory at a "
            "time. It must divide the batch. With 0 or 1 the batch stays whole.",
            high=1 << 16,
            popart="batchSerializationSettings.factor",
        ),
    )
    batch_serialization_method: str = field(
        default="unroll_dynamic",
        metadata=described(
            "choice",
            "What becomes of the parts. unroll_dynamic repeats the ops, and reads and writes parts "
            "with slices that differ in an index only; unroll_static reads parts with plain "
            "slices, which are free, and joins them; loop makes one loop over the parts.",
            choices=("unroll_dynamic", "unroll_static", "loop"),
            popart="batchSerializationSettings.method",
        ),
    )
    batch_serialization_transform_context: str = field(
        default="fwd",
        metadata=described(
            "choice",
            "When the batch is cut: before the backward pass is added (fwd) or behind it (bwd). "
            "With fwd the backward pass works on parts by itself. Without training there is no "
            "difference.",
            choices=("fwd", "bwd"),
            synonyms=(("forward", "fwd"), ("backward", "bwd")),
            popart="batchSerializationSettings.transformContext",
        ),
    )

    @property
    def cuts_batch(self) -> bool:
        """Whether the batch is cut at all."""
        return self.batch_serialization_factor > 1

    def batch_axis(self, name: str) -> int | str | None:
        """The dimension of an input that is its batch, "none", or ``None`` if nothing is said."""
        table = self.batch_serialization_axes
        patterns = (name, *(one for one in table if fnmatchcase(name, one)))
        found = next((table[one] for one in patterns if one in table), None)
        return int(found) if found is not None and found != "none" else found

    def batch_conflicts(self) -> Iterator[str]:
        """What is wrong with the settings as a whole."""
        schedule, method = self.batch_serialization_batch_schedule, self.batch_serialization_method
        if method == "loop" and schedule.startswith("overlap"):
            yield (
                f"batch_serialization_batch_schedule is {schedule}, but parts that "
                "batch_serialization_method, loop, puts into a loop cannot overlap: choose "
                "unroll_static or unroll_dynamic, or the schedule isomorphic"
            )
        for place in ("execution_phase", "pipeline_stage", "virtual_graph"):
            name = f"batch_serialization_concat_on_{place}_change"
            if method == "loop" and not getattr(self, name):
                yield (
                    f"{name} is false, but the loops of batch_serialization_method end where the "
                    f"{place.replace('_', ' ')} changes: choose unroll_static or unroll_dynamic, "
                    f"or leave {name} true"
                )
