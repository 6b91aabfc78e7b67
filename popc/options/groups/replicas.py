"""Options about replicas."""

from __future__ import annotations

from enum import StrEnum

from popc.options.kinds import Choice, Table, Truth, Whole
from popc.options.replica_groups import GroupsKind, ReplicaGroups
from popc.options.schema import option
from popc.options.table import FrozenTable
from popc_runtime.format import MAX_REPLICAS
from popc_runtime.ground.frozen import inheritable

__all__ = ["ReplicaOptions", "StreamMode"]


class StreamMode(StrEnum):
    """The samples that replicas take from an input."""

    REPLICATE = "replicate"
    BROADCAST = "broadcast"


@inheritable
class ReplicaOptions:
    """The number of replicas, and what they share."""

    distributed_batch_norm_replica_group_size: int = option(
        Whole(low=1, high=MAX_REPLICAS),
        1,
        "Number of neighbouring replicas that share the statistics of a batch normalisation. 1 "
        "lets each normalise by those of its own micro-batch. It must divide "
        "replicated_graph_count. Normalisations in training mode only.",
    )
    identical_replica_seeds: bool = option(
        Truth(),
        False,
        "Let all replicas draw the same random numbers. If not, each has a sequence of its own.",
    )
    merge_all_gather_collectives: bool = option(
        Truth(),
        False,
        "Make one exchange of neighbouring all-gathers.",
        popart="replicatedCollectivesSettings.mergeAllGatherCollectives",
    )
    merge_all_gather_bytes: int = option(
        Whole(),
        0,
        "Most bytes of operands in an exchange that merge_all_gather_collectives makes. 0 stands "
        "for no bound.",
    )
    merge_all_reduce_bytes: int = option(
        Whole(),
        0,
        "Most bytes of operands in an exchange that merge_all_reduce_collectives makes. 0 stands "
        "for no bound. What waits to be exchanged takes memory.",
    )
    merge_all_reduce_collectives: bool = option(
        Truth(),
        False,
        "Make one exchange of neighbouring all-reduces. Those of the gradients are such: fewer "
        "exchanges, more live memory.",
        popart="replicatedCollectivesSettings.mergeAllReduceCollectives",
    )
    merge_reduce_scatter_collectives: bool = option(
        Truth(),
        False,
        "Make one exchange of neighbouring reduce-scatters.",
        popart="replicatedCollectivesSettings.mergeReduceScatterCollectives",
    )
    merge_reduce_scatter_bytes: int = option(
        Whole(),
        0,
        "Most bytes of operands in an exchange that merge_reduce_scatter_collectives makes. 0 "
        "stands for no bound.",
    )
    prepare_schedule_for_merging_collectives: bool = option(
        Truth(),
        False,
        "Bring exchanges that do not depend on each other together. So the options "
        "merge_..._collectives find them as neighbours. Without, only those are merged between "
        "which nothing else is computed.",
        popart="replicatedCollectivesSettings.prepareScheduleForMergingCollectives",
    )
    replicated_graph_count: int = option(
        Whole(low=1, high=MAX_REPLICAS),
        1,
        "Number of replicas of the program that run side by side, each on its own data. Weights "
        "stay equal, because gradients are added up or averaged over the replicas. Inputs and "
        "outputs get a dimension of this size, after that of accumulation_factor, if it is "
        "larger than 1.",
        popart="replicatedGraphCount",
    )
    replicated_stream_mode: FrozenTable[StreamMode] = option(
        Table(Choice(*StreamMode), "from names to replicate or broadcast"),
        FrozenTable(),
        "Samples that replicas take from an input. A table from names or patterns of inputs to "
        "replicate (each takes the next sample; the default) or broadcast (all take the same "
        'sample). In TOML: [replicated_stream_mode] mask = "broadcast"; with --set: '
        "replicated_stream_mode.mask=broadcast.",
    )
    variable_settings: FrozenTable[ReplicaGroups] = option(
        Table(GroupsKind(), "from weights to groups of replicas"),
        FrozenTable(),
        "Replicas that share a weight. A table from names or patterns of weights to all (the "
        "default), none (each replica has its own), consecutive:N or orthogonal:N (groups of "
        "N neighbours, or of N as far apart as possible). Gradients are reduced within the "
        "groups; the host reads and writes one row per group. The first pattern that fits, in "
        'alphabetical order, counts. In TOML: [variable_settings] "expert*" = "none".',
    )

    def stream_mode(self, name: str) -> StreamMode:
        """The samples that replicas take from an input."""
        return self.replicated_stream_mode.matching(name) or StreamMode.REPLICATE

    def replica_groups(self, variable: str) -> ReplicaGroups:
        """The groups of replicas that share a variable."""
        return self.variable_settings.matching(variable) or ReplicaGroups()
