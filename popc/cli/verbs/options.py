"""popc options."""

from __future__ import annotations

import difflib
from typing import Any

import click

from popc.cli.report import Report, format_table

__all__ = ["command"]


@click.command("options")
@click.argument("key", required=False)
def command(*, key: str | None) -> Report:
    """List the compile options, or explain KEY: type, default, choices, meaning.

    Options come from --set, then POPC_<NAME> in the environment, then the options file.

    \b
    popc options
    popc options kahn_tie_breaker
    """
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
