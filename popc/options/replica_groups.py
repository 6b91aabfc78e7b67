"""The division of replicas into groups."""

from __future__ import annotations

from typing import ClassVar, Final

from popc.options.kinds import Kind
from popc_runtime.ground.frozen import frozen

__all__ = ["GroupsKind", "ReplicaGroups"]

_KINDS: Final = ("all", "none", "consecutive", "orthogonal")
_SIZED: Final = ("consecutive", "orthogonal")
_SPELLINGS: Final = {"ungrouped": "none"}  # PopART's
_PATTERN: Final = "all, none, consecutive:N or orthogonal:N"


@frozen
class ReplicaGroups:
    """The division of replicas into groups.

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
        kind = _SPELLINGS.get(kind.strip().lower(), kind.strip().lower())
        sized = kind in _SIZED
        if kind not in _KINDS or bool(separator) != sized:
            raise ValueError(f"is {value!r}, but must be {_PATTERN}")
        if sized and not (size.strip().isdecimal() and int(size) > 0):
            raise ValueError(f"is {value!r}, but N in {_PATTERN} must be a positive whole number")
        return cls(kind, int(size) if sized else 0)

    def problem(self, replicas: int) -> str:
        """The reason why ``replicas`` cannot be divided so, as a clause; empty if they can."""
        if self.kind in _SIZED and replicas % self.size:
            return f"{replicas} replicas cannot be divided into groups of {self.size}"
        return ""

    def members(self, replicas: int) -> int:
        """The number of replicas in one group."""
        if self.kind in _SIZED:
            return self.size
        return 1 if self.kind == "none" else replicas

    def stride(self, replicas: int) -> int:
        """The distance between the numbers of neighbours in a group."""
        return replicas // self.size if self.kind == "orthogonal" else 1

    def numbers(self, replicas: int) -> tuple[int, ...]:
        """The number of each replica's group, in order of replicas."""
        size, stride = self.members(replicas), self.stride(replicas)
        return tuple(
            replica // (size * stride) * stride + replica % stride for replica in range(replicas)
        )

    def __str__(self) -> str:
        return f"{self.kind}:{self.size}" if self.kind in _SIZED else self.kind


class GroupsKind(Kind[ReplicaGroups]):
    """A way to divide replicas into groups."""

    called: ClassVar[str] = "group"
    called_in_tables: ClassVar[str] = "groups"

    def parse(self, value: object) -> ReplicaGroups:
        """Text such as ``consecutive:2``."""
        return ReplicaGroups.parse(value)
