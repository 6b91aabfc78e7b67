"""Counts of the runs of a program's loops and branches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from popc_runtime.format import Block, IfBlock, Item, ProgramImage, RepeatBlock

__all__ = ["BlockCounts"]


class BlockCounts:
    """Two numbers for each loop and branch of programs, in the order in which they begin.

    Of a loop, the first one counts iterations; of a branch, the first one counts how often the
    condition was true, the second one how often it was false.
    """

    def __init__(self, image: ProgramImage, programs: Iterable[str]) -> None:
        self._programs = {
            name: {id(block): [0, 0] for block in _blocks(image.programs[name])}
            for name in programs
        }

    def row(self, block: Item) -> list[int]:
        """The numbers of a block, to be added to; those of another program count for nothing."""
        found = (rows[id(block)] for rows in self._programs.values() if id(block) in rows)
        return next(found, [0, 0])

    def take(self, program: str) -> list[tuple[int, int]]:
        """All numbers of a program; they are zero afterwards."""
        rows = self._programs[program].values()
        taken = [(row[0], row[1]) for row in rows]
        for row in rows:
            row[:] = 0, 0
        return taken


def _blocks(items: Block) -> Iterator[RepeatBlock | IfBlock]:
    for item in items:
        if isinstance(item, RepeatBlock):
            yield item
            yield from _blocks(item.body)
        elif isinstance(item, IfBlock):
            yield item
            yield from _blocks((*item.then_body, *item.else_body))
