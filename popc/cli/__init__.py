"""The command line: one file per verb."""

from popc.cli.main import main

__all__ = ["main"]
