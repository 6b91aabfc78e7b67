"""A bound on the work of importing a model: a few lines of one can ask for any amount of it."""

from __future__ import annotations

from typing import Final

from popc.frontend.names import shown
from popc_runtime.errors import SpokenHint, TooMuchWorkError
from popc_runtime.ground.frozen import frozen

__all__ = ["NO_LIMITS", "ImportBudget", "ImportLimits"]

_PATH_SHOWN: Final = 3  # nodes named in a message, from the model's own inwards


@frozen
class ImportLimits:
    """The bounds on the import of a model.

    Attributes:
        nodes: Nodes, with functions expanded and loops unrolled.
        computed_bytes: Bytes of all values that are computed meanwhile.
    """

    nodes: int = 200_000  # as the options have it
    computed_bytes: int = 4 << 30


NO_LIMITS: Final = ImportLimits(1 << 62, 1 << 62)


class ImportBudget:
    """Counts the work of one import, in all graphs of the model.

    Raises (every method that counts):
        TooMuchWorkError: a limit has been passed; the message names the node and the option.
    """

    def __init__(self, limits: ImportLimits) -> None:
        self._limits = limits
        self._nodes = 0
        self._bytes = 0
        self._path: list[str] = []  # the nodes that are being imported, outermost first

    def enter(self, name: str) -> None:
        """Count a node; what is counted until `leave` is its work."""
        self._path.append(name)
        self._nodes += 1
        needed, allowed = self._nodes, self._limits.nodes
        if needed > allowed:
            what = "nodes, with functions expanded and loops unrolled"
            raise self._spent("max_imported_nodes", f"{needed:,} {what}", needed, allowed)

    def leave(self) -> None:
        """Note that the node that was entered last is done."""
        self._path.pop()

    def compute(self, nbytes: int) -> None:
        """Count values of ``nbytes`` that are about to be computed."""
        self._bytes += nbytes
        needed, allowed = self._bytes, self._limits.computed_bytes
        if needed > allowed:
            what = "bytes of values that follow from constants"
            raise self._spent("max_computed_bytes", f"{needed:,} {what}", needed, allowed)

    def _spent(self, option: str, work: str, needed: int, allowed: int) -> TooMuchWorkError:
        path = " > ".join(shown(name) for name in self._path[:_PATH_SHOWN]) or "the model"
        return TooMuchWorkError(
            f"{path}: importing comes to {work}, more than {option} allows ({allowed:,})",
            subject=option,
            hint=SpokenHint(
                f"if the model is meant to be that large: options={{{option!r}: {needed * 2}}}",
                f"if the model is meant to be that large: --set {option}={needed * 2}",
            ),
        )
