"""One process among those that run the replicas of one program."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Final, Self

from popc_runtime import errors
from popc_runtime.errors import GroupError, PopcError, UsageError
from popc_runtime.groups.transport import Span, Transport
from popc_runtime.process.watch import RunWatch

__all__ = ["HEADER_BYTES", "Group", "GroupExchange", "once"]

# Before each message: the number of the exchange, the bytes that follow, what they are.
_HEADER: Final = struct.Struct("<QQ48s")
HEADER_BYTES: Final = _HEADER.size
_WORDS: Final = 48
_END: Final = "the end of the program"


class Group:
    """This process, and what it exchanges with the others.

    All processes call the same methods in the same order; one that does something else is found
    out by the words that go with each message.  To be left by `close`, or as a context manager,
    which tells the others of an exception.

    Attributes:
        rank: The number of this process.
        size: How many there are.
        exchanges: How many there have been.
        sent_bytes: What they have sent to other processes, without headers.
        waiting_ns: How long they have taken, in nanoseconds: transfers, and waiting for others.
    """

    def __init__(self, transport: Transport) -> None:
        self.rank, self.size = transport.rank, transport.size
        self.exchanges = self.sent_bytes = self.waiting_ns = 0
        self._transport = transport
        self._broken: GroupError | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"Group(rank={self.rank}, size={self.size})"

    # -- exchanging ------------------------------------------------------------------------------

    def exchange(self, exchange: GroupExchange, watch: RunWatch | None = None) -> None:
        """Make an exchange that was prepared: see `GroupExchange`."""
        if self._broken is not None:
            raise self._broken.with_traceback(None)
        if self._is_closed:
            raise UsageError("the group of processes was left already")
        self.exchanges += 1
        exchange.write_headers(self.exchanges)
        start = perf_counter_ns()
        try:
            finished = self._transport.exchange(
                *exchange.buffers, watch.is_over if watch is not None else _never
            )
        except GroupError as error:
            self._broken = error
            raise
        finally:
            self.waiting_ns += perf_counter_ns() - start
        if not finished:
            assert watch is not None
            raise watch.time_up(exchange.words)
        self.sent_bytes += exchange.sent_bytes
        problem = exchange.mismatch(self.exchanges, self.rank)
        if problem is not None:
            self.fail(problem.message)
            self._broken = problem
            raise problem

    def gather(self, what: str, payload: bytes) -> list[bytes]:
        """The bytes that each process gives, in the order of their ranks."""
        sizes = GroupExchange.alike(self, what, 8, [8] * self.size)
        sizes.outgoing(0)[:] = len(payload).to_bytes(8, "little")
        self.exchange(sizes)
        lengths = [
            len(payload) if rank == self.rank else int.from_bytes(sizes.incoming(rank), "little")
            for rank in range(self.size)
        ]
        whole = GroupExchange.alike(self, what, len(payload), lengths)
        whole.outgoing(0)[:] = payload
        self.exchange(whole)
        return [
            payload if rank == self.rank else bytes(whole.incoming(rank))
            for rank in range(self.size)
        ]

    def once(self, what: str, function: Callable[[], bytes]) -> bytes:
        """The result of ``function``, which the first process calls; all raise its PopcErrors."""
        answer = b""
        if self.rank == 0:
            try:
                answer = b"+" + function()
            except PopcError as error:
                answer = b"-" + json.dumps(_told(error)).encode()
        first = self.gather(what, answer)[0]
        if first[:1] == b"-":
            raise _raised(json.loads(first[1:]))
        return first[1:]

    def agree(self, what: str, facts: Mapping[str, str]) -> None:
        """Check that all processes give the same facts.

        Raises:
            UsageError: they do not; names the ranks for each fact.
        """
        given = [json.loads(each) for each in self.gather(what, json.dumps(facts).encode())]
        problems = []
        for name in dict.fromkeys(name for each in given for name in each):
            values: dict[str, list[str]] = {}
            for rank, each in enumerate(given):
                values.setdefault(each.get(name, "not given"), []).append(str(rank))
            if len(values) > 1:
                listed = "; ".join(
                    f"{value} on rank {', '.join(ranks)}" for value, ranks in values.items()
                )
                problems.append(f"{name}: {listed}")
        if problems:
            raise UsageError(
                f"the processes of the group differ in {what}",
                details=tuple(problems),
                hint="start all of them with the same files, options and packages",
            )

    # -- the end ---------------------------------------------------------------------------------

    def fail(self, reason: str) -> None:
        """Tell the others that this process goes no further, and why."""
        if self._broken is None and not self._is_closed:
            text = f"rank {self.rank} of {self.size} goes no further: {reason}"
            self._broken = GroupError(text, subject=f"rank {self.rank}")
            self._transport.tell(reason)

    def close(self) -> None:
        """Wait for the others, and leave.

        Raises:
            GroupError: they have not come to the end, or one of them has died.
        """
        if not self._is_closed and self._broken is None:
            self.exchange(GroupExchange.alike(self, _END, 0, [0] * self.size))
            self._is_closed = True
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self.fail(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")


class GroupExchange:
    """Messages from one process to the others and back, in memory that stays the same.

    ``sent[i]`` and ``received[i]`` are numbers of bytes for and from process ``i``; nothing is sent
    to itself.  `alike` sends the same to everybody.
    """

    def __init__(
        self,
        group: Group,
        what: str,
        sent: Sequence[int],
        received: Sequence[int],
        *,
        alike: bool = False,
    ) -> None:
        self.words = what.encode()[:_WORDS].decode(errors="ignore")
        self._others = [rank for rank in range(group.size) if rank != group.rank]
        self._sent, self._size_out = _laid_out(sent, group.rank, alike=alike)
        self._received, size_in = _laid_out(received, group.rank)
        self._out = memoryview(bytearray(self._size_out))
        self._in = memoryview(bytearray(size_in))
        self._group = group
        self.sent_bytes = sum(self._sent[rank][1] - HEADER_BYTES for rank in self._others)

    @classmethod
    def alike(cls, group: Group, what: str, sent: int, received: Sequence[int]) -> GroupExchange:
        """An exchange that sends the same bytes to everybody."""
        return cls(group, what, [sent] * group.size, received, alike=True)

    @property
    def buffers(self) -> tuple[memoryview, Sequence[Span], memoryview, Sequence[Span]]:
        """The arguments of a transport."""
        return self._out, self._sent, self._in, self._received

    def outgoing(self, rank: int) -> memoryview:
        """The memory of what is sent to a process."""
        if rank == self._group.rank and self._others:
            rank = self._others[0]  # of those that are alike
        first, count = self._sent[rank]
        return self._out[first + HEADER_BYTES : first + count]

    def incoming(self, rank: int) -> memoryview:
        """The memory of what comes from a process."""
        first, count = self._received[rank]
        return self._in[first + HEADER_BYTES : first + count]

    def run(self, watch: RunWatch | None = None) -> None:
        """Make the exchange: see `Group.exchange`."""
        self._group.exchange(self, watch)

    def write_headers(self, number: int) -> None:
        """Begin all messages with the number of the exchange."""
        words = self.words.encode()
        for rank in self._others:
            first, count = self._sent[rank]
            _HEADER.pack_into(self._out, first, number, count - HEADER_BYTES, words)
            first, _ = self._received[rank]
            _HEADER.pack_into(self._in, first, 0, 0, b"")

    def mismatch(self, number: int, own: int) -> GroupError | None:
        """The error about messages that are not those of this exchange, if there are any."""
        for rank in self._others:
            first, count = self._received[rank]
            found, size, words = _HEADER.unpack_from(self._in, first)
            if (found, size, words.rstrip(b"\0")) == (
                number,
                count - HEADER_BYTES,
                self.words.encode(),
            ):
                continue
            there = words.rstrip(b"\0").decode(errors="replace") or "something else"
            return GroupError(
                f"rank {own} is at {self.words!r} with {count - HEADER_BYTES:,} bytes to come, "
                f"but rank {rank} at {there!r} with {size:,}",
                subject=f"rank {rank}",
                hint="all processes have to make the same steps and calls in the same order, on "
                "data of the same length",
            )
        return None


def once(group: Group | None, what: str, function: Callable[[], object]) -> None:
    """Call ``function`` in the first process of a group, or in the only process there is.

    Raises:
        PopcError: those of ``function``, in all processes.
    """
    if group is None:
        function()
    else:
        group.once(what, partial(_without_result, function))


def _without_result(function: Callable[[], object]) -> bytes:
    function()
    return b""


def _laid_out(sizes: Sequence[int], own: int, *, alike: bool = False) -> tuple[list[Span], int]:
    """The places of messages with these sizes, headers included, and the bytes of all."""
    spans: list[Span] = []
    end = 0
    for rank, size in enumerate(sizes):
        if rank == own and len(sizes) > 1:
            spans.append((0, 0))
            continue
        if not alike or not end:
            first = end
            end = -(-(first + HEADER_BYTES + size) // HEADER_BYTES) * HEADER_BYTES
        spans.append((first, HEADER_BYTES + size))
    return spans, max(end, HEADER_BYTES + max(sizes, default=0))


def _never() -> bool:
    return False


def _told(error: PopcError) -> dict[str, Any]:
    return {
        "class": type(error).__name__,
        "message": error.message,
        "subject": error.subject,
        "hint": str(error.hint),
        "spoken": getattr(error.hint, "command_line", ""),
        "details": list(error.details),
    }


def _raised(told: Mapping[str, Any]) -> PopcError:
    kind = getattr(errors, told["class"], PopcError)
    hint = told["hint"]
    if told["spoken"]:
        hint = errors.SpokenHint(hint, told["spoken"])
    made: PopcError = kind(
        told["message"], subject=told["subject"], hint=hint, details=tuple(told["details"])
    )
    return made
