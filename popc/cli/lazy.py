"""Verbs by name, imported when they are used: ``popc --help`` must not wait for onnx."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Final

import click

__all__ = ["VERBS", "LazyGroup"]

# verb -> (module, group in the help, what it does).  The help of a verb itself is in its module.
VERBS: Final = {
    "check": ("check", "discover", "Say whether a model or an archive is supported."),
    "doctor": ("doctor", "discover", "Show versions and what this machine offers."),
    "inspect": ("inspect", "discover", "Show what is in a model or an archive."),
    "options": ("options", "discover", "List the compile options."),
    "targets": ("targets", "discover", "List the targets, or describe one."),
    "compile": ("compile", "build", "Compile an ONNX model into an archive."),
    "estimate": ("estimate", "build", "Say what a model costs on a target."),
    "explain": ("explain", "build", "Say why a model fits or not, and what would help."),
    "diff": ("diff", "build", "Compare two archives."),
    "export": ("export", "build", "Write an archive's model with trained weights as ONNX."),
    "report": ("report", "build", "Report on a program: graph, execution, memory."),
    "tune": ("tune", "build", "Search for options with which a model costs least."),
    "run": ("run", "run", "Run an archive."),
    "train": ("train", "run", "Train an archive on a data set."),
    "bench": ("bench", "run", "Measure how fast an archive loads and runs."),
    "verify": ("verify", "run", "Compare results with another runtime."),
    "completion": ("completion", "shell", "Print a completion script."),
}
_GROUPS: Final = ("discover", "build", "run", "shell")


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
        near = get_close_matches(args[0], VERBS, 1)
        if near and args[0] not in VERBS:
            ctx.fail(f"No such command {args[0]!r}; did you mean {near[0]}?")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a verb."""
        del ctx
        if cmd_name not in VERBS:
            return None
        module = import_module(f"popc.cli.{VERBS[cmd_name][0]}_command")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs by group without importing any."""
        del ctx
        for group in _GROUPS:
            rows = [(verb, text) for verb, (_, where, text) in VERBS.items() if where == group]
            with formatter.section(group.capitalize()):
                formatter.write_dl(rows)
