"""Streams stay connected while a program steps through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Protocol, Self

from popc_runtime.data.streams import (
    Sink,
    SinkLike,
    Source,
    SourceLike,
    is_at_hand,
    make_sink,
    make_source,
)
from popc_runtime.data.streams.prefetch import prefetch
from popc_runtime.errors import StreamError, UsageError
from popc_runtime.format import Array, StreamDirection, StreamSpec, TensorSpec

__all__ = ["Session", "Steppable"]


class Steppable(Protocol):
    """The part of an executable that a session needs."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Inputs of a step."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Outputs of a step."""

    def stream(self, name: str, direction: str | None = None) -> StreamSpec:
        """The data that moves through a stream."""

    def get_cycle_count(self, name: str = "") -> int:
        """Cycles of the last run."""

    def run_connected(
        self,
        samples: Mapping[str, Iterator[Array]],
        takers: Mapping[str, Callable[[Array], object]],
    ) -> None:
        """Run one step."""


class Session:
    """Connects sources and sinks to the streams of an executable and runs steps.

    One sample of a stream is one batch; a step takes ``batches_per_step`` samples from every input
    stream and gives as many to an output stream as its return type says.  Where there are several
    replicas (or micro-batches), each takes and gives a sample of its own, in their order.

    Not thread-safe itself, but several sessions (and calls of `Executable.run`) may use one
    executable: a step runs undisturbed from its first to its last instruction.

        with executable.session() as session:
            session.connect("x", batches)           # array, iterable, callable, queue or .npy file
            session.connect("y", results.append)    # list, array, callable, queue or .npy file
            session.step(10)
    """

    def __init__(self, executable: Steppable) -> None:
        self._executable = executable
        self._inputs = [spec.name for spec in executable.inputs]
        self._outputs = [spec.name for spec in executable.outputs]
        self._sources: dict[str, Source] = {}
        self._sinks: dict[str, Sink] = {}
        self._closed = False
        self.steps_done = 0

    def connect(
        self,
        name: str,
        end: SourceLike | SinkLike,
        *,
        direction: str | None = None,
        depth: int | None = None,
        repeat: bool = False,
        timeout: float | None = None,
    ) -> Self:
        """Connect a source to an input stream, or a sink to an output stream, by its name.

        Args:
            name: The stream.
            end: See `popc_runtime.data.streams.make_source` and `make_sink`.
            direction: "input" or "output", which has to be said where both have the name.
            depth: For a source: how many samples a background thread reads ahead; 0 reads each
                sample when the program asks for it.  Default: what the archive was compiled for
                (0 if nothing was said) for iterables and callables, and 0 for arrays, lists, files
                and queues.
            repeat: For an array or file source: start over when it ends.
            timeout: For a queue: seconds to wait for a sample or for room; ``None`` waits for ever.

        Raises:
            UsageError: no such stream, connected already, or an end that fits neither; or it is not
                said which of two streams is meant.
        """
        self._check_open()
        feeds = self._is_input(name, direction)
        if name in (self._sources if feeds else self._sinks):
            raise UsageError(f"stream {name!r} is already connected")
        if feeds:
            stream = self._executable.stream(name, StreamDirection.INPUT)
            source = make_source(stream, end, repeat=repeat, timeout=timeout)  # type: ignore[arg-type]
            if depth is None:
                depth = 0 if is_at_hand(end) else stream.depth
            # Synthetic data takes the place of the source, which is never asked.
            self._sources[name] = prefetch(source, 0 if stream.synthetic else depth)
        else:
            stream = self._executable.stream(name, StreamDirection.OUTPUT)
            self._sinks[name] = make_sink(stream, end, timeout=timeout)  # type: ignore[arg-type]
        return self

    def _is_input(self, name: str, direction: str | None) -> bool:
        """True if an input stream is meant, False if an output stream is."""
        ways = {StreamDirection.INPUT: self._inputs, StreamDirection.OUTPUT: self._outputs}
        found = [way for way, names in ways.items() if name in names and direction in (None, way)]
        if len(found) == 1:
            return found[0] is StreamDirection.INPUT
        if found:
            raise UsageError(
                f"both an input and an output are called {name!r}",
                hint='say which: direction="input" or direction="output"',
            )
        if direction not in (None, *StreamDirection):
            raise UsageError(f'direction is "input" or "output", not {direction!r}')
        what = f"{direction or ''} stream".strip()
        streams = ", ".join(dict.fromkeys([*self._inputs, *self._outputs]))
        raise UsageError(f"there is no {what} {name!r}", hint=f"the streams are {streams}")

    def step(self, count: int = 1) -> None:
        """Run ``count`` steps.

        Raises:
            StreamError: an input stream is not connected, ran out of samples or timed out.
            DeviceError: an instruction failed.
        """
        self._check_open()
        missing = [name for name in self._inputs if name not in self._sources]
        missing = [name for name in missing if not self._executable.stream(name).synthetic]
        if missing:
            raise StreamError(
                f"input streams are not connected: {', '.join(missing)}",
                hint="call session.connect(NAME, SOURCE) for each of them before the first step",
            )
        for _ in range(count):
            self._executable.run_connected(
                {name: _draw(source) for name, source in self._sources.items()},
                {name: sink.put for name, sink in self._sinks.items()},
            )
            self.steps_done += 1

    def get_cycle_count(self, name: str = "") -> int:
        """Cycles of the last run of the program: see `Executable.get_cycle_count`."""
        return self._executable.get_cycle_count(name)

    def close(self) -> None:
        """Disconnect everything; files are written now."""
        if self._closed:
            return
        self._closed = True
        for source in self._sources.values():
            source.close()
        for sink in self._sinks.values():
            sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the session is closed")


def _draw(source: Source) -> Iterator[Array]:
    while True:
        yield source.next()
