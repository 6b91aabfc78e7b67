"""Options about replicas that do not go together with others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from popc.options.options import Options

__all__ = ["conflicts"]


_MERGERS: Final = ("all_gather", "all_reduce", "reduce_scatter")


def conflicts(options: Options) -> Iterator[str]:
    """Groups that replicas cannot be divided into, and merging that is not wanted."""
    replicas = options.replicated_graph_count
    for pattern, groups in options.variable_settings.items():
        problem = groups.problem(replicas)
        if problem:
            yield f"variable_settings of {pattern!r}: {problem}, of replicated_graph_count"
    size = options.distributed_batch_norm_replica_group_size
    if replicas % size:
        yield (
            f"distributed_batch_norm_replica_group_size is {size}, which does not divide "
            f"replicated_graph_count, {replicas}"
        )
    for name in _MERGERS:
        if getattr(options, f"merge_{name}_bytes") and not getattr(
            options, f"merge_{name}_collectives"
        ):
            yield (
                f"merge_{name}_bytes bounds exchanges that are merged, but "
                f"merge_{name}_collectives is false: set it too"
            )
    merging = any(getattr(options, f"merge_{name}_collectives") for name in _MERGERS)
    if options.prepare_schedule_for_merging_collectives and not merging:
        listed = ", ".join(f"merge_{name}_collectives" for name in _MERGERS)
        yield (
            "prepare_schedule_for_merging_collectives has no effect by itself: set one of "
            f"{listed} too"
        )
