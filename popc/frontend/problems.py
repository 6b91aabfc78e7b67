"""Collects everything that keeps a model from being compiled, to report it all at once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field

from popc.frontend.names import shown
from popc_runtime.errors import DataDependentShapeError, ModelError, SpokenHint, UnsupportedOpError
from popc_runtime.ground.frozen import mutable

__all__ = ["AlreadyReported", "DataDependent", "Problems"]

_NAMES_SHOWN = 3  # nodes with the same problem; of the rest the number is told


class DataDependent(Exception):
    """Raised by an import rule whose output shape depends on a run-time value."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class AlreadyReported(Exception):
    """Raised by an import rule whose subgraph contains a problem that has been recorded."""


@mutable
class Problems:
    """Problems by kind; each kind groups the nodes that share a description."""

    unsupported: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    data_dependent: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    invalid: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def raise_if_any(self) -> None:
        """Raise one error that lists every problem.

        Raises:
            UnsupportedOpError: at least one operator is unknown.
            DataDependentShapeError: a shape depends on run-time values.
            ModelError: nodes are invalid.
        """
        details = (*_lines(self.unsupported), *_lines(self.data_dependent), *_lines(self.invalid))
        if self.unsupported:
            raise UnsupportedOpError(
                "the model uses operators, attributes or element types that popc does not support",
                hint="`popc check MODEL` lists them; rewrite these nodes or convert the opset",
                details=details,
            )
        if self.data_dependent:
            raise DataDependentShapeError(
                "the model has shapes that depend on run-time values",
                hint=SpokenHint(
                    "fix the values that decide it with bind=, dims= or shapes=",
                    "fix the values that decide it with --bind NAME=VALUE, --dim or --shape",
                ),
                details=details,
            )
        if self.invalid:
            raise ModelError("the model is not valid", details=details)


def _lines(group: dict[str, list[str]]) -> list[str]:
    return [f"{what}: {_names(nodes)}" for what, nodes in sorted(group.items())]


def _names(nodes: list[str]) -> str:
    listed = ", ".join(shown(name) for name in nodes[:_NAMES_SHOWN])
    rest = len(nodes) - _NAMES_SHOWN
    return f"{listed}, ... {rest} more" if rest > 0 else listed
