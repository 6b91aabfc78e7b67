"""The effects of options as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from popc.cli.report import format_table

if TYPE_CHECKING:
    from popc.study.effects import Effect

__all__ = ["explanation_text"]

_HEADER = ["option", "what", "without", "with", "change"]


def explanation_text(effects: Sequence[Effect]) -> str:
    """A table of everything that changed, and the options that changed nothing."""
    if not effects:
        return "no option was set: all have their defaults"
    rows = [row for effect in effects for row in _rows(effect)]
    table = format_table([_HEADER, *rows], right=(2, 3, 4)) if rows else ""
    notes = [line for effect in effects for line in _notes(effect)]
    return "\n".join(part for part in (table, "\n".join(notes)) if part)


def _rows(effect: Effect) -> Iterator[list[str]]:
    label = _label(effect)
    for name, before in effect.before.items():
        after = effect.after[name]
        yield [label, name, f"{before:,}", f"{after:,}", _change(before, after)]
        label = ""


def _label(effect: Effect) -> str:
    host = f" ({effect.host})" if effect.host else ""
    return f"{effect.option} = {effect.value}{host}"


def _change(before: int, after: int) -> str:
    if before == 0:
        return f"{after - before:+,}"
    return f"{100 * (after - before) / before:+.1f} %"


def _notes(effect: Effect) -> Iterator[str]:
    label = _label(effect)
    if effect.none:
        yield f"{label} has no effect: {effect.none}"
    elif effect.needed:
        yield f"{label} cannot be left out: {effect.needed}"
    else:
        parts = [("adds", effect.added), ("removes", effect.removed)]
        said = [f"{verb} {_counted(counts)}" for verb, counts in parts if counts]
        same = "changes no counts of ops"
        if effect.before or said:
            yield f"{label} {'; '.join(said) or same}"
        else:
            yield f"{label} changes neither sizes nor counts, but the program"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())
