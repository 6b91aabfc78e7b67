"""popc completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from popc.cli.report import Report

__all__ = ["command"]

_WHERE = {
    "bash": 'eval "$(popc completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(popc completion zsh)" in ~/.zshrc',
    "fish": "popc completion fish | source in ~/.config/fish/config.fish",
}


@click.command("completion")
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def command(context: click.Context, *, shell: str) -> Report:
    """Print the completion script for SHELL.

    \b
    eval "$(popc completion bash)"         # in ~/.bashrc
    popc completion fish | source          # in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, f"click has completion for {shell}"
    script = kind(context.find_root().command, {}, "popc", "_POPC_COMPLETE").source()
    return Report("completion", {"shell": shell, "script": script, "use": _WHERE[shell]}, script)
