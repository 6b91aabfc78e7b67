"""Names of what several parts have in common: one pattern, and what stands for it in each part.

The ops of a graph that is called come from several places of a model.  Where the names of these
differ in a piece only, a pattern has a mark there, such as ``{0}``, and each call has the piece as
a label; what runs has its own name again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

__all__ = ["InstanceLabels", "common_origin"]


class InstanceLabels:
    """Collects patterns; ``of`` has the labels of each instance."""

    def __init__(self, count: int) -> None:
        self.of: list[list[str]] = [[] for _ in range(count)]
        self._numbers: dict[tuple[str, ...], int] = {}

    def pattern(self, names: Sequence[str]) -> str:
        """The pattern that ``names``, one for each instance, have in common.

        Names that are patterns themselves, or look like some, are labels as a whole.
        """
        before, after = (0, 0) if any("{" in name for name in names) else _ends(names)
        if before + after >= len(names[0]) == len(names[-1]) and len(set(names)) == 1:
            return names[0]
        pieces = tuple(name[before : len(name) - after] for name in names)
        if pieces not in self._numbers:
            self._numbers[pieces] = len(self._numbers)
            for labels, piece in zip(self.of, pieces, strict=True):
                labels.append(piece)
        name = names[0]
        return f"{name[:before]}{{{self._numbers[pieces]}}}{name[len(name) - after :]}"


def _ends(names: Sequence[str]) -> tuple[int, int]:
    """The numbers of equal characters at the beginning and at the end; numbers are not cut."""
    before = _common(names)
    if all(len(name) == before for name in names):
        return before, 0
    while before and names[0][before - 1].isdigit():
        before -= 1
    after = _common([name[before:][::-1] for name in names])
    while after and names[0][len(names[0]) - after].isdigit():
        after -= 1
    return before, after


def common_origin(origins: Sequence[str]) -> str:
    """The part of a model that ops with these origins belong to; "" if there is no such part."""
    named = [origin for origin in origins if origin]
    common = named[0][: _common(named)] if named else ""
    if common in origins:
        return common
    return common[: max(common.rfind("/"), common.rfind("."), 0)]


def _common(names: Sequence[str]) -> int:
    """The number of equal characters at the beginning of all ``names``."""
    columns = zip(*names, strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
