"""msgpack with a canonical writer, a bounded reader and checked access to what was read."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite

import msgpack

from popc_runtime.errors import CorruptArchiveError
from popc_runtime.format.limits import MAX_DIMENSION, MAX_RANK, Limits
from popc_runtime.ground.hints import Any, Final, TypeAlias, TypeVar

__all__ = [
    "ATOMS",
    "Columns",
    "Fields",
    "Packable",
    "corrupt",
    "pack",
    "pack_column",
    "read_shape",
    "unpack",
]

Packable: TypeAlias = (
    "bool | int | float | str | bytes | Sequence[Packable] | Mapping[str, Packable] | None"
)
_T = TypeVar("_T")

ATOMS: Final = (bool, int, float, str, bytes, type(None))  # what holds nothing else

# The smallest type that holds a column is chosen from this table, in this order; how `struct` calls
# them.
_COLUMN_TYPES: Final = {"u1": "B", "i1": "b", "u2": "H", "i2": "h", "u4": "I", "i4": "i", "i8": "q"}


def _column_range(code: str) -> tuple[int, int]:
    bits = 8 * int(code[1])
    return (0, (1 << bits) - 1) if code[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)


_COLUMN_RANGES: Final = {code: _column_range(code) for code in _COLUMN_TYPES}


def corrupt(what: str) -> CorruptArchiveError:
    """The error for content that is not what a writer writes; ``what`` continues "the archive"."""
    return CorruptArchiveError(
        f"the archive is damaged: {what}", hint="copy it again, or compile the model again"
    )


def pack(value: Packable) -> bytes:
    """Bytes that depend on the value only: maps are sorted by key."""
    packed = msgpack.packb(_sorted(value), use_bin_type=True)
    assert isinstance(packed, bytes)
    return packed


def _sorted(value: Any) -> Any:
    if isinstance(value, ATOMS):  # most are; to ask for a mapping takes long
        return value
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    if isinstance(value, (dict, Mapping)):  # nearly all are the former, which is quick to ask
        return {key: _sorted(value[key]) for key in sorted(value)}
    return value


def unpack(data: bytes, what: str, limits: Limits) -> Fields:
    """Read a map that `pack` wrote.

    The reader of msgpack reserves a list before it has seen its elements, at up to 1024 levels;
    ``list_items`` is what keeps that small.

    Raises:
        CorruptArchiveError: not msgpack, not a map, or larger than the limits.
    """
    try:
        value = msgpack.unpackb(
            data,
            strict_map_key=True,
            max_str_len=limits.text_bytes,
            max_array_len=limits.list_items,
            max_map_len=limits.list_items,
            max_ext_len=0,
        )
    except ValueError as error:  # what msgpack raises derives from it
        raise corrupt(f"{what} cannot be read ({str(error) or type(error).__name__})") from error
    return Fields(value, what)


class Fields:
    """A map of unknown origin whose fields are checked as they are taken.

    Fields that nobody asks for are ignored: later minor versions of the format may add some.

    Raises (every method):
        CorruptArchiveError: the field is missing, has another type or is out of range.
    """

    def __init__(self, value: object, what: str) -> None:
        if not isinstance(value, dict):
            raise corrupt(f"{what} is not a map")
        self._values: dict[object, object] = value
        self._what = what

    def _take(self, key: str, kind: type[_T]) -> _T:
        value = self._values.get(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise corrupt(
                f"field {key!r} of {self._what} is missing or not of type {kind.__name__}"
            )
        return value

    def integer(self, key: str, low: int = 0, high: int = sys.maxsize) -> int:
        """An integer in ``low`` to ``high``, both included."""
        value = self._take(key, int)
        if not low <= value <= high:
            raise corrupt(f"field {key!r} of {self._what} is {value}, not in {low} to {high}")
        return value

    def number(self, key: str) -> float:
        """A float that is finite."""
        value = self._take(key, float)
        if not isfinite(value):
            raise corrupt(f"field {key!r} of {self._what} is not finite: {value}")
        return value

    def record(self, key: str) -> Fields:
        """A map."""
        return Fields(self._take(key, dict), f"{key} of {self._what}")

    def flag(self, key: str) -> bool:
        """A bool."""
        return self._take(key, bool)

    def text(self, key: str) -> str:
        """A string."""
        return self._take(key, str)

    def data(self, key: str) -> bytes:
        """Bytes."""
        return self._take(key, bytes)

    def items_of(self) -> Iterator[tuple[str, object]]:
        """All fields."""
        return ((str(key), value) for key, value in self._values.items())

    def any(self, key: str) -> object:
        """A value of any type; ``None`` if missing."""
        return self._values.get(key)

    def choice(self, key: str, kind: Callable[[str], _T]) -> _T:
        """A member of a string enumeration."""
        value = self.text(key)
        try:
            return kind(value)
        except ValueError:
            raise corrupt(f"field {key!r} of {self._what} is {value[:40]!r}") from None

    def choices(self, key: str, kind: Callable[[str], _T]) -> tuple[_T, ...]:
        """A list of members of a string enumeration."""
        try:
            return tuple(kind(value) for value in self.texts(key))
        except ValueError:
            raise corrupt(f"field {key!r} of {self._what} holds an unknown name") from None

    def items(self, key: str, read: Callable[[Fields], _T]) -> tuple[_T, ...]:
        """A list of maps, each read by ``read``."""
        values = self._take(key, list)
        return tuple(
            read(Fields(value, f"{key}[{index}] of {self._what}"))
            for index, value in enumerate(values)
        )

    def integers(self, key: str, low: int = 0, high: int = sys.maxsize) -> tuple[int, ...]:
        """A list of integers in a range."""
        values = self._take(key, list)
        for value in values:
            if type(value) is not int or not low <= value <= high:
                raise corrupt(f"field {key!r} of {self._what} holds {value!r:.40}")
        return tuple(values)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        values = self._take(key, list)
        if not all(isinstance(value, str) for value in values):
            raise corrupt(f"field {key!r} of {self._what} holds something that is not text")
        return tuple(values)

    def integer_map(self, key: str) -> dict[str, int]:
        """A map from strings to integers that are not negative."""
        values = self._take(key, dict)
        for name, value in values.items():
            if not isinstance(name, str) or type(value) is not int or value < 0:
                raise corrupt(f"field {key!r} of {self._what} holds {value!r:.40}")
        return values

    def text_map(self, key: str) -> dict[str, str]:
        """A map from strings to strings."""
        values = self._take(key, dict)
        if not all(isinstance(item, str) for pair in values.items() for item in pair):
            raise corrupt(f"field {key!r} of {self._what} holds something that is not text")
        return values

    def column(self, key: str) -> list[int]:
        """Integers that `pack_column` wrote."""
        values = self._take(key, list)
        code, data = values if len(values) == 2 else (None, None)
        if not isinstance(code, str) or code not in _COLUMN_TYPES or not isinstance(data, bytes):
            raise corrupt(f"field {key!r} of {self._what} is not a column")
        count, rest = divmod(len(data), int(code[1]))
        if rest:
            raise corrupt(f"field {key!r} of {self._what} ends within a number")
        return list(struct.unpack(f"<{count}{_COLUMN_TYPES[code]}", data))


def read_shape(source: Fields) -> tuple[int, ...]:
    """The field ``shape``: the dimensions of a tensor."""
    shape = source.integers("shape", high=MAX_DIMENSION)
    if len(shape) > MAX_RANK:
        raise corrupt(f"a tensor has {len(shape)} dimensions")
    return shape


def pack_column(values: Sequence[int]) -> Packable:
    """Integers as one array of the narrowest type, which compresses far better than a list."""
    low, high = min(values, default=0), max(values, default=0)
    for code, (least, most) in _COLUMN_RANGES.items():
        if least <= low and high <= most:
            return [code, struct.pack(f"<{len(values)}{_COLUMN_TYPES[code]}", *values)]
    raise ValueError(f"integers from {low} to {high} do not fit a column")


class Columns:
    """Named columns read from the front, each exactly to its end.

    Raises (every method):
        CorruptArchiveError: a column has fewer or more numbers than are needed.
    """

    def __init__(
        self, fields: Fields, names: Sequence[str], what: str, optional: Sequence[str] = ()
    ) -> None:
        self._columns = {name: fields.column(name) for name in names}
        for name in optional:  # nothing where it is missing
            self._columns[name] = [] if fields.any(name) is None else fields.column(name)
        self._positions = dict.fromkeys(self._columns, 0)
        self._what = what

    def take(self, name: str, count: int) -> list[int]:
        """The next ``count`` numbers of a column."""
        start = self._positions[name]
        stop = start + count
        if count < 0 or stop > len(self._columns[name]):
            raise corrupt(f"{self._what}: column {name!r} is too short")
        self._positions[name] = stop
        return self._columns[name][start:stop]

    def one(self, name: str) -> int:
        """The next number of a column."""
        return self.take(name, 1)[0]

    def rest(self, name: str) -> list[int]:
        """All numbers of a column that are left."""
        return self.take(name, self.left(name))

    def rows(self, *names: str) -> Iterator[tuple[int, ...]]:
        """The rows of a table whose columns are ``names``."""
        columns = [self.rest(name) for name in names]
        if len({len(column) for column in columns}) != 1:
            raise corrupt(f"{self._what} has columns of different lengths: {', '.join(names)}")
        return zip(*columns, strict=True)

    def left(self, name: str) -> int:
        """The count of numbers left in a column."""
        return len(self._columns[name]) - self._positions[name]

    def finish(self) -> None:
        """Check that every column was read to its end."""
        for name, position in self._positions.items():
            if position != len(self._columns[name]):
                raise corrupt(f"{self._what}: column {name!r} is too long")
