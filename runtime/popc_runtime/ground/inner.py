"""Modules of a package, without what the package imports first."""

from __future__ import annotations

from importlib.machinery import PathFinder
from types import ModuleType

__all__ = ["inner_module"]


def inner_module(package: str, name: str) -> ModuleType:
    """The module ``name`` of ``package``, which is not imported; nor is the module made known.

    `importlib.util` would do it, which imports threads from Python 3.12 on.

    Raises:
        ImportError: there is no such package, or no such module in it.
    """
    outer = PathFinder.find_spec(package)
    places = outer.submodule_search_locations if outer else None
    spec = PathFinder.find_spec(f"{package}.{name}", places) if places else None
    if spec is None or spec.loader is None:
        raise ImportError(f"No module named '{package}.{name}'", name=f"{package}.{name}")
    module = spec.loader.create_module(spec) or ModuleType(spec.name)
    module.__spec__ = spec
    spec.loader.exec_module(module)
    return module
