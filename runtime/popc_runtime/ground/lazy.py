"""Public names that are imported when they are asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module

from popc_runtime.ground.hints import Any, Final

__all__ = ["installed_version", "lazy_names"]

_VERSIONS: Final[dict[str, str]] = {}


def lazy_names(
    package: str, names: Mapping[str, str], distribution: str = ""
) -> Callable[[str], Any]:
    """The function ``__getattr__`` of a package.

    Args:
        package: The package's name.
        names: Where each public name comes from: "module", or "module:name" if it is another
            name there.
        distribution: What it is installed by, which has a version, ``__version__``; "" for
            packages within others.
    """

    def find(name: str) -> Any:
        if name == "__version__" and distribution:
            value: Any = installed_version(distribution)
        elif name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        else:
            module, _, original = names[name].partition(":")
            value = getattr(import_module(module), original or name)
        setattr(sys.modules[package], name, value)
        return value

    return find


def installed_version(distribution: str) -> str:
    """The version of a distribution, as its installation tells it; read once in a process."""
    if distribution not in _VERSIONS:
        _VERSIONS[distribution] = _read_version(distribution)
    return _VERSIONS[distribution]


def _read_version(distribution: str) -> str:
    written = _written_version(distribution)
    if written:
        return written
    from importlib.metadata import PackageNotFoundError, version  # slow to import

    try:
        return version(distribution)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+unknown"


def _written_version(distribution: str) -> str:
    """The version that an installer has written into a folder on the path; "" if none has.

    It stands in the same place for `importlib.metadata`, which imports a parser of mails for it.
    """
    prefix = f"{distribution.replace('-', '_')}-"
    for folder in sys.path:
        with suppress(OSError), os.scandir(folder or ".") as entries:
            for entry in entries:
                if entry.name.startswith(prefix) and entry.name.endswith(".dist-info"):
                    with open(os.path.join(entry.path, "METADATA"), encoding="utf-8") as file:
                        line = next((each for each in file if each.startswith("Version:")), "")
                    return line.partition(":")[2].strip()
    return ""
