"""The options about replicas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from popc.options.schedule_options import ScheduleOptions
from popc.options.schema import described
from popc.options.table import FrozenTable
from popc_runtime.format import MAX_REPLICAS

__all__ = ["ReplicaGroups", "ReplicationOptions"]

_KINDS: Final = ("all", "none", "consecutive", "orthogonal")
_SIZED: Final = ("consecutive", "orthogonal")
_PATTERN: Final = "all, none, consecutive:N or orthogonal:N"


@dataclass(frozen=True, slots=True)
class ReplicaGroups:
    """How replicas are divided into groups.

    Attributes:
        kind: "all" (one group), "none" (each replica by itself), "consecutive" (neighbours) or
            "orthogonal" (as far apart as groups of the size allow).
        size: Replicas per group of the last two kinds.
    """

    kind: str = "all"
    size: int = 0

    @classmethod
    def parse(cls, value: object) -> ReplicaGroups:
        """From text such as ``consecutive:2``.

        Raises:
            ValueError: says what is wrong, as what follows the name of the option.
        """
        if isinstance(value, cls):
            return value
        kind, separator, size = value.partition(":") if isinstance(value, str) else ("", "", "")
        kind = kind.strip().lower()
        sized = kind in _SIZED
        if kind not in _KINDS or bool(separator) != sized:
            raise ValueError(f"is {value!r}, but must be {_PATTERN}")
        if sized and not (size.strip().isdecimal() and int(size) > 0):
            raise ValueError(f"is {value!r}, but N in {_PATTERN} must be a positive whole number")
        return cls(kind, int(size) if sized else 0)

    def problem(self, replicas: int) -> str:
        """Why ``replicas`` cannot be divided so, as a clause; empty if they can."""
        if self.kind in _SIZED and replicas % self.size:
            return f"{replicas} replicas cannot be divided into groups of {self.size}"
        return ""

    def members(self, replicas: int) -> int:
        """How many replicas are in one group."""
        if self.kind in _SIZED:
            return self.size
        return 1 if self.kind == "none" else replicas

    def stride(self, replicas: int) -> int:
        """How far apart the numbers of neighbours in a group are."""
        return replicas // self.size if self.kind == "orthogonal" else 1

    def numbers(self, replicas: int) -> tuple[int, ...]:
        """The number of each replica's group, in order of replicas."""
        size, stride = self.members(replicas), self.stride(replicas)
        return tuple(
            replica // (size * stride) * stride + replica % stride for replica in range(replicas)
        )

    def __str__(self) -> str:
        return f"{self.kind}:{self.size}" if self.kind in _SIZED else self.kind


_NO_GROUPS: Final[FrozenTable[ReplicaGroups]] = FrozenTable()
_NO_MODES: Final[FrozenTable[str]] = FrozenTable()


@dataclass(frozen=True, slots=True)
class ReplicationOptions(ScheduleOptions):
    """How many replicas there are, and what they share."""

    distributed_batch_norm_replica_group_size: int = field(
        default=1,
        metadata=described(
            "int",
            "How many neighbouring replicas share the statistics of a batch normalisation. 1 lets "
            "each normalise by those of its own micro-batch. It must divide "
            "replicated_graph_count. Normalisations in training mode only.",
            low=1,
            high=MAX_REPLICAS,
        ),
    )
    identical_replica_seeds: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Let all replicas draw the same random numbers. If not, each has a sequence of its "
            "own.",
        ),
    )
    merge_all_gather_collectives: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Make one exchange of neighbouring all-gathers.",
            popart="replicatedCollectivesSettings.mergeAllGatherCollectives",
        ),
    )
    merge_all_reduce_collectives: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Make one exchange of neighbouring all-reduces. Those of the gradients are such: fewer "
            "exchanges, more live memory.",
            popart="replicatedCollectivesSettings.mergeAllReduceCollectives",
        ),
    )
    merge_reduce_scatter_collectives: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Make one exchange of neighbouring reduce-scatters.",
            popart="replicatedCollectivesSettings.mergeReduceScatterCollectives",
        ),
    )
    prepare_schedule_for_merging_collectives: bool = field(
        default=False,
        metadata=described(
            "bool",
            "Bring exchanges that do not depend on each other together. So the options "
            "merge_..._collectives find them as neighbours. Without, only those are merged between "
            "which nothing else is computed.",
            popart="replicatedCollectivesSettings.prepareScheduleForMergingCollectives",
        ),
    )
    replicated_graph_count: int = field(
        default=1,
        metadata=described(
            "int",
            "How many replicas of the program run side by side, each on data of its own. Weights "
            "stay equal, because gradients are added up or averaged over the replicas. Inputs and "
            "outputs get a dimension of this size, after that of accumulation_factor, if it is "
            "larger than 1.",
            low=1,
            high=MAX_REPLICAS,
            popart="replicatedGraphCount",
        ),
    )
    replicated_stream_mode: FrozenTable[str] = field(
        default=_NO_MODES,
        metadata=described(
            "choices",
            "What replicas take from an input. A table from names or patterns of inputs to "
            "replicate (each takes the next sample; the default) or broadcast (all take the same "
            'sample). In TOML: [replicated_stream_mode] mask = "broadcast"; with --set: '
            "replicated_stream_mode.mask=broadcast.",
            choices=("replicate", "broadcast"),
        ),
    )
    variable_settings: FrozenTable[ReplicaGroups] = field(
        default=_NO_GROUPS,
        metadata=described(
            "groups",
            "Which replicas share a weight. A table from names or patterns of weights to all (the "
            "default), none (each replica has its own), consecutive:N or orthogonal:N (groups of "
            "N neighbours, or of N as far apart as possible). Gradients are reduced within the "
            "groups; the host reads and writes one row per group. The first pattern that fits, in "
            'alphabetical order, counts. In TOML: [variable_settings] "expert*" = "none".',
        ),
    )

    def stream_mode(self, name: str) -> str:
        """What replicas take from an input: "replicate" or "broadcast"."""
        return self.replicated_stream_mode.matching(name) or "replicate"

    def replica_groups(self, variable: str) -> ReplicaGroups:
        """Which replicas share a variable."""
        return self.variable_settings.matching(variable) or ReplicaGroups()
