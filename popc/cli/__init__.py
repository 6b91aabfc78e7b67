"""The command line: one file per verb."""

from __future__ import annotations

import sys

from popc.cli.endings import INTERRUPTED
from popc_runtime.ground.hints import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """The ``popc`` command; all else is imported here, where Ctrl-C has an answer already."""
    try:
        from popc.cli.root import start

        start()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
