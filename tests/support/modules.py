"""The modules of a package."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType

__all__ = ["modules_of"]


def modules_of(package: ModuleType) -> Iterator[ModuleType]:
    """Import the package and its modules, but for those of extras that are not installed."""
    yield package
    for info in walk_packages(package.__path__, f"{package.__name__}."):
        try:
            yield import_module(info.name)
        except ModuleNotFoundError as error:
            if str(error.name).startswith("popc"):
                raise
