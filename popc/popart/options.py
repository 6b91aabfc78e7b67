"""PopART's SessionOptions: a mutable object with PopART's members and defaults."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from popc.popart.errors import popart_exception
from popc.popart.logger import log, log_once
from popc.popart.options_table import OPTIONS, OptionRow, Treatment
from popc.popart.records import Field, Record

__all__ = ["SessionOptions"]

# Old names of members, and the reason for which PopART warns of them ("" if it does not).
_ALIASES: Final = {
    "defaultPrefetchBufferingDepth": "defaultBufferingDepth",
    "prefetchBufferingDepthMap": "bufferingDepthMap",
    "serializedPoprithmsAnnealGraphsDir": "serializedPoprithmsShiftGraphsDir",
}
_DEPRECATED: Final = ("defaultPrefetchBufferingDepth", "prefetchBufferingDepthMap")
# Dicts that PopART also shows under their names with an underscore.
_RAW: Final = (
    *("convolutionOptions", "engineOptions", "gclOptions", "lstmOptions", "matmulOptions"),
    *("reportOptions", "tensorLocationSettingsOverride"),
)


class SessionOptions(Record):
    """The settings for compiling and running a model.

    Members are converted or refused (`TypeError`) when they are assigned; whether they fit each
    other, a session checks.  An unknown name is an `AttributeError`.
    """

    __slots__ = ()
    FIELDS: ClassVar = {name: Field(row.kind, row.default) for name, row in OPTIONS.items()}

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(_meant(name))

    def __setattr__(self, name: str, value: object) -> None:
        if name in _DEPRECATED:
            log("session", "WARN", f"{name} has been deprecated: use {_ALIASES[name]}")
        super().__setattr__(_meant(name), value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_ALIASES, *(f"_{name}" for name in _RAW)})

    def enableExplicitIR(self, enable: bool, /) -> None:
        """Make host transfers, main loops and recomputation explicit, as they always are here."""
        for name in ("useHostCopyOps", "enableExplicitMainLoops", "explicitRecomputation"):
            setattr(self, name, enable)

    def getGlobalReplicationFactor(self) -> int:
        """The number of replicas in all processes."""
        if self.enableDistributedReplicatedGraphs:
            return int(self.globalReplicationFactor)
        return int(self.replicatedGraphCount) if self.enableReplicatedGraphs else 1

    def copied(self) -> SessionOptions:
        """Options of their own with the same values."""
        return copy.deepcopy(self)

    def treated(self, treatment: Treatment) -> Iterator[tuple[OptionRow, Any]]:
        """The members that differ from their defaults and are treated so, with their values."""
        for name, value in self.changed().items():
            if OPTIONS[name].treatment is treatment:
                yield OPTIONS[name], value

    def require_supported(self) -> None:
        """Refuse what popc cannot do, and warn, once in a process, of what has no effect.

        Raises:
            popart_exception: lists the members that are refused, with the reasons.
        """
        rows = [OPTIONS[name] for name in self.changed()]
        refused = [f"{row.name} ({row.why})" for row in rows if row.treatment is Treatment.REFUSED]
        if refused:
            raise popart_exception(
                f"popc cannot do what these options ask for: {', '.join(refused)}"
            )
        for row in rows:
            if row.treatment is Treatment.NO_EFFECT:
                log_once("session", f"SessionOptions.{row.name} has no effect: {row.why}")


def _meant(name: str) -> str:
    """The member that a name means."""
    if name in _ALIASES:
        return _ALIASES[name]
    return name[1:] if name.startswith("_") and name[1:] in _RAW else name
