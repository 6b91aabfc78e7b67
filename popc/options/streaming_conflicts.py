"""What contradicts what in the options about streaming memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from popc.options.options import Options

__all__ = ["streaming_conflicts"]

_WHOLE_KINDS = ("accumulator", "activation")


def streaming_conflicts(options: Options) -> Iterator[str]:
    """Locations that cannot be, a sentence each."""
    replicas = options.replicated_graph_count
    for kind in _WHOLE_KINDS:
        if options.tensor_location(kind).replicated_tensor_sharding:
            yield (
                f"{kind}_tensor_location divides tensors among replicas "
                "(replicated_tensor_sharding), but only weights and the state of the optimizer can "
                "be divided: leave it out"
            )
    for what, location in options.locations_in_use():
        if location.replicated_tensor_sharding and replicas == 1:
            yield (
                f"{what} divides tensors among replicas (replicated_tensor_sharding), but "
                "replicated_graph_count is 1: set it, or leave replicated_tensor_sharding out"
            )
        problem = location.sharding_domain.problem(replicas)
        if problem:
            yield f"{what}: sharding_domain: {problem}, of replicated_graph_count"
        if location.sharding_domain.kind == "none":
            yield (
                f"{what}: sharding_domain is none, so that nobody shares anything: set "
                "replicated_tensor_sharding to false instead"
            )
        if "io" in (location.load_tile_set, location.storage_tile_set) and not options.num_io_tiles:
            yield (
                f"{what} names the io tiles, but num_io_tiles is 0: set it, or choose the tile set "
                "compute"
            )
