"""Fuzz one target that is written in Python: python -m fuzz TARGET [arguments of libFuzzer]..."""

from __future__ import annotations

import sys

import atheris

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Watch which lines each input reaches, and make up others for ever, or as long as told."""
    name, *others = arguments
    with atheris.instrument_imports(include=["popc", "popc_runtime"]):
        from fuzz.targets import TARGETS
    if name not in TARGETS:
        sys.exit(f"there is no target {name}; there are {', '.join(TARGETS)}")
    atheris.Setup([name, *others], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
