"""Drawings of the graph that a session writes at the moments that its options name."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Self

from popc.ir import Graph, Op, format_dot
from popc.popart.errors import popart_exception
from popc.popart.options import SessionOptions
from popc.progress import Snapshot
from popc_runtime.ground.frozen import frozen

__all__ = ["Listings"]

_ALL = "ALL"


@frozen
class Listings:
    """The drawings to make, and their folder.

    Attributes:
        checkpoints: The moments.
        folder: Where the files are written.
        first, last: The ops of the top graph that are drawn.
    """

    checkpoints: frozenset[Snapshot] = field(default_factory=frozenset[Snapshot])
    folder: str = ""
    first: int = 0
    last: int = 10_000

    @classmethod
    def of(cls, options: SessionOptions) -> Self:
        """The drawings that options ask for, and the environment variable POPART_DOT_CHECKS.

        Raises:
            popart_exception: there is no such moment.
        """
        text = os.environ.get("POPART_DOT_CHECKS", "")
        names = [*options.dotChecks, *(name for name in text.split(":") if name)]
        known = {snapshot.value.replace("_", "").upper(): snapshot for snapshot in Snapshot}
        found: set[Snapshot] = set()
        for name in names:
            key = name.replace("_", "").upper()
            if key != _ALL and key not in known:
                raise popart_exception(
                    f"Unrecognised dot check {name}: there are {', '.join(known)} and {_ALL}"
                )
            found.update(known.values() if key == _ALL else [known[key]])
        return cls(frozenset(found), options.logDir or ".", options.firstDotOp, options.finalDotOp)

    def draw(self, checkpoint: Snapshot, graph: Graph, order: Sequence[Op] | None) -> None:
        """Write the drawing of a moment, if it is asked for.

        Raises:
            popart_exception: it cannot be written.
        """
        if checkpoint not in self.checkpoints:
            return
        path = Path(self.folder) / f"{checkpoint.value}.dot"
        text = format_dot(graph, order, first=self.first, last=self.last)
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise popart_exception(f"Failed to open file {path}") from error
