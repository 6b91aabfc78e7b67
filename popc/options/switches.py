"""Switches of passes and rules, by our names and PopART's."""

from __future__ import annotations

from typing import ClassVar, Final

from popc.options.dialects.popart_patterns import BUILT_IN, names_meant, why_no_switch
from popc.options.kinds import Known, Truth, parse_entries, require_known
from popc.options.table import FrozenTable
from popc_runtime.format import OptionValue

__all__ = ["Switches"]

_TRUTH: Final = Truth()


class Switches(Known[FrozenTable[bool]]):
    """A table of passes and rules that are on or off; PopART's names of patterns stand for ours."""

    called: ClassVar[str] = "switches"

    @property
    def is_table(self) -> bool:
        """True: entries can be set one by one."""
        return True

    def parse(self, value: object) -> FrozenTable[bool]:
        """A mapping, or text such as ``split_gathers=on``."""
        table = parse_entries(value, "from names to on or off", _TRUTH.parse)
        switches: dict[str, bool] = {}
        for given, wanted in table.items():
            reason = why_no_switch(given)
            if reason and not (wanted and given in BUILT_IN):
                raise ValueError(f"names {given!r}, which is not a switch: {reason}")
            for name in names_meant(given):
                if self.known and not reason:
                    require_known(name, self.known)
                if switches.setdefault(name, wanted) != wanted:
                    raise ValueError(f"switches {name!r} both on and off, once as {given!r}")
        return FrozenTable(switches)

    def plain(self, value: FrozenTable[bool]) -> OptionValue:
        """Pairs of names and switches."""
        return tuple(value.items())
