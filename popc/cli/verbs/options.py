"""popc options."""

from __future__ import annotations

import difflib
from typing import Any

import click

from popc.cli.report import Report, format_table

__all__ = ["command"]


@click.command("options")
@click.argument("key", required=False)
@click.option(
    "--dialect",
    metavar="NAME",
    help="List the settings of another system (popart, tensorflow, optimum or paddle), and what "
    "becomes of them.",
)
def command(*, key: str | None, dialect: str | None) -> Report:
    """List the compile options, or explain KEY: type, default, choices, meaning.

    Options come from --set, then POPC_<NAME> in the environment, then the options file.

    \b
    popc options
    popc options kahn_tie_breaker
    popc options --dialect optimum
    """
    if dialect is not None:
        return _of_dialect(dialect, key)
    from popc.options import describe_options
    from popc.transforms import optional_passes
    from popc_runtime.errors import OptionError

    rows = [dict(row) for row in describe_options(optional_passes())]
    if key is None:
        header = ["option", "type", "default", "meaning"]
        table = [[row["name"], row["type"], str(row["default"]), row["summary"]] for row in rows]
        return Report("options", {"options": rows}, format_table([header, *table]))
    chosen = [row for row in rows if key and key in (row["name"], row["popart"])]
    if not chosen:
        close = difflib.get_close_matches(key, [str(row["name"]) for row in rows], 1)
        raise OptionError(
            f"there is no option {key!r}",
            subject=key,
            hint=f"did you mean {close[0]}?" if close else "`popc options` lists them",
        )
    return Report("options", {"options": chosen}, _explain(chosen[0]))


def _of_dialect(dialect: str, key: str | None) -> Report:
    """The settings of a dialect: all, or one."""
    from popc.options import did_you_mean
    from popc.options.dialects.listing import describe_dialect
    from popc_runtime.errors import OptionError

    rows = describe_dialect(dialect)
    chosen = [row for row in rows if key in (None, row["key"])]
    if not chosen:
        assert key is not None, "there are rows"
        raise OptionError(
            f"{dialect} has no setting {key!r}",
            subject=key,
            hint=did_you_mean(key, [row["key"] for row in rows])
            or f"`popc options --dialect {dialect}` lists them",
        )
    header = ["setting", "type", "default", "becomes"]
    table = [[row["key"], row["type"], str(row["default"]), row["becomes"]] for row in chosen]
    named = [{**row, "name": row["key"], "help": row["becomes"]} for row in chosen]
    data = {"dialect": dialect, "options": named}
    return Report("options", data, format_table([header, *table]))


def _explain(row: dict[str, Any]) -> str:
    facts = [
        ["option", row["name"]],
        ["type", row["type"]],
        ["default", str(row["default"])],
        ["environment", f"POPC_{str(row['name']).upper()}"],
    ]
    if row["choices"]:
        facts.append(["choices", ", ".join(row["choices"])])
    if row["popart"]:
        facts.append(["in PopART", row["popart"]])
    return f"{format_table(facts)}\n\n{row['help']}"
