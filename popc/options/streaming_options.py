"""Options about execution phases and about where tensors are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from popc.options.locations import Settings, TensorLocation
from popc.options.placement_options import PlacementOptions
from popc.options.schema import described
from popc.options.table import FrozenTable

__all__ = ["KINDS", "StreamingOptions"]

# The kinds of tensors that have a location of their own.
KINDS: Final = ("weight", "optimizer_state", "accumulator", "activation")

_NOTHING: Final[Settings] = FrozenTable()
_NO_OVERRIDES: Final[FrozenTable[Settings]] = FrozenTable()

_SETTINGS: Final = (
    "A table with some of storage (on_chip or off_chip: in streaming memory), load_tile_set and "
    "storage_tile_set (compute or io), replicated_tensor_sharding (whether replicas divide it "
    "among them), sharding_domain (those that do: all, consecutive:N or orthogonal:N), "
    "min_elements_for_off_chip (2) and min_elements_for_replicated_tensor_sharding (8192)."
)


@dataclass(frozen=True, slots=True)
class StreamingOptions(PlacementOptions):
    """What is kept in streaming memory, and when it is fetched."""

    accumulator_io_schedule: str = field(
        default="preload",
        metadata=described(
            "choice",
            "When sums of gradients are fetched from streaming memory. Preload: in the execution "
            "phase before that which needs them; on_demand: in that one. Needs execution_phases.",
            choices=("preload", "on_demand"),
            synonyms=(("ondemand", "on_demand"),),
            popart="executionPhaseSettings.accumulatorIOSchedule",
        ),
    )
    accumulator_tensor_location: Settings = field(
        default=_NOTHING,
        metadata=described(
            "location",
            "Where sums of gradients are kept between micro-batches. Off chip they are fetched "
            f"and stored in each. {_SETTINGS} They are never divided. Training with "
            "accumulation_factor > 1 only.",
            popart="accumulatorTensorLocationSettings",
        ),
    )
    activation_io_schedule: str = field(
        default="preload",
        metadata=described(
            "choice",
            "When activations are fetched from streaming memory. Preload: in the execution phase "
            "before that which needs them; on_demand: in that one. Needs execution_phases.",
            choices=("preload", "on_demand"),
            synonyms=(("ondemand", "on_demand"),),
            popart="executionPhaseSettings.activationIOSchedule",
        ),
    )
    activation_tensor_location: Settings = field(
        default=_NOTHING,
        metadata=described(
            "location",
            "Where results of the forward pass are kept until the backward pass needs them. Off "
            "chip they are stored once they have been computed, and fetched when they are used. "
            f"{_SETTINGS} They are never divided. Training only.",
            popart="activationTensorLocationSettings",
        ),
    )
    enable_merge_exchange: bool = field(
        default=True,
        metadata=described(
            "bool",
            "Make one exchange of neighbouring transfers from and to streaming memory. They are "
            "those between which nothing is computed; so they wait for each other once.",
            popart="enableMergeExchange",
        ),
    )
    execution_phase_schedule: str = field(
        default="interleaving",
        metadata=described(
            "choice",
            "In which order the transfers of an execution phase take place. Interleaving fetches "
            "first, and leaves it to the scheduler in which order weights are updated and stored; "
            "batch makes each step for all weights before the next; batch_clustered_io also puts "
            "what is fetched at the beginning of a phase. Needs execution_phases.",
            choices=("interleaving", "batch", "batch_clustered_io"),
            synonyms=(("batchclusteredio", "batch_clustered_io"),),
            popart="executionPhaseSettings.schedule",
        ),
    )
    execution_phase_stages: int = field(
        default=2,
        metadata=described(
            "int",
            "Between how many chips execution phases alternate. With 2, a chip fetches what its "
            "next phase needs while the other one computes. Needs execution_phases.",
            low=1,
            high=2,
            popart="executionPhaseSettings.stages",
        ),
    )
    execution_phases: int = field(
        default=0,
        metadata=described(
            "int",
            "Into how many parts the forward pass is divided, by bytes of weights. They run one "
            "after the other, and then those of the backward pass in the opposite order; "
            "tensors that are kept off chip are fetched for the phases that need them. The "
            "attribute __execution_phase of a node, or execution_phase of annotate, says to which "
            "it belongs. Needs virtual_graph_mode = execution_phases. 0 or 1: none.",
            high=1 << 16,
            popart="executionPhaseSettings.phases",
        ),
    )
    optimizer_state_io_schedule: str = field(
        default="on_demand",
        metadata=described(
            "choice",
            "When the state of the optimizer is fetched from streaming memory. Preload: in the "
            "execution phase before that which needs it; on_demand: in that one. Needs "
            "execution_phases.",
            choices=("preload", "on_demand"),
            synonyms=(("ondemand", "on_demand"),),
            popart="executionPhaseSettings.optimizerStateIOSchedule",
        ),
    )
    optimizer_state_tensor_location: Settings = field(
        default=_NOTHING,
        metadata=described(
            "location",
            "Where the state of the optimizer is kept between updates. Off chip it is fetched for "
            "the update and stored afterwards. Divided, each replica updates its part of every "
            "weight, and the parts are gathered: less memory, as much exchange; results stay the "
            "same but for the order in which norms of LAMB and of clipping are added up, and state "
            f"that does not start as zeros stays whole. {_SETTINGS} Training only.",
            popart="optimizerStateTensorLocationSettings",
        ),
    )
    tensor_location_override: FrozenTable[Settings] = field(
        default=_NO_OVERRIDES,
        metadata=described(
            "locations",
            "Where single tensors are kept. A table from names or patterns of tensors (w, "
            "Accl1___w, block*.out) to settings as those of weight_tensor_location, or to words: "
            "on_chip, off_chip, sharded, whole. They replace what the options for their kind say; "
            "the first pattern that fits, in alphabetical order, counts. In TOML: "
            '[tensor_location_override] "w*" = "off_chip"; with --set: '
            "tensor_location_override.w=off_chip.",
            popart="tensorLocationSettingsOverride",
        ),
    )
    weight_io_schedule: str = field(
        default="preload",
        metadata=described(
            "choice",
            "When weights are fetched from streaming memory. Preload: in the execution phase "
            "before that which needs them; on_demand: in that one. Needs execution_phases.",
            choices=("preload", "on_demand"),
            synonyms=(("ondemand", "on_demand"),),
            popart="executionPhaseSettings.weightIOSchedule",
        ),
    )
    weight_tensor_location: Settings = field(
        default=_NOTHING,
        metadata=described(
            "location",
            "Where weights are kept. Off chip they are fetched when the forward pass needs them, "
            "once more for the backward pass, and stored after the update. Divided, each replica "
            "keeps and updates a part, and the parts are gathered for each use. "
            f'{_SETTINGS} In TOML: [weight_tensor_location] storage = "off_chip"; with --set: '
            "weight_tensor_location.storage=off_chip.",
            popart="weightTensorLocationSettings",
        ),
    )

    def tensor_location(
        self, kind: str, name: str = "", annotated: Settings = _NOTHING
    ) -> TensorLocation:
        """Where a tensor is kept.

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
        """Whether there are execution phases."""
        return self.execution_phases > 1

    def io_schedule(self, kind: str) -> str:
        """When tensors of a kind are fetched: "preload" or "on_demand"."""
        schedule: str = getattr(self, f"{kind}_io_schedule")
        return schedule

    def location_override(self, name: str) -> Mapping[str, Any]:
        """What is said of the tensor ``name`` alone."""
        table = self.tensor_location_override
        if name in table:
            return table[name]
        return next((one for key, one in table.items() if fnmatchcase(name, key)), _NOTHING)

    def locations_in_use(self) -> Iterator[tuple[str, TensorLocation]]:
        """The locations that differ from the default, with what they are called."""
        for kind in KINDS:
            if getattr(self, f"{kind}_tensor_location"):
                yield f"{kind}_tensor_location", self.tensor_location(kind)
        for name, settings in self.tensor_location_override.items():
            yield f"tensor_location_override of {name!r}", TensorLocation(**settings)
