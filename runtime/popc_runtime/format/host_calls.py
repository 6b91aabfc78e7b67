"""The functions that a program calls on the host, and that whoever loads it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from popc_runtime.errors import UsageError
from popc_runtime.format.serialization import Fields
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Any

__all__ = ["HostCallSpec", "read_host_call", "require_host_calls"]


@frozen
class HostCallSpec:
    """A function that a program calls.

    Attributes:
        name: By which it is given.
        inputs, outputs: The types of its arguments ("" for one that is absent) and results, as
            ``float32[2,3]``.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        """The function with its types, as messages have it."""
        taken = ", ".join(text or "nothing" for text in self.inputs)
        return f"{self.name}({taken}) -> {', '.join(self.outputs) or 'nothing'}"


def read_host_call(source: Fields) -> HostCallSpec:
    """Read one from a manifest.

    Raises:
        CorruptArchiveError: a field is missing or has another type.
    """
    return HostCallSpec(source.text("name"), source.texts("inputs"), source.texts("outputs"))


def require_host_calls(
    needed: Iterable[HostCallSpec], given: Mapping[str, Callable[..., Any]]
) -> None:
    """Check that the functions that a program calls on the host are given, and no others.

    Raises:
        UsageError: lists those that are missing, unknown, or no functions.
    """
    wanted = list(needed)
    names = {spec.name for spec in wanted}
    problems = [f"{spec} is missing" for spec in wanted if spec.name not in given]
    problems += [f"the program calls no {name}" for name in given if name not in names]
    problems += [f"{name} is no function" for name in given if not callable(given[name])]
    if problems:
        raise UsageError(
            "host_calls are not the functions that the program calls on the host",
            details=tuple(problems),
            hint="give each by its name: load(..., host_calls={name: function}); "
            "popc inspect lists them",
        )
