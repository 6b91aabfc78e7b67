"""Options about checks that do not go together with others."""

from __future__ import annotations

from collections.abc import Iterator

from popc.options.options import Options

__all__ = ["conflicts"]


def conflicts(options: Options) -> Iterator[str]:
    """Exceptions that nothing looks for."""
    exceptions = "floating_point_exceptions"
    if exceptions in options.origins and not options.enable_floating_point_checks:
        yield f"{exceptions} is set, but enable_floating_point_checks is false: set that too"
