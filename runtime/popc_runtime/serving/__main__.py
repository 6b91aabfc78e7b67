"""``python -m popc_runtime.serving``: the server without the compiler."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from popc_runtime.errors import PopcError
from popc_runtime.serving.options import OPTIONS, settings_of

__all__ = ["main"]


def main(**serving: Any) -> int:
    """Serve what the command line names, with more arguments of `serve`; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m popc_runtime.serving",
        description="Serve popc archives by the Open Inference Protocol, over HTTP and gRPC.",
    )
    parser.add_argument("models", nargs="+", metavar="NAME[:VERSION]=ARCHIVE")
    for option in OPTIONS:
        if option.is_flag:
            parser.add_argument(option.flag, action="store_true", help=option.meaning)
            continue
        action = "append" if option.repeats else "store"
        parser.add_argument(
            option.flag,
            action=action,
            type=option.kind,
            default=[] if option.repeats else option.default,
            metavar=option.metavar,
            help=option.meaning,
        )
    given = vars(parser.parse_args())
    try:
        settings = settings_of(given.pop("models"), given)
        from popc_runtime.serving.supervisor import serve

        serve(settings, **serving)
    except PopcError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - this is a command
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
