"""Checks of given shapes, dimensions, values and names, before a model is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

from popc.frontend.load import ModelSource
from popc_runtime.errors import UsageError

__all__ = ["given_dims", "given_model", "given_names", "given_shapes", "given_values"]


def given_model(value: Any) -> ModelSource:
    """A model that can be read more than once: of an open file, what is in it."""
    return value.read() if hasattr(value, "read") else value  # type: ignore[no-any-return]


def given_shapes(value: object) -> dict[str, tuple[int, ...]]:
    """Shapes by name.

    Raises:
        UsageError: ``value`` is not that; lists every problem.
    """
    problems: list[str] = []
    shapes: dict[str, tuple[int, ...]] = {}
    for name, shape in _by_name("shapes", value, '{"x": (1, 3, 224, 224)}').items():
        if isinstance(shape, (str, bytes)):
            problems.append(f"shapes: the shape of {name!r} is text, {shape!r}")
            continue
        try:
            shapes[name] = tuple(index(size) for size in shape)
        except TypeError:
            problems.append(f"shapes: the shape of {name!r} is {shape!r}")
    _raise(problems, 'a shape is a sequence of whole numbers, as in {"x": (1, 3, 224, 224)}')
    return shapes


def given_dims(value: object) -> dict[str, int]:
    """Values of symbolic dimensions by name.

    Raises:
        UsageError: ``value`` is not that; lists every problem.
    """
    problems: list[str] = []
    dims: dict[str, int] = {}
    for name, size in _by_name("dims", value, '{"batch": 4}').items():
        try:
            dims[name] = index(size)
        except TypeError:
            problems.append(f"dims: the size of {name!r} is {size!r}")
    _raise(problems, 'a dimension is a whole number, as in {"batch": 4}')
    return dims


def given_values(value: object) -> dict[str, Any]:
    """Values of inputs by name.

    Raises:
        UsageError: ``value`` is no mapping.
    """
    return _by_name("bind", value, '{"sr": 16000}')


def given_names(value: object) -> tuple[str, ...]:
    """Names of outputs.

    Raises:
        UsageError: ``value`` is no sequence of names.
    """
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        names = tuple(value)
        if all(isinstance(name, str) for name in names):
            return names
    raise UsageError(f"outputs is {value!r:.80}", hint='names are given as in ["y", "z"]')


def _by_name(argument: str, value: object, example: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        raise UsageError(f"{argument}: expected a mapping, got {kind}", hint=f"as in {example}")
    for name in value:
        if not isinstance(name, str):
            raise UsageError(f"{argument}: {name!r:.80} is no name", hint=f"as in {example}")
    return dict(value)


def _raise(problems: Sequence[str], hint: str) -> None:
    if len(problems) == 1:
        raise UsageError(problems[0], hint=hint)
    if problems:
        message = f"{len(problems)} problems with the arguments"
        raise UsageError(message, hint=hint, details=tuple(problems))
