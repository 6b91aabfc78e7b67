"""The command line: one file per verb."""

from __future__ import annotations

import gc
import sys

from popc.cli.endings import INTERRUPTED
from popc_runtime.ground.hints import Final, NoReturn

__all__ = ["main"]

# New objects between two looks for cycles among them: imports make 100,000, and all of them stay.
_COLLECTED_AT: Final = 250_000


def main() -> NoReturn:
    """The ``popc`` command; all else is imported here, where Ctrl-C has an answer already."""
    try:
        gc.set_threshold(_COLLECTED_AT)
        from popc.cli.root import start

        start()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
