"""Where host streams meet the device: HostLoad takes from a port, HostStore gives to one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from popc_runtime.format.dtypes import Array
from popc_runtime.frozen import frozen

__all__ = ["InputPort", "OutputPort", "Ports"]


class InputPort(Protocol):
    """Source of one input stream."""

    def load(self, target: Array) -> None:
        """Copy the next sample into ``target`` (the stream's shape, in storage dtype)."""


class OutputPort(Protocol):
    """Sink of one output stream."""

    def store(self, value: Array) -> None:
        """Take a sample; ``value`` is device memory and must be copied before returning."""


@frozen
class Ports:
    """The ports of a program by stream name."""

    inputs: Mapping[str, InputPort]
    outputs: Mapping[str, OutputPort]
