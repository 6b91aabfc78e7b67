"""Groups of replicas, and how they hold variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from popc.popart.calls import constructed, native
from popc.popart.enums import CommGroupType, VariableRetrievalMode
from popc.popart.errors import popart_exception, popart_internal_exception

__all__ = ["CommGroup", "ReplicaGrouping", "VariableSettings"]


class ReplicaGrouping:
    """Replicas in groups of ``groupSize`` that lie ``stride`` apart; one group if only a number.

    Raises:
        popart_exception: a number is not positive, or the groups do not divide the replicas.
    """

    __slots__ = ("_replicas", "_size", "_stride")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._replicas = self._stride = self._size = 1
        forms = (ReplicaGrouping._strided, ReplicaGrouping._whole)
        constructed(self, forms, args, kwargs)

    def _strided(self, numReplicas: int, stride: int, groupSize: int) -> None:
        if min(numReplicas, stride, groupSize) <= 0:
            raise popart_exception(
                f"[ReplicaGrouping] The number of replicas ({numReplicas}), the stride ({stride}) "
                f"and the group size ({groupSize}) must be positive."
            )
        stride = 1 if groupSize == 1 else stride
        if numReplicas % (stride * groupSize):
            raise popart_exception(
                f"[ReplicaGrouping] The number of replicas ({numReplicas}) must be divisible by "
                f"stride ({stride}) times group size ({groupSize})."
            )
        self._replicas, self._stride, self._size = numReplicas, stride, groupSize

    def _whole(self, numReplicas: int) -> None:
        self._strided(numReplicas, 1, numReplicas)

    def getNumReplicas(self) -> int:
        """The number of replicas."""
        return self._replicas

    def getStride(self) -> int:
        """The distance between neighbours of a group."""
        return self._stride

    def getGroupSize(self) -> int:
        """The number of replicas in a group."""
        return self._size

    def getNumGroups(self) -> int:
        """The number of groups."""
        return self._replicas // self._size

    def _check(self, index: int, limit: int, what: str) -> None:
        if not 0 <= index < limit:
            raise popart_exception(
                f"[ReplicaGrouping] {what} {index} is not in the range 0 to {limit - 1}."
            )

    @native
    def getGroupAt(self, replica: int) -> int:
        """The group of a replica."""
        self._check(replica, self._replicas, "Replica")
        block = self._stride * self._size
        return replica % self._stride + self._stride * (replica // block)

    @native
    def getIndexInGroupAt(self, replica: int) -> int:
        """The place of a replica in its group."""
        self._check(replica, self._replicas, "Replica")
        return replica // self._stride % self._size

    @native
    def getReplicaAt(self, group: int, index: int) -> int:
        """The replica at a place of a group."""
        self._check(group, self.getNumGroups(), "Group")
        self._check(index, self._size, "Index")
        block = self._stride * self._size
        return group // self._stride * block + group % self._stride + index * self._stride

    @native
    def getReplicasAt(self, group: int) -> list[int]:
        """The replicas of a group."""
        return [self.getReplicaAt(group, index) for index in range(self._size)]

    def getTranspose(self) -> ReplicaGrouping:
        """The groups of those that have the same place in their groups.

        Raises:
            popart_exception: they are not evenly spaced.
        """
        groups = self.getNumGroups()
        if self._stride == 1:
            return ReplicaGrouping(self._replicas, self._size, groups)
        if self._stride * self._size != self._replicas:
            raise popart_exception(f"[ReplicaGrouping] {self} has no transpose.")
        return ReplicaGrouping(self._replicas, 1, groups)

    def __str__(self) -> str:
        return (
            f"ReplicaGrouping(numReplicas={self._replicas}, stride={self._stride}, "
            f"groupSize={self._size})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReplicaGrouping):
            return NotImplemented
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class CommGroup:
    """A kind of groups of replicas and their size.

    Forms: ``()``, which is all replicas, ``(type, replicaGroupSize)``, ``(grouping)``.
    """

    __slots__ = ("replicaGroupSize", "type")

    type: CommGroupType
    replicaGroupSize: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        forms = (CommGroup._all, CommGroup._sized, CommGroup._of_grouping)
        constructed(self, forms, args, kwargs)

    def _all(self) -> None:
        self._sized(CommGroupType.All, 0)

    def _sized(self, type: CommGroupType, replicaGroupSize: int) -> None:  # noqa: A002
        self.type, self.replicaGroupSize = type, replicaGroupSize

    def _of_grouping(self, grouping: ReplicaGrouping) -> None:
        size, stride, groups = (
            grouping.getGroupSize(),
            grouping.getStride(),
            grouping.getNumGroups(),
        )
        if groups == 1:
            self._sized(CommGroupType.All, 0)
        elif size == 1:
            self._sized(CommGroupType.Ungrouped, 0)
        elif stride == 1:
            self._sized(CommGroupType.Consecutive, size)
        elif stride * size == grouping.getNumReplicas():
            self._sized(CommGroupType.Orthogonal, size)
        else:
            raise popart_exception(f"{grouping} is not the grouping of a CommGroup.")

    @native
    def toReplicaGrouping(self, numReplicas: int) -> ReplicaGrouping:
        """The groups that ``numReplicas`` form."""
        kind, size = self.type, self.replicaGroupSize
        if kind is CommGroupType.All:
            return ReplicaGrouping(numReplicas)
        if kind is CommGroupType.Ungrouped:
            return ReplicaGrouping(numReplicas, 1, 1)
        if kind is CommGroupType.Consecutive:
            return ReplicaGrouping(numReplicas, 1, size)
        return ReplicaGrouping(numReplicas, numReplicas // size if size else 0, size)


class VariableSettings:
    """The replicas that share a variable, and the values read back.

    Forms: ``()``, ``(sharedVariableDomain_)``, ``(retrievalMode_)``,
    ``(sharedVariableDomain_, retrievalMode_)``, ``(stride, groupSize, mode)``.

    Raises:
        popart_exception: stride or group size is 0.
        popart_internal_exception: groups that need a size have none.
    """

    __slots__ = ("_domain", "_mode", "_size", "_stride")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._domain: CommGroup | None = CommGroup()
        self._mode = VariableRetrievalMode.OnePerGroup
        self._stride = self._size = 0
        cls = VariableSettings
        forms = (cls._of_nothing, cls._of_domain, cls._of_mode, cls._of_both, cls._of_stride)
        constructed(self, forms, args, kwargs)

    def _of_nothing(self) -> None:
        """One variable for all replicas."""

    def _of_domain(self, sharedVariableDomain_: CommGroup) -> None:
        self._of_both(sharedVariableDomain_, VariableRetrievalMode.OnePerGroup)

    def _of_mode(self, retrievalMode_: VariableRetrievalMode) -> None:
        self._mode = retrievalMode_

    def _of_both(
        self, sharedVariableDomain_: CommGroup, retrievalMode_: VariableRetrievalMode
    ) -> None:
        shared = sharedVariableDomain_
        self._domain = CommGroup(shared.type, shared.replicaGroupSize)
        self._mode = retrievalMode_
        self.verify()

    def _of_stride(self, stride: int, groupSize: int, mode: VariableRetrievalMode) -> None:
        if stride <= 0 or groupSize <= 0:
            raise popart_exception(
                f"[VariableSettings] stride {stride} and groupSize {groupSize} must be positive."
            )
        self._domain, self._stride, self._size, self._mode = None, stride, groupSize, mode

    def verify(self) -> None:
        """Check the group size.

        Raises:
            popart_internal_exception: groups that need a size have none.
        """
        sized = (CommGroupType.Consecutive, CommGroupType.Orthogonal)
        if self._domain and self._domain.type in sized and self._domain.replicaGroupSize < 1:
            raise popart_internal_exception("VariableSettings had 1 errors!")

    def isUsingCommGroup(self) -> bool:
        """True if the groups are those of a `CommGroup`."""
        return self._domain is not None

    def getSharedVariableDomain(self) -> CommGroup:
        """The groups that share the variable.

        Raises:
            popart_exception: they are described by a stride.
        """
        if self._domain is None:
            raise popart_exception(
                "[VariableSettings] The shared domain is not a CommGroup: it was given by a stride."
            )
        return CommGroup(self._domain.type, self._domain.replicaGroupSize)

    def getCommGroupType(self) -> CommGroupType:
        """The kind of the groups."""
        return self.getSharedVariableDomain().type

    def getRetrievalMode(self) -> VariableRetrievalMode:
        """The values that are read back."""
        return self._mode

    def getStride(self) -> int:
        """The distance between neighbours of a group, if it was given."""
        return self._stride

    def getGroupSize(self) -> int:
        """The number of replicas in a group, as it was given."""
        return self._size if self._domain is None else self._domain.replicaGroupSize

    @native
    def getReplicaGrouping(self, numReplicas: int) -> ReplicaGrouping:
        """The groups that ``numReplicas`` form."""
        if self._domain is not None:
            return self._domain.toReplicaGrouping(numReplicas)
        return ReplicaGrouping(numReplicas, self._stride, self._size)

    @native
    def getGroupCount(self, numReplicas: int) -> int:
        """The number of groups."""
        return self.getReplicaGrouping(numReplicas).getNumGroups()

    @native
    def getRealGroupSize(self, numReplicas: int) -> int:
        """The number of replicas in a group."""
        return self.getReplicaGrouping(numReplicas).getGroupSize()

    @native
    def getGroupRepresentative(self, group: int) -> int:
        """The first replica of a group."""
        if self._domain is None:
            raise popart_exception(
                "[VariableSettings] A stride tells no representative of a group."
            )
        if self._domain.type is CommGroupType.All:
            return 0
        consecutive = self._domain.type is CommGroupType.Consecutive
        return self._domain.replicaGroupSize * group if consecutive else group

    @native
    def numReplicasReturningVariable(self, numReplicas: int) -> int:
        """The number of values that are read back."""
        all_of_them = self._mode is VariableRetrievalMode.AllReplicas
        return numReplicas if all_of_them else self.getGroupCount(numReplicas)

    @native
    def groups(self, numReplicas: int) -> list[list[int]]:
        """The replicas of each group."""
        grouping = self.getReplicaGrouping(numReplicas)
        return [grouping.getReplicasAt(group) for group in range(grouping.getNumGroups())]

    @native
    def shapeOnReplica(
        self, full_shape: Sequence[int], numReplicas: int, name: str = ""
    ) -> list[int]:
        """The shape on one replica: without the dimension of the groups, if there are several.

        Raises:
            popart_internal_exception: that dimension is not the number of groups.
        """
        count = self.getGroupCount(numReplicas)
        if count == 1:
            return list(full_shape)
        if not full_shape or full_shape[0] != count:
            raise popart_internal_exception(
                f"Incorrect size of tensor {name}: its shape {list(full_shape)} must begin with "
                f"the number of groups, {count}."
            )
        return list(full_shape[1:])

    @native
    def shapeOnHost(self, replica_shape: Sequence[int], numReplicas: int) -> list[int]:
        """The shape on the host: with a dimension of the groups in front, if there are several."""
        count = self.getGroupCount(numReplicas)
        return list(replica_shape) if count == 1 else [count, *replica_shape]
