"""Ports between host streams and the device: HostLoad takes from one, HostStore gives to one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from popc_runtime.ground.frozen import field, frozen
from popc_runtime.ground.hints import Any, Protocol

__all__ = ["InputPort", "OutputPort", "Ports"]


class InputPort(Protocol):
    """Source of one input stream."""

    def load(self, target: memoryview) -> None:
        """Copy the next sample into ``target``: its bytes, as contiguous elements are stored."""


class OutputPort(Protocol):
    """Sink of one output stream."""

    def store(self, value: memoryview) -> None:
        """Take a sample: its bytes, in device memory, to be copied before returning."""


@frozen
class Ports:
    """The ports of a program by stream name, and the functions that it calls, by theirs."""

    inputs: Mapping[str, InputPort]
    outputs: Mapping[str, OutputPort]
    calls: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Any])
