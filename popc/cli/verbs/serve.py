"""popc serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from popc.cli.report import Report
from popc_runtime.serving.options import OPTIONS, settings_of

__all__ = ["command"]


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that the runtime's own command has too."""
    for option in reversed(OPTIONS):
        if option.is_flag:
            function = click.option(option.flag, is_flag=True, help=option.meaning)(function)
            continue
        function = click.option(
            option.flag,
            type=option.kind,
            default=None if option.repeats else option.default,
            multiple=option.repeats,
            metavar=option.metavar,
            show_default=not option.repeats,
            help=option.meaning,
        )(function)
    return function


@click.command("serve")
@click.argument("models", nargs=-1, required=True, metavar="NAME[:VERSION]=ARCHIVE...")
@_options
def command(*, models: tuple[str, ...], **given: Any) -> Report:
    """Serve archives by the Open Inference Protocol, over HTTP and gRPC.

    Ends with SIGTERM or Ctrl-C, after it has answered what it had accepted.  The same without the
    compiler is python -m popc_runtime.serving.

    \b
    popc serve digits=digits.popx
    popc serve digits=old.popx digits:2=new.popx --workers 4 --max-wait 0.002
    curl localhost:8000/v2/models/digits
    """
    settings = settings_of(models, given)
    from popc_runtime.serving.supervisor import serve

    serve(settings)
    return Report("serve", {"models": [*map(str, settings.models)]}, "")
