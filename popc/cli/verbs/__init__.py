"""The verbs of the command line: one module each, and the one table that lists them."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["GROUPS", "VERBS", "Verb"]


class Verb(NamedTuple):
    """A verb as `popc --help` lists it; its own help is in the module of its name.

    Attributes:
        group: One of `GROUPS`.
        summary: One sentence.
    """

    group: str
    summary: str


GROUPS: Final = ("discover", "build", "run", "shell")

VERBS: Final = {
    "check": Verb("discover", "Say whether a model or an archive is supported."),
    "doctor": Verb("discover", "Show versions and what this machine offers."),
    "inspect": Verb("discover", "Show what is in a model or an archive."),
    "options": Verb("discover", "List the compile options."),
    "targets": Verb("discover", "List the targets, or describe one."),
    "compile": Verb("build", "Compile an ONNX model into an archive."),
    "estimate": Verb("build", "Say what a model costs on a target."),
    "explain": Verb("build", "Say why a model fits or not, and what would help."),
    "diff": Verb("build", "Compare two archives."),
    "export": Verb("build", "Write an archive's model with trained weights as ONNX."),
    "sign": Verb("build", "Sign an archive."),
    "report": Verb("build", "Report on a program: graph, execution, memory."),
    "tune": Verb("build", "Search for options with which a model costs least."),
    "run": Verb("run", "Run an archive or a model."),
    "train": Verb("run", "Train an archive on a data set."),
    "feed": Verb("run", "Write data sets into files, and measure how fast they are."),
    "bench": Verb("run", "Measure how fast an archive or a model loads and runs."),
    "serve": Verb("run", "Serve archives over HTTP and gRPC."),
    "verify": Verb("run", "Compare results with another runtime."),
    "cache": Verb("shell", "Look after the cache of compiled programs."),
    "completion": Verb("shell", "Print a completion script."),
}
