"""Arguments of the form NAME=VALUE."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np

from popc_runtime.errors import ResourceError, UsageError
from popc_runtime.format import Array

__all__ = [
    "load_file",
    "pairs",
    "parse_alternatives",
    "parse_bindings",
    "parse_dims",
    "parse_pads",
    "parse_shapes",
    "parse_sizes",
    "read_arrays",
    "read_stdin",
]

_RANGE: Final = re.compile(r"(\d{1,18})(?:\.\.(\d{1,18})(?::(\d{1,18}))?)?")
_MOST_SIZES: Final = 4096  # of a dimension: each is a program, and 1..1000000 is a slip


def pairs(
    items: Iterable[str], option: str, *, last: bool = False, known: Iterable[str] = ()
) -> dict[str, str]:
    """``NAME=VALUE`` items as a dict; with ``last``, names may contain ``=``, as may known ones.

    Raises:
        UsageError: an item has no ``=``, or a name occurs twice.
    """
    longest_first = sorted(known, key=len, reverse=True)
    result: dict[str, str] = {}
    for item in items:
        name, separator, value = item.rpartition("=") if last else item.partition("=")
        for candidate in longest_first:
            if item.startswith(f"{candidate}="):
                name, value = candidate, item[len(candidate) + 1 :]
                break
        if not separator or not name:
            raise UsageError(f"{option} {item}: expected NAME=VALUE")
        if name in result:
            raise UsageError(f"{option}: {name!r} is given twice")
        result[name] = value
    return result


def parse_shapes(items: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """``x=1,3,224,224`` (or ``x=1x3x224x224``; ``x=`` for a scalar) as shapes by name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, text in pairs(items, "--shape", last=True).items():
        parts = text.replace("x", ",").split(",") if text else []
        try:
            shapes[name] = tuple(int(part) for part in parts)
        except ValueError:
            raise UsageError(f"--shape {name}={text}: expected integers, as in 1,3,224") from None
        if any(dim < 0 for dim in shapes[name]):
            raise UsageError(f"--shape {name}={text}: dimensions cannot be negative")
    return shapes


def parse_dims(items: Iterable[str]) -> dict[str, int]:
    """``N=4`` as dimensions by name.

    Raises:
        UsageError: a size is no number, or there are several.
    """
    dims: dict[str, int] = {}
    for name, sizes in parse_sizes(items).items():
        if len(sizes) > 1:
            raise UsageError(
                f"--dim {name}: this looks at a single program, and takes one size, not "
                f"{len(sizes)}",
                hint="popc compile takes several",
            )
        dims[name] = sizes[0]
    return dims


