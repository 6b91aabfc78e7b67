"""The functions that a program calls on the host, and that whoever loads it gives."""

from __future__ import annotations

from popc_runtime.format.serialization import Fields
from popc_runtime.ground.frozen import frozen

__all__ = ["HostCallSpec", "read_host_call"]


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
