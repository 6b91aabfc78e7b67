"""The replicas that one process runs, and what of the streams is theirs."""

from __future__ import annotations

from popc_runtime.errors import UsageError
from popc_runtime.format import (
    Instruction,
    Manifest,
    ProgramImage,
    ProgramSpec,
    StreamDirection,
    StreamSpec,
    TensorSpec,
    instructions_of,
)
from popc_runtime.ground.frozen import frozen, replace
from popc_runtime.ground.hints import Any
from popc_runtime.groups.group import Group

__all__ = ["ReplicaShare", "local_manifest"]


@frozen
class ReplicaShare:
    """The replicas of one process.

    Attributes:
        first: The number of the first of them.
        count: How many it runs.
        total: How many all processes run together.
        common: The inputs of which all replicas are given the same.
        group: The processes; ``None`` if there is only this one.
    """

    first: int
    count: int
    total: int
    common: frozenset[str] = frozenset()
    group: Group | None = None

    @classmethod
    def of(cls, manifest: Manifest, image: ProgramImage, group: Group) -> ReplicaShare:
        """The share of a process.

        Raises:
            UsageError: the processes cannot divide the replicas evenly.
        """
        total, size = manifest.replicas, group.size
        if total % size:
            fitting = [str(count) for count in range(1, total + 1) if total % count == 0]
            raise UsageError(
                f"the archive has {total} replica{'s' * (total > 1)}, which {size} processes "
                "cannot divide evenly",
                hint=f"start {' or '.join(fitting)} process{'es' * (total > 1)}, or compile with "
                f"replicated_graph_count = {size} or a multiple",
            )
        count = total // size
        common = frozenset(
            str(item.attributes["stream"])
            for block in image.programs.values()
            for item in instructions_of(block)
            if _is_broadcast(item)
        )
        return cls(group.rank * count, count, total, common, group)

    def rank_of(self, replica: int) -> int:
        """The process that runs a replica."""
        return replica // self.count

    @property
    def own(self) -> range:
        """The numbers of the replicas."""
        return range(self.first, self.first + self.count)


def local_manifest(manifest: Manifest, share: ReplicaShare) -> Manifest:
    """A manifest whose streams are those of one process.

    Inputs and outputs keep their dimension for replicas, which counts those of the process; what is
    broadcast to all replicas is given to every process.
    """
    if share.count == share.total:
        return manifest
    variants = tuple(replace(each, **_local(each, share)) for each in manifest.variants)
    return replace(manifest, variants=variants, **_local(manifest, share))


def _local(program: Manifest | ProgramSpec, share: ReplicaShare) -> dict[str, Any]:
    ranks = {(stream.direction, stream.name): len(stream.shape) for stream in program.streams}
    own = {
        spec.name: ranks[StreamDirection.INPUT, spec.name]
        for spec in program.inputs
        if spec.name not in share.common
    }
    return {
        "inputs": tuple(
            _tensor(spec, own[spec.name], share) if spec.name in own else spec
            for spec in program.inputs
        ),
        "outputs": tuple(
            _tensor(spec, ranks[StreamDirection.OUTPUT, spec.name], share)
            for spec in program.outputs
        ),
        "streams": tuple(_stream(stream, share) for stream in program.streams),
    }


def _is_broadcast(item: Instruction) -> bool:
    return item.opcode == "HostLoad" and bool(item.attributes.get("broadcast"))


def _stream(stream: StreamSpec, share: ReplicaShare) -> StreamSpec:
    if stream.direction is StreamDirection.INPUT and stream.name in share.common:
        return stream
    samples = stream.samples_per_step // share.total * share.count
    return replace(stream, samples_per_step=samples)


def _tensor(spec: TensorSpec, rank: int, share: ReplicaShare) -> TensorSpec:
    axis = len(spec.shape) - rank - 1
    assert spec.shape[axis] == share.total, f"{spec} has its samples in another order"
    shape = (*spec.shape[:axis], share.count, *spec.shape[axis + 1 :])
    return replace(spec, shape=shape)