def parse_sizes(items: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """``N=4``, ``N=1,2,4`` or ``N=32..512:32`` (from, to and step) as sizes by name.

    Raises:
        UsageError: it is nothing of that.
    """
    return {
        name: tuple(size for part in text.split(",") for size in _sizes(name, text, part))
        for name, text in pairs(items, "--dim", last=True).items()
    }


def _sizes(name: str, text: str, part: str) -> range:
    found = _RANGE.fullmatch(part.strip())
    if found is None:
        raise UsageError(
            f"--dim {name}={text}: expected a non-negative integer",
            hint="several sizes are 1,2,4 or, from, to and step, 32..512:32",
        )
    low, high, step = found.group(1), found.group(2), found.group(3)
    sizes = range(int(low), int(high or low) + 1, int(step or 1) or 1)
    if not sizes or len(sizes) > _MOST_SIZES:
        raise UsageError(f"--dim {name}={text}: {part} is {len(sizes):,} sizes")
    return sizes


def parse_pads(items: Iterable[str]) -> dict[str, dict[str, float]]:
    """``batch`` or ``length:mask=0`` as the numbers that inputs are filled up with, by dimension.

    Raises:
        UsageError: it is nothing of that.
    """
    found: dict[str, dict[str, float]] = {}
    for item in items:
        name, _, rest = item.partition(":")
        given = pairs(filter(None, rest.split(",")), f"--pad {name}:")
        try:
            found[name] = {mask: float(number) for mask, number in given.items()}
        except ValueError:
            raise UsageError(
                f"--pad {item}: expected numbers, as in length:attention_mask=0"
            ) from None
    return found


def parse_alternatives(items: Iterable[str]) -> list[dict[str, tuple[int, ...]]]:
    """``x=1,3;y=4`` as shapes by name, one mapping for each item.

    Raises:
        UsageError: see `parse_shapes`.
    """
    return [parse_shapes(part for part in item.split(";") if part.strip()) for item in items]


def parse_bindings(items: Iterable[str]) -> dict[str, Any]:
    """``sr=16000``, ``sizes=1,2,3`` or ``x=x.npy`` as values by name; of ``x=x.npz`` all arrays."""
    return {name: _bound(name, text) for name, text in pairs(items, "--bind").items()}


def _bound(name: str, text: str) -> Any:
    if text.endswith(".npy"):
        return load_file(Path(text))
    if text.endswith(".npz"):
        return read_arrays(Path(text))
    if text.lower() in ("true", "false"):
        return np.asarray(text.lower() == "true")
    parts = text.split(",")
    try:
        numbers = [int(part) if part.lstrip("+-").isdecimal() else float(part) for part in parts]
    except ValueError:
        raise UsageError(
            f"--bind {name}={text}: expected a number, numbers separated by commas, true, false, "
            f"or a .npy or .npz file"
        ) from None
    return np.asarray(numbers if len(numbers) > 1 else numbers[0])


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a .npz file by name, in the order in which they were saved.

    Raises:
        ResourceError: it cannot be read.
    """
    loaded = load_file(path)
    if isinstance(loaded, np.ndarray):
        raise ResourceError(
            f"{path} is a .npy file, which holds one array, but several are needed",
            hint="numpy.savez writes several arrays with their names",
        )
    return {name: _member(path, loaded, name) for name in loaded.files}


def _member(path: Path, loaded: Mapping[str, Array], name: str) -> Array:
    try:
        return loaded[name]
    except _signs_of_damage(OSError) as error:
        raise ResourceError(
            f"the array {name!r} of {path} is damaged, or holds something other than numbers",
            subject=str(path),
            hint="numpy.savez writes such files from arrays of numbers",
        ) from error


def _signs_of_damage(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """The errors that numpy raises of damaged files, and others; to import archives is slow."""
    from zipfile import BadZipFile
    from zlib import error

    return ValueError, EOFError, BadZipFile, error, *others


def load_file(source: Path | BytesIO) -> Any:
    """The content of a .npy or .npz file.

    Raises:
        UsageError: there is no such file.
        ResourceError: it cannot be read.
    """
    try:
        return np.load(source, allow_pickle=False)
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {_named(source)}") from error
    except OSError as error:
        raise ResourceError(f"cannot read {_named(source)}: {error.strerror or error}") from error
    except _signs_of_damage() as error:
        # numpy's own words advise to unpickle what may be a stranger's file.
        if "Object arrays" in str(error):
            raise ResourceError(
                f"{_named(source)} holds objects of Python, which are not read",
                hint="save strings as numpy.array(words, dtype=str), numbers as numbers",
            ) from error
        raise ResourceError(
            f"{_named(source)} is not a .npy or .npz file with arrays of numbers",
            hint="numpy.save and numpy.savez write such files",
        ) from error


def read_stdin() -> bytes:
    """All of standard input.

    Raises:
        UsageError: it is closed.
    """
    if sys.stdin is None:
        raise UsageError(
            "- stands for standard input, which is closed", hint="give a file, or popc ... < FILE"
        )
    return sys.stdin.buffer.read()


def _named(source: Path | BytesIO) -> str:
    return str(source) if isinstance(source, Path) else "stdin"
