"""Options about local rewrites that do not go together with others."""

from __future__ import annotations

from collections.abc import Iterator

from popc.options.options import Options

__all__ = ["conflicts"]


def conflicts(options: Options) -> Iterator[str]:
    """Passes that are switched on and off."""
    for name, wanted in options.pattern_switches.items():
        if wanted and name in options.disabled_passes:
            yield (
                f"pattern_switches switches {name} on, but disabled_passes names it: leave one of "
                "them out"
            )
