"""The group of all verbs, imported when they are used: ``popc --help`` must not wait for onnx."""

from __future__ import annotations

from importlib import import_module

import click

from popc.cli.verbs import GROUPS, VERBS
from popc.collector import importing

__all__ = ["LazyGroup"]


class LazyGroup(click.Group):
    """A group whose commands live in modules of their own."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in order of the help."""
        del ctx
        return list(VERBS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` begin with; proposes the nearest one if there is none."""
        if args[0] not in VERBS:
            from difflib import get_close_matches  # slow to import

            for near in get_close_matches(args[0], VERBS, 1):
                ctx.fail(f"No such command {args[0]!r}; did you mean {near}?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a verb."""
        del ctx
        if cmd_name not in VERBS:
            return None
        name = f"popc.cli.verbs.{cmd_name}"
        with importing(name):
            module = import_module(name)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs by group without importing any."""
        del ctx
        for group in GROUPS:
            rows = [(name, verb.summary) for name, verb in VERBS.items() if verb.group == group]
            with formatter.section(group.capitalize()):
                formatter.write_dl(rows)
