"""Programs of the native library: records, loops, branches, and calls back into Python."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence

from popc_runtime.ground.frozen import field, frozen
from popc_runtime.ground.hints import TYPE_CHECKING, Any, Final, TypeAlias
from popc_runtime.native.direct import DirectRun, Transfer, direct_run
from popc_runtime.native.library import Library
from popc_runtime.native.record import Record
from popc_runtime.native.views import address_of

if TYPE_CHECKING:
    from popc_runtime.format import TensorSpec

__all__ = ["Branch", "Item", "Loop", "NativeFailure", "NativeProgram"]

# In place of the number of a kernel: those of csrc/program.c.
_CALLBACK: Final = -1
_REPEAT: Final = -2
_IF: Final = -3
_TIMED_OUT: Final = 3
_REASONS: Final = {1: "there is not enough memory", 2: "an index is out of range"}


@frozen
class Loop:
    """A loop; scalars are given by their addresses, 0 where there is none.

    ``owner`` is what is told if the program is stopped between its iterations.
    """

    body: Sequence[Item]
    count: int
    limit: int = 0
    condition: int = 0
    counter: int = 0
    keeps_alive: tuple[object, ...] = ()
    owner: Any = None


@frozen
class Branch:
    """A choice; the condition is given by its address."""

    condition: int
    then_body: Sequence[Item]
    else_body: Sequence[Item]


# A function is called with the interpreter's lock held; it may have an ``owner`` too.
Item: TypeAlias = "Record | Loop | Branch | Transfer | Callable[[], object]"


class NativeFailure(Exception):
    """A kernel cannot go on, or time is up; ``owner`` is that of its record."""

    def __init__(self, reason: str, owner: Any, *, timed_out: bool = False) -> None:
        super().__init__(reason)
        self.owner = owner
        self.timed_out = timed_out


@frozen
class _Writer:
    """Collects words, and what they refer to."""

    numbers: Mapping[str, int]
    calls: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    keeps_alive: list[object] = field(default_factory=list[object])
    written: list[Item] = field(default_factory=list[Item])  # in the order of their numbers
    landings: list[Transfer] = field(default_factory=list[Transfer])

    def items(self, items: Sequence[Item]) -> list[int]:
        words: list[int] = []
        for item in items:
            for part in (*item.before, item, *item.after) if isinstance(item, Record) else (item,):
                self.written.append(item)
                kind, body = self.item(part)
                words += (kind, len(body), *body)
        return words

    def item(self, item: Item) -> tuple[int, Sequence[int]]:
        if isinstance(item, Record):
            self.keeps_alive.extend(item.keeps_alive)
            return self.numbers[item.kernel], item.words
        if isinstance(item, Loop):
            self.keeps_alive.extend(item.keeps_alive)
            head = (item.count, item.limit, item.condition, item.counter)
            return _REPEAT, [*head, *self.items(item.body)]
        if isinstance(item, Branch):
            first = self.items(item.then_body)
            return _IF, [item.condition, len(first), *first, *self.items(item.else_body)]
        if isinstance(item, Transfer) and item.lands:
            self.landings.append(item)
        self.calls.append(item.call if isinstance(item, Transfer) else item)
        return _CALLBACK, (len(self.calls) - 1,)


def _is_large(record: Record) -> bool:
    """True if a word of an instruction has more than 64 bits."""
    parts = (*record.before, record, *record.after)
    return any(not -(1 << 63) <= word < 1 << 63 for part in parts for word in part.words)


def _bounds(landings: Sequence[Transfer]) -> bytes:
    """First byte and end of the places where inputs land."""
    bounds: list[int] = []
    for landing in landings:
        start = address_of(landing.memory)
        bounds += (start, start + len(landing.memory))
    return array("q", bounds).tobytes()


class NativeProgram:
    """Runs items in order, with one call for all that is between functions of Python.

    Raises (constructor):
        NativeFailure: the library does not take an item.
    """

    def __init__(
        self, library: Library, items: Sequence[Item], keeps_alive: object, threads: int
    ) -> None:
        writer = _Writer(library.numbers)
        listed = writer.items(items)
        try:
            words = array("q", listed)
        except OverflowError:
            records = (item for item in writer.written if isinstance(item, Record))
            owner = next((record.owner for record in records if _is_large(record)), None)
            raise NativeFailure("a number takes more than 64 bits", owner) from None
        self._items = items
        self._written = writer.written
        self._landings = sorted(writer.landings, key=lambda each: address_of(each.memory))
        try:
            self._program = library.module.Program(
                library.variant,
                words.tobytes(),
                tuple(writer.calls),
                (keeps_alive, tuple(writer.keeps_alive)),
                threads,
                _bounds(self._landings),
            )
        except ValueError as error:
            raise self._refused(str(error)) from error
        self._threads = threads
        self._module = library.module
        self._calls = len(writer.calls)

    def require_scratch(self, most: int) -> None:
        """Refuse to run with more than ``most`` bytes of scratch memory.

        Raises:
            NativeFailure: some kernel needs more.
        """
        needed, number = self._program.scratch(self._threads)
        if needed > most:
            item = self._written[number]
            reason = f"it needs {needed:,} bytes of scratch memory, more than {most:,}"
            raise NativeFailure(reason, item.owner if isinstance(item, Record) else None)

    def _refused(self, reason: str) -> NativeFailure:
        """For "record 3 is malformed", or "not supported"; -1 is none of the items."""
        number = int(reason.split()[1])
        item = self._written[number] if number >= 0 else None
        return NativeFailure(reason, item.owner if isinstance(item, Record) else None)

    def run(self, deadline: int = 0) -> None:
        """Run to the end; an exception of a function ends it and is raised.

        ``deadline`` is in nanoseconds, by `time.monotonic_ns`; 0 for none.

        Raises:
            NativeFailure: a kernel cannot go on, or time is up.
        """
        failed = self._program.run(self._threads, deadline)
        if failed is not None:
            raise self._failure(*failed)

    def _failure(self, number: int, reason: int) -> NativeFailure:
        item = self._written[number]
        if reason == _TIMED_OUT:
            moved = item.call if isinstance(item, Transfer) else item
            return NativeFailure("time is up", getattr(moved, "owner", None), timed_out=True)
        if not isinstance(item, Record):
            return NativeFailure(_REASONS[reason], None)
        told = "" if item.explain is None else item.explain()
        return NativeFailure(told or _REASONS[reason], item.owner)

    def direct(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        fail: Callable[[NativeFailure], object],
    ) -> DirectRun | None:
        """`run` on numpy's arrays; ``fail`` raises the error of a failure.

        ``None`` if the program calls Python for more than to move each of these tensors once.
        """
        if self._calls != len(inputs) + len(outputs):
            return None

        def failed(number: int, reason: int) -> None:
            fail(self._failure(number, reason))

        return direct_run(
            self._module,
            self._program,
            self._items,
            self._landings,
            inputs,
            outputs,
            failed,
            self._threads,
        )

    def seconds(self) -> list[float]:
        """Run once; the time that each item has taken."""
        self._program.measure(1)
        try:
            self.run()
            times = dict.fromkeys(map(id, self._written), 0)
            for number, item in enumerate(self._written):
                times[id(item)] += self._program.nanoseconds(number)
            return [times[id(item)] / 1e9 for item in self._items]
        finally:
            self._program.measure(0)
