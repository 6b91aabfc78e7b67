"""Checks that options that name inputs and outputs name existing ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from popc.options import Options, did_you_mean
from popc_runtime.errors import OptionError

__all__ = ["check_stream_names"]

# Whether the table is about outputs too.
_TABLES: Final = {
    "buffering_depth_map": False,
    "exchange_strategies": True,
    "replicated_stream_mode": False,
    "synthetic_streams": True,
    "tile_sets": True,
}


def check_stream_names(options: Options, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Refuse entries of tables that fit no input (or output, where that counts).

    Raises:
        OptionError: lists them all.
    """
    wrong: dict[str, list[str]] = {}
    for table, with_outputs in _TABLES.items():
        names = [*inputs, *outputs] if with_outputs else list(inputs)
        what = "input or output" if with_outputs else "input"
        found = list(_unknown(getattr(options, table), names, what))
        if found:
            wrong[table] = found
    if wrong:
        both = any(_TABLES[table] for table in wrong)
        verb = "names" if len(wrong) == 1 else "name"
        prefixed = len(wrong) > 1
        raise OptionError(
            f"{', '.join(wrong)} {verb} inputs {'or outputs ' if both else ''}that do not exist",
            subject=next(iter(wrong)),
            details=tuple(
                f"{table}: {problem}" if prefixed else problem
                for table, problems in wrong.items()
                for problem in problems
            ),
        )


def _unknown(patterns: Sequence[str], names: Sequence[str], what: str) -> Iterator[str]:
    for pattern in patterns:
        if not any(name == pattern or fnmatchcase(name, pattern) for name in names):
            advice = did_you_mean(pattern, names) or _list(what, names)
            yield f"there is no {what} {pattern!r}: {advice}"


def _list(what: str, names: Sequence[str]) -> str:
    kinds = "the inputs and outputs" if "or" in what else "the inputs"
    return f"{kinds} are {', '.join(names)}" if names else "the program has none"
