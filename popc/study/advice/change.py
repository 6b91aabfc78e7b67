"""Another value of an option, another dimension, another shape: a compilation to try."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from popc.options import changed_options
from popc.request import CompileRequest
from popc_runtime.ground.frozen import frozen

__all__ = ["Change"]


@frozen
class Change:
    """Other values of options, dimensions and shapes.

    Attributes:
        options: Values as a file would give them, by name.
        dims: Sizes of symbolic dimensions, by name.
        shapes: Shapes of inputs, by name.
    """

    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    dims: Mapping[str, int] = field(default_factory=dict[str, int])
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    def __bool__(self) -> bool:
        return bool(self.options or self.dims or self.shapes)

    def __add__(self, other: Change) -> Change:
        """Both; where they disagree, the other one."""
        return Change(
            {**self.options, **other.options},
            {**self.dims, **other.dims},
            {**self.shapes, **other.shapes},
        )

    def applied(self, request: CompileRequest) -> CompileRequest:
        """The request with the change made.

        Raises:
            OptionError: the options do not go together.
        """
        return replace(
            request,
            options=changed_options(request.options, self.options),
            dims={**request.dims, **self.dims},
            shapes={**request.shapes, **self.shapes},
        )

    def arguments(self) -> Iterator[str]:
        """The change as arguments of the command line; none for options that are left out."""
        for name, value in self.options.items():
            entries = value.items() if isinstance(value, Mapping) else ()
            for key, entry in entries:
                yield from ("--set", f"{name}.{key}={_text(entry)}")
            if not entries and value is not None:
                yield from ("--set", f"{name}={_text(value)}")
        for name, size in self.dims.items():
            yield from ("--dim", f"{name}={size}")
        for name, shape in self.shapes.items():
            yield from ("--shape", f"{name}={','.join(map(str, shape))}")

    def to_dict(self) -> dict[str, Any]:
        """The change as plain data, without what is empty."""
        shapes = {name: list(shape) for name, shape in self.shapes.items()}
        parts = {"options": dict(self.options), "dims": dict(self.dims), "shapes": shapes}
        return {name: part for name, part in parts.items() if part}


def _text(value: object) -> str:
    """A value as the command line takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        tables = any(isinstance(item, Mapping) for item in value)
        return json.dumps(value) if tables else ",".join(map(str, value))
    return str(value)
