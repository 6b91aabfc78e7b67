"""The root command, and what turns every ending into an exit code."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import click

import popc
from popc.cli.console import Console, wants_color
from popc.cli.endings import INTERNAL, INTERRUPTED, TERMINATED
from popc.cli.group import LazyGroup
from popc.cli.report import Report
from popc.cli.verbs import VERBS
from popc_runtime.errors import PopcError, ResourceError, UsageError

__all__ = ["run", "start"]

# The options of the root command, which may stand behind the verb too: no verb has such options.
_NESTED: Final = ("cache", "feed")  # verbs with verbs of their own
_WITH_VALUE: Final = ("--format", "--color")
_FLAGS: Final = (
    *("--quiet", "--verbose", "--progress", "--no-progress", "--version"),
    *("-q", "-v", "-vv", "-qv", "-vq"),
)

EPILOG: Final = """
\b
Exit codes:
  0  done                          5  archive corrupt or incompatible
  1  done, and the answer is no    6  failure while running
  2  wrong usage or options        7  file system, memory or time-out
  3  model rejected               70  internal error
  4  does not fit the target     130  interrupted (143: terminated)
"""


def _show_version(context: click.Context, parameter: click.Parameter, asked: bool) -> None:  # noqa: FBT001 - click's signature
    del parameter
    if asked and not context.resilient_parsing:
        number = popc.__version__
        context.obj[0].show(Report("version", {"version": number}, f"popc, version {number}"))
        context.exit()


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"auto_envvar_prefix": "POPC", "help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How results are printed on stdout.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print results only.")
@click.option("-v", "--verbose", count=True, help="Print more; twice for tracebacks.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Colour messages on stderr.",
)
@click.option(
    "--progress/--no-progress",
    default=True,
    show_default=True,
    help="Report the stages of long work on stderr.",
)
@click.pass_context
def root(
    context: click.Context,
    format_: str,
    quiet: bool,  # noqa: FBT001 - click passes it by name
    verbose: int,
    color: str,
    progress: bool,  # noqa: FBT001 - as above
) -> None:
    """Compile ONNX models ahead of time, and run them on an emulated IPU.

    \b
    popc compile model.onnx -o model.popx --shape x=1,3,224,224
    popc run model.popx --input x=image.npy --output results/
    """
    console = Console(format_ == "json", quiet, verbose, wants_color(color), progress)
    context.obj.append(console)  # for what happens after the verb
    context.obj = console


class _Terminated(BaseException):
    """SIGTERM arrived: unwind, so that temporary files are removed."""


def _on_sigterm(number: int, frame: FrameType | None) -> NoReturn:
    del number, frame
    raise _Terminated


def _replace_closed_streams() -> None:
    """Let nothing take the place of a standard stream that the caller has closed.

    The next files that are opened would get their numbers, and what is written to stderr then.
    Stdin and stdout stay ``None``: who needs them can say so.
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is None:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end


def start() -> NoReturn:
    """Run the command line of this process, and end it."""
    _replace_closed_streams()
    signal.signal(signal.SIGTERM, _on_sigterm)
    code = run(sys.argv[1:])
    gc.freeze()  # all of it goes with the process: nobody has to look for what is in use
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:  # noqa: PLR0911 - one return per ending
    """Run one command line and print its result; the exit code."""
    # Errors in the root options are printed before the root command has read them.
    consoles = [Console(json=_asks_for_json(arguments), color=wants_color("auto"))]
    verb = _verb_of(arguments)
    try:
        return _invoke(_in_front(arguments), consoles)
    except PopcError as error:
        consoles[-1].show_error(verb, error)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        consoles[-1].note("interrupted")
        return INTERRUPTED
    except _Terminated:
        consoles[-1].note("terminated")
        return TERMINATED
    except BrokenPipeError:
        # The reader of our output has seen enough; there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (MemoryError, OSError) as error:
        resource = ResourceError(_reason(error) or "out of memory")
        consoles[-1].show_error(verb, resource)
        return resource.exit_code
    except Exception:  # noqa: BLE001 - the last resort: a bug must leave a trace, not a mess
        return _report_bug(consoles[-1], verb)


def _verb_of(arguments: Sequence[str]) -> str:
    """The name of the schema of what a command line prints."""
    place = next((n for n, item in enumerate(arguments) if item in VERBS), None)
    if place is None:
        return "popc"
    following = arguments[place + 1 : place + 2]
    nested = arguments[place] in _NESTED and following and not following[0].startswith("-")
    return f"{arguments[place]}-{following[0]}" if nested else arguments[place]


def _reason(error: Exception) -> str:
    """The message of the system, without its number."""
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror


def _invoke(arguments: list[str], consoles: list[Console]) -> int:
    """Run the command line; the console that its root options ask for joins ``consoles``."""
    try:
        # Click handles --help and --version by exiting; what a verb returns comes back here.
        with root.make_context("popc", arguments, obj=consoles) as context:
            result = root.invoke(context)
            if isinstance(result, Report):
                context.obj.show(result)
                return result.exit_code
            return 0
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.UsageError as error:
        raise _as_usage_error(error) from error
    except click.ClickException as error:
        raise UsageError(error.format_message()) from error


def _as_usage_error(error: click.UsageError) -> UsageError:
    command = error.ctx.command_path if error.ctx else "popc"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return UsageError("a command is missing", hint="popc --help lists the commands")
    return UsageError(error.format_message(), hint=f"{command} --help shows the usage")


def _in_front(arguments: Sequence[str]) -> list[str]:
    """The command line with the options of the root command before the verb, wherever they are.

    Raises:
        UsageError: the last one lacks its value.
    """
    place = next((n for n, item in enumerate(arguments) if item in VERBS), len(arguments))
    moved: list[str] = []
    kept: list[str] = []
    rest = iter(arguments[place:])
    for item in rest:
        if item == "--":
            kept += [item, *rest]
        elif item in _WITH_VALUE:
            value = next(rest, None)
            if value is None:
                raise UsageError(f"Option {item!r} requires an argument.")
            moved += [item, value]
        elif item in _FLAGS or item.partition("=")[0] in _WITH_VALUE:
            moved.append(item)
        else:
            kept.append(item)
    return [*arguments[:place], *moved, *kept]


def _asks_for_json(arguments: Sequence[str]) -> bool:
    joined = " ".join(arguments)
    return "--format json" in joined or "--format=json" in joined


def _report_bug(console: Console, verb: str) -> int:
    import tempfile  # slow to import, as is what shows tracebacks
    import traceback

    with tempfile.NamedTemporaryFile(
        "w", prefix="popc-crash-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(f"popc {' '.join(sys.argv[1:])}\n{traceback.format_exc()}")
    error = PopcError(
        f"internal error in popc {verb}: {sys.exc_info()[1]!r}",
        hint=f"this is a bug in popc: please report it with the file {file.name}",
    )
    console.show_error(verb, error)
    return INTERNAL
