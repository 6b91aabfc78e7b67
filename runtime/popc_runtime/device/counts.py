"""Counts of the runs of a program's loops and branches."""

from __future__ import annotations

from collections.abc import Iterator

from popc_runtime.format import Block, IfBlock, Item, ProgramImage, RepeatBlock

__all__ = ["BlockCounts"]


class BlockCounts:
    """Two numbers for each loop and branch of one program, in the order in which they begin.

    Of a loop, the first one counts iterations; of a branch, the first one counts how often the
    condition was true, the second one how often it was false.
    """

    def __init__(self, image: ProgramImage, program: str) -> None:
        self._rows = {id(block): [0, 0] for block in _blocks(image.programs[program])}

    def row(self, block: Item) -> list[int]:
        """The numbers of a block, to be added to; those of another program count for nothing."""
        return self._rows.get(id(block), [0, 0])

    def take(self) -> list[tuple[int, int]]:
        """All numbers; they are zero afterwards."""
        taken = [(row[0], row[1]) for row in self._rows.values()]
        for row in self._rows.values():
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
