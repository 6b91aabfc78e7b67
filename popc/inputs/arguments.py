"""Arguments of the form NAME=VALUE."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile
from zlib import error as ZlibError  # noqa: N812 - a class

import numpy as np

from popc_runtime.errors import ResourceError, UsageError
from popc_runtime.format import Array

__all__ = [
    "load_file",
    "pairs",
    "parse_bindings",
    "parse_dims",
    "parse_shapes",
    "read_arrays",
    "read_stdin",
]


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
    """``N=4`` as dimensions by name."""
    dims: dict[str, int] = {}
    for name, text in pairs(items, "--dim", last=True).items():
        if not text.isdecimal():
            raise UsageError(f"--dim {name}={text}: expected a non-negative integer")
        dims[name] = int(text)
    return dims


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
    except (OSError, ValueError, EOFError, BadZipFile, ZlibError) as error:
        raise ResourceError(
            f"the array {name!r} of {path} is damaged, or holds something other than numbers",
            subject=str(path),
            hint="numpy.savez writes such files from arrays of numbers",
        ) from error


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
    except (ValueError, EOFError, BadZipFile) as error:
        # numpy's own words advise to unpickle what may be a stranger's file.
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
