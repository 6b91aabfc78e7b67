"""Options about execution phases and about where tensors are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from popc.options.kinds import Choice, Table, Truth, Whole
from popc.options.locations import LocationKind, Settings, SettledLocationKind, TensorLocation
from popc.options.schema import option
from popc.options.table import FrozenTable
from popc_runtime.ground.frozen import inheritable

__all__ = ["KINDS", "IoSchedule", "PhaseSchedule", "StreamingOptions"]


class IoSchedule(StrEnum):
    """The time when tensors are fetched: one execution phase early, or not."""

    PRELOAD = "preload"
    ON_DEMAND = "on_demand"


class PhaseSchedule(StrEnum):
    """In which order the transfers of an execution phase take place."""

    INTERLEAVING = "interleaving"
    BATCH = "batch"
    BATCH_CLUSTERED_IO = "batch_clustered_io"


# The kinds of tensors that have a location of their own.
KINDS: Final = ("weight", "optimizer_state", "accumulator", "activation")

_NOTHING: Final[Settings] = FrozenTable()

_SETTINGS: Final = (
    "A table with some of storage (on_chip; off_chip: in streaming memory; when_needed: there if "
    "the busiest tile of the target has not enough memory otherwise), load_tile_set and "
    "storage_tile_set (compute or io), replicated_tensor_sharding (whether replicas divide it "
    "among them), sharding_domain (those that do: all, consecutive:N or orthogonal:N), "
    "min_elements_for_off_chip (2) and min_elements_for_replicated_tensor_sharding (8192)."
)


@inheritable
class StreamingOptions:
    """The tensors kept in streaming memory, and the times when they are fetched."""

    accumulate_lookup_rows: bool = option(
        Truth(),
        False,
        "Keep the gradients of looked-up rows of all micro-batches, and add them up at the end. "
        "Otherwise they are added to a gradient of the whole table. So a table off chip that "
        "plain SGD trains is updated row by row with accumulation_factor, too. Where rows are "
        "looked up several times, sums may be rounded differently. Has no effect on tables of "
        "fewer rows than are looked up.",
    )
    accumulator_io_schedule: IoSchedule = option(
        Choice(*IoSchedule),
        IoSchedule.PRELOAD,
        "When sums of gradients are fetched from streaming memory. Preload: in the execution "
        "phase before that which needs them; on_demand: in that one. Needs execution_phases.",
        popart="executionPhaseSettings.accumulatorIOSchedule",
    )
    accumulator_tensor_location: Settings = option(
        LocationKind(),
        _NOTHING,
        "Where sums of gradients are kept between micro-batches. Off chip they are fetched "
        f"and stored in each. {_SETTINGS} They are never divided. Training with "
        "accumulation_factor > 1 only.",
        popart="accumulatorTensorLocationSettings",
    )
    activation_io_schedule: IoSchedule = option(
        Choice(*IoSchedule),
        IoSchedule.PRELOAD,
        "When activations are fetched from streaming memory. Preload: in the execution phase "
        "before that which needs them; on_demand: in that one. Needs execution_phases.",
        popart="executionPhaseSettings.activationIOSchedule",
    )
    activation_tensor_location: Settings = option(
        LocationKind(),
        _NOTHING,
        "Where results of the forward pass are kept until the backward pass needs them. Off "
        "chip they are stored once they have been computed, and fetched when they are used. "
        f"{_SETTINGS} They are never divided. Training only.",
        popart="activationTensorLocationSettings",
    )
    enable_merge_exchange: bool = option(
        Truth(),
        True,
        "Make one exchange of neighbouring transfers from and to streaming memory. They are "
        "those between which nothing is computed; so they wait for each other once.",
        popart="enableMergeExchange",
    )
    merge_exchange_bytes: int = option(
        Whole(),
        0,
        "Most bytes that enable_merge_exchange, and group_host_sync, let one exchange transfer. 0 "
        "stands for no bound.",
    )
    execution_phase_schedule: PhaseSchedule = option(
        Choice(*PhaseSchedule),
        PhaseSchedule.INTERLEAVING,
        "Order of the transfers of an execution phase. Interleaving fetches "
        "first, and leaves it to the scheduler in which order weights are updated and stored; "
        "batch makes each step for all weights before the next; batch_clustered_io also puts "
        "what is fetched at the beginning of a phase. Needs execution_phases.",
        popart="executionPhaseSettings.schedule",
    )
    execution_phase_stages: int = option(
        Whole(low=1, high=2),
        2,
        "Number of chips between which execution phases alternate. With 2, a chip fetches what its "
        "next phase needs while the other one computes. Needs execution_phases.",
        popart="executionPhaseSettings.stages",
    )
    execution_phases: int = option(
        Whole(high=1 << 16),
        0,
        "Number of parts into which the forward pass is divided, by bytes of weights. They run one "
        "after the other, and then those of the backward pass in the opposite order; "
        "tensors that are kept off chip are fetched for the phases that need them. The "
        "attribute __execution_phase of a node, or execution_phase of annotate, says to which "
        "it belongs. Needs virtual_graph_mode = execution_phases. 0 or 1: none.",
        popart="executionPhaseSettings.phases",
    )
    optimizer_state_io_schedule: IoSchedule = option(
        Choice(*IoSchedule),
        IoSchedule.ON_DEMAND,
        "When the state of the optimizer is fetched from streaming memory. Preload: in the "
        "execution phase before that which needs it; on_demand: in that one. Needs "
        "execution_phases.",
        popart="executionPhaseSettings.optimizerStateIOSchedule",
    )
    optimizer_state_tensor_location: Settings = option(
        LocationKind(),
        _NOTHING,
        "Where the state of the optimizer is kept between updates. Off chip it is fetched for "
        "the update and stored afterwards. Divided, each replica updates its part of every "
        "weight, and the parts are gathered: less memory, as much exchange; results stay the "
        "same but for the order in which norms of LAMB and of clipping are added up, and state "
        f"that does not start as zeros stays whole. {_SETTINGS} Training only.",
        popart="optimizerStateTensorLocationSettings",
    )
    tensor_location_override: FrozenTable[Settings] = option(
        Table(SettledLocationKind(), "from tensors to where they are kept"),
        FrozenTable(),
        "Where single tensors are kept. A table from names or patterns of tensors (w, "
        "Accl1___w, block*.out) to settings as those of weight_tensor_location, or to words: "
        "on_chip, off_chip, sharded, whole. They replace what the options for their kind say; "
        "the first pattern that fits, in alphabetical order, counts. In TOML: "
        '[tensor_location_override] "w*" = "off_chip"; with --set: '
        "tensor_location_override.w=off_chip.",
        popart="tensorLocationSettingsOverride",
    )
    weight_io_schedule: IoSchedule = option(
        Choice(*IoSchedule),
        IoSchedule.PRELOAD,
        "When weights are fetched from streaming memory. Preload: in the execution phase "
        "before that which needs them; on_demand: in that one. Needs execution_phases.",
        popart="executionPhaseSettings.weightIOSchedule",
    )
    weight_tensor_location: Settings = option(
        LocationKind(),
        _NOTHING,
        "Where weights are kept. Off chip they are fetched when the forward pass needs them, "
        "once more for the backward pass, and stored after the update. Divided, each replica "
        "keeps and updates a part, and the parts are gathered for each use. "
        f'{_SETTINGS} In TOML: [weight_tensor_location] storage = "off_chip"; with --set: '
        "weight_tensor_location.storage=off_chip.",
        popart="weightTensorLocationSettings",
    )

    def tensor_location(
        self, kind: str, name: str = "", annotated: Settings = _NOTHING
    ) -> TensorLocation:
        """The place where a tensor is kept.

        Args:
            kind: One of `KINDS`.
            name: Its name, which may have settings of its own.
            annotated: What the node says that computes it.
        """
        settings: dict[str, Any] = dict(getattr(self, f"{kind}_tensor_location"))
        settings |= annotated
        settings |= self.location_override(name)
        return TensorLocation(**settings)

    @property
    def has_phases(self) -> bool:
        """True if there are execution phases."""
        return self.execution_phases > 1

    def io_schedule(self, kind: str) -> IoSchedule:
        """The time when tensors of a kind are fetched."""
        schedule: IoSchedule = getattr(self, f"{kind}_io_schedule")
        return schedule

    def location_override(self, name: str) -> Mapping[str, Any]:
        """The settings of the tensor ``name`` alone."""
        table = self.tensor_location_override
        if name in table:
            return table[name]
        return next((section for key, section in table.items() if fnmatchcase(name, key)), _NOTHING)

    def locations_in_use(self) -> Iterator[tuple[str, TensorLocation]]:
        """The locations that differ from the default, with what they are called."""
        for kind in KINDS:
            if getattr(self, f"{kind}_tensor_location"):
                yield f"{kind}_tensor_location", self.tensor_location(kind)
        for name, settings in self.tensor_location_override.items():
            yield f"tensor_location_override of {name!r}", TensorLocation(**settings)
