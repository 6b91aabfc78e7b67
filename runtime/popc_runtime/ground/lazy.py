"""Public names that are imported when they are asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module

from popc_runtime.ground.hints import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The function ``__getattr__`` of a package.

    Args:
        package: The package's name.
        names: Where each public name comes from: "module", or "module:name" if it is another
            name there.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, original = names[name].partition(":")
        value = getattr(import_module(module), original or name)
        setattr(sys.modules[package], name, value)
        return value

    return find
