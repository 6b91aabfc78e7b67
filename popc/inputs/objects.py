"""Objects of Python that the command line names as ``MODULE:NAME``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from popc_runtime.errors import UsageError

__all__ = ["find_object", "is_place"]


def is_place(text: str) -> bool:
    """True if ``text`` is of the form ``MODULE:NAME``."""
    module, _, name = text.partition(":")
    return bool(module and name)


def find_object(place: str, said: str) -> Any:
    """The object at ``MODULE:NAME``; errors begin with ``said``, the words of the user.

    Raises:
        UsageError: Python finds no such module, or nothing of that name in it.
    """
    module, _, name = place.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"{said}: {error}", hint="Python must find the module: PYTHONPATH names its folder"
        ) from error
