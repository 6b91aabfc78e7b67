"""The effective options of a compilation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from popc.options.anchors import Anchor
from popc_runtime.format import OptionSetting, OptionValue, Origin, ReturnType

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """One attribute per option of the schema; see `popc options` for their meaning.

    Attributes:
        origins: Where each value comes from; what is not listed has its default.
    """

    anchors: Mapping[str, Anchor] = field(default_factory=dict[str, Anchor])
    batches_per_step: int = 1
    compression: str = "default"
    default_anchor: str = "all"
    disabled_passes: tuple[str, ...] = ()
    enable_inplace: bool = True
    fold_limit_bytes: int = 65536
    kahn_tie_breaker: str = "greedy"
    verify_ir: bool = False
    weights: str = "compressed"
    origins: Mapping[str, Origin] = field(default_factory=dict[str, Origin])

    def anchor(self, output: str) -> Anchor:
        """Which values of an output a step returns."""
        return self.anchors.get(output) or Anchor(ReturnType(self.default_anchor))

    def origin(self, name: str) -> Origin:
        """Where the value of an option comes from."""
        return self.origins.get(name, Origin.DEFAULT)

    def to_manifest(self) -> tuple[OptionSetting, ...]:
        """Every effective value with its origin, sorted by name."""
        names = sorted(one.name for one in fields(self) if one.name != "origins")
        return tuple(OptionSetting(name, self._plain(name), self.origin(name)) for name in names)

    def _plain(self, name: str) -> OptionValue:
        if name == "anchors":
            return tuple((key, str(self.anchors[key])) for key in sorted(self.anchors))
        value: OptionValue = getattr(self, name)
        return value
