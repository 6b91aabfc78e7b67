"""Looking into the programs of archives."""

from __future__ import annotations

from collections.abc import Iterator

from popc_runtime.format import Block, IfBlock, Item, ProgramImage, RepeatBlock

__all__ = ["items_of"]


def items_of(image: ProgramImage) -> list[Item]:
    """All instructions, calls, loops and branches of all programs, nested ones included."""
    return [item for block in image.programs.values() for item in _nested(block)]


def _nested(block: Block) -> Iterator[Item]:
    for item in block:
        yield item
        if isinstance(item, RepeatBlock):
            yield from _nested(item.body)
        elif isinstance(item, IfBlock):
            yield from _nested((*item.then_body, *item.else_body))
