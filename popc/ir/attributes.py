"""Attributes of ops, read by type: the one reader of all stages."""

from __future__ import annotations

from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes

__all__ = ["integer", "integers", "number", "text"]


def integer(attributes: Attributes, name: str, default: int | None = None) -> int:
    """An integer attribute.

    Raises:
        ModelError: it is missing and has no default, or has another type; so do the others.
    """
    value = attributes.get(name, default)
    if not isinstance(value, int):
        raise ModelError(f"attribute {name!r} must be an integer, not {value!r}")
    return int(value)


def number(attributes: Attributes, name: str, default: float | None = None) -> float:
    """A float attribute."""
    value = attributes.get(name, default)
    if not isinstance(value, (int, float)):
        raise ModelError(f"attribute {name!r} must be a number, not {value!r}")
    return float(value)


def text(attributes: Attributes, name: str, default: str | None = None) -> str:
    """A string attribute."""
    value = attributes.get(name, default)
    if not isinstance(value, str):
        raise ModelError(f"attribute {name!r} must be a string, not {value!r}")
    return value


def integers(
    attributes: Attributes, name: str, default: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """A list-of-integers attribute."""
    value = attributes.get(name, default)
    if not isinstance(value, tuple):
        raise ModelError(f"attribute {name!r} must be a list of integers, not {value!r}")
    return tuple(int(item) for item in value)
