"""Refuse models whose archives no reader would accept, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator

from popc_runtime.errors import ModelError
from popc_runtime.format import DEFAULT_LIMITS, Manifest, ProgramImage, volume

__all__ = ["require_memory", "require_readable"]

_SHOWN = 40  # characters of a name that is too long


def require_memory(image: ProgramImage) -> None:
    """Hold the memory of a program to the limits that readers have if nobody gives others.

    Raises:
        ModelError: it needs more.
    """
    most = DEFAULT_LIMITS.memory_bytes
    needs = {
        "weights": image.constant_bytes,
        "memory that is kept between runs": image.state_bytes,
        "memory during a run": image.arena_bytes,
        "memory off chip": image.remote_bytes,
        "elements of one tensor": max(map(volume, image.slots), default=0),
    }
    problems = tuple(f"{what}: {size:,} bytes" for what, size in needs.items() if size > most)
    if problems:
        raise ModelError(
            f"the model needs more than the {most:,} bytes that readers of archives allow",
            details=problems,
            hint="take a smaller batch, or split the model",
        )


def require_readable(manifest: Manifest, program: bytes) -> None:
    """Hold an archive to the limits that readers have if nobody gives others.

    Raises:
        ModelError: it is beyond some; lists all.
    """
    problems = (*_problems(manifest), *_program_problems(program))
    if problems:
        raise ModelError(
            "the model is too large for an archive",
            details=problems,
            hint="join inputs or outputs, shorten their names, or split the model",
        )


def _problems(manifest: Manifest) -> Iterator[str]:
    limits = DEFAULT_LIMITS
    named = {
        "input": [spec.name for spec in manifest.inputs],
        "output": [spec.name for spec in manifest.outputs],
        "variable": [spec.name for spec in manifest.variables],
    }
    for kind, names in named.items():
        if len(names) > limits.list_items:
            yield f"it has {len(names):,} {kind}s, and {limits.list_items:,} are possible"
        for name in names:
            size = len(name.encode())
            if size > limits.text_bytes:
                yield (
                    f"the name of {kind} {name[:_SHOWN]!r}... has {size:,} bytes, and "
                    f"{limits.text_bytes:,} are possible"
                )


def _program_problems(program: bytes) -> Iterator[str]:
    most = DEFAULT_LIMITS.program_bytes
    if len(program) > most:
        yield f"its program has {len(program):,} bytes, and {most:,} are possible"
