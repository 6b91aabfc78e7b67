"""Files with what the stages of a compilation have made, for those who want to look."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from popc.progress import Snapshot, Stage
from popc_runtime.errors import ResourceError, UsageError

if TYPE_CHECKING:
    from popc.ir import Graph, Op
    from popc.progress import OnGraph
from popc_runtime.ground.frozen import mutable

__all__ = ["Dumps", "parse_window"]


@mutable
class Dumps:
    """Collects texts while a model is compiled, and writes them when that has succeeded.

    Attributes:
        text_folder: Where the text of stages and snapshots goes; ``None``: nowhere.
        dot_folder: Where drawings for Graphviz go; ``None``: nowhere.
        snapshots: Of these graphs; all if empty.
        window: The numbers of the first op to draw, and of the first one not to.
    """

    text_folder: Path | None = None
    dot_folder: Path | None = None
    snapshots: tuple[str, ...] = ()
    window: tuple[int, int | None] = (0, None)
    stages: dict[Stage, str] = field(default_factory=dict[Stage, str])
    _files: dict[Path, str] = field(default_factory=dict[Path, str])

    @property
    def on_graph(self) -> OnGraph | None:
        """The callback of the compiler for graphs; ``None`` if nobody wants graphs."""
        wanted = self.text_folder is not None or self.dot_folder is not None
        return self._take if wanted else None

    def _take(self, snapshot: Snapshot, graph: Graph, order: Sequence[Op] | None) -> None:
        from popc.ir import format_dot, format_graph

        if self.snapshots and snapshot.value not in self.snapshots:
            return
        if self.text_folder is not None:
            self._files[self.text_folder / f"{snapshot}.txt"] = format_graph(graph, order)
        if self.dot_folder is not None:
            first, last = self.window
            drawing = format_dot(graph, order, first=first, last=last)
            self._files[self.dot_folder / f"{snapshot}.dot"] = drawing

    def write(self) -> None:
        """Write everything.

        Raises:
            ResourceError: a folder or file cannot be written.
        """
        if self.text_folder is not None and not self.snapshots:
            for number, (stage, text) in enumerate(self.stages.items(), start=1):
                self._files[self.text_folder / f"{number}-{stage}.txt"] = text
        for path, text in self._files.items():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                raise ResourceError(
                    f"cannot write {path}: {error.strerror}", subject=str(path)
                ) from error


def parse_window(text: str | None) -> tuple[int, int | None]:
    """``FIRST:LAST`` as numbers; either may be left out.

    Raises:
        UsageError: it has another form, or no op lies in it.
    """
    if text is None:
        return 0, None
    match = re.fullmatch(r"(\d*):(\d*)", text)
    if match is None:
        raise UsageError(f"--dot-ops is {text!r}, but must be FIRST:LAST", hint="--dot-ops 0:100")
    first, last = int(match[1] or 0), int(match[2]) if match[2] else None
    if last is not None and last <= first:
        raise UsageError(f"--dot-ops {text} contains no op", hint="--dot-ops 0:100")
    return first, last
