"""The options file that a search writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from popc.options import FrozenTable, Origin
from popc.study.advice import Outcome, format_toml
from popc.study.tuning.tune import Tuning

__all__ = ["effect_text", "options_file"]


def options_file(tuning: Tuning, given: Mapping[str, Any]) -> str:
    """The chosen options, and those that the user had set, as TOML.

    Args:
        tuning: The result of a search that has found a program that fits.
        given: What the user's options file held, as it was written there.
    """
    found = tuning.found
    assert found.best is not None, "nothing fits"
    chosen = dict(found.best.change.options)
    comments = {
        name: f"{effect_text(found.best.outcome, found.effects[name])} ({_was(tuning, name)})"
        for name in chosen
    }
    head = [
        f"# Chosen by popc tune for {tuning.objective} on {tuning.target.name}:",
        f"# {effect_text(found.best.outcome, found.base)}.",
    ]
    if not chosen:
        head = [
            f"# popc tune has planned {found.planned:,} programs, and none is better for",
            f"# {tuning.objective} on {tuning.target.name} than the options as they were.",
        ]
    parts = ["\n".join(head)]
    kept = {**given, **dict(_other_settings(tuning))}
    if kept:
        parts.append(f"# What was set before.\n{format_toml(kept).rstrip()}")
    if chosen:
        parts.append(f"# What was chosen.\n{format_toml(chosen, comments).rstrip()}")
    return "\n\n".join(parts) + "\n"


def _was(tuning: Tuning, name: str) -> str:
    value = getattr(tuning.request.options, name)
    if not value and isinstance(value, FrozenTable | tuple):
        return "was not set"
    plain = dict(value) if isinstance(value, FrozenTable) else value
    return f"was {str(plain).lower() if isinstance(plain, bool) else plain}"


def _other_settings(tuning: Tuning) -> Iterator[tuple[str, Any]]:
    """Options that were set elsewhere than in a file."""
    options = tuning.request.options
    for name, origin in options.origins.items():
        if origin not in (Origin.FILE, Origin.DEFAULT):
            yield name, _plain(getattr(options, name))


def _plain(value: Any) -> Any:
    """A value as an options file has it."""
    if isinstance(value, FrozenTable):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float) else str(value)


def effect_text(outcome: Outcome, other: Outcome) -> str:
    """The comparison of ``outcome`` with ``other``."""
    if other.refused:
        return "cannot be left out"
    before = other.seconds_per_sample
    time = 100 * (outcome.seconds_per_sample / before - 1) if before else 0.0
    peak = outcome.peak_bytes - other.peak_bytes
    archive = outcome.archive_bytes - other.archive_bytes
    parts = [
        f"{time:+.1f} % time" if abs(time) >= 0.05 else "",
        f"{peak:+,} bytes on the busiest tile" if peak else "",
        f"{archive:+,} bytes of archive" if archive else "",
        "fits" if outcome.fits and not other.fits else "",
    ]
    return ", ".join(part for part in parts if part) or "as fast and as large"
