"""Options from every source: the command line wins over Python, the environment and the file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from popc.options.options import Options
from popc.options.sources import from_cli, from_env, from_file, from_values

__all__ = ["changed_options", "resolve_options"]


def resolve_options(
    *,
    cli: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    file: str | os.PathLike[str] | None = None,
    values: Mapping[str, object] | None = None,
    pass_names: Sequence[str] = (),
    excludable: Sequence[str] = (),
    trains: bool = False,
) -> Options:
    """The effective options.

    Args:
        cli: Items ``key=value``; of a table, ``anchors.y=final``.
        env: Where to look for POPC_<NAME>.
        file: A TOML or JSON file.
        values: Values by name, from Python.
        pass_names: What ``disabled_passes`` and ``pattern_switches`` may contain.
        excludable: What ``exclude_patterns`` of ``annotate`` may contain.
        trains: Whether they are for a program that trains; settings of other systems may differ.

    A later source wins: defaults, ``file``, ``env``, ``values``, ``cli``.  Entries of tables are
    settings of their own.

    Raises:
        OptionError: lists every problem of every source.
        ResourceError: the file cannot be read.
    """
    of_sources: tuple[list[str], ...] = ([], [], [], [])
    sources = (
        from_file(file, of_sources[0]),
        from_env(env or {}, of_sources[1]),
        from_values(values or {}),
        from_cli(cli, of_sources[3]),
    )
    if not any((*sources, *of_sources)):
        return Options()
    from popc.options.resolver import resolved  # and with it the tables of other systems

    names = {
        "annotate": excludable,
        "disabled_passes": pass_names,
        "pattern_switches": pass_names,
    }
    return resolved(sources, of_sources, names, trains=trains)


def changed_options(options: Options, values: Mapping[str, object]) -> Options:
    """``options`` with other values, as if the command line gave them; ``None`` is the default.

    Raises:
        OptionError: a value is wrong, or they do not go together.
    """
    from popc.options.resolver import changed

    return changed(options, values)
