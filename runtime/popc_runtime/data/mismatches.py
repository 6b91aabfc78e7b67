"""Faults in the names of inputs, and in the amount of a result."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from popc_runtime.errors import DeviceError, InputMismatchError
from popc_runtime.format import TensorSpec

__all__ = ["check_stored", "wrong_names"]


def check_stored(spec: TensorSpec, stored: int, wanted: int, unit: str) -> None:
    """Check that a step has stored all of a result, and nothing else.

    Raises:
        DeviceError: it has not.
    """
    if stored != wanted:
        raise DeviceError(
            f"output {spec.name!r}: the program stored {stored:,} {unit} instead of {wanted:,}",
            subject=spec.name,
            hint="the archive was changed after it was compiled: compile the model again",
        )


def wrong_names(
    given: Iterable[str], specs: Sequence[TensorSpec], synthetic: Container[str]
) -> list[InputMismatchError]:
    """The problem with the names ``given``, if there is one; synthetic inputs may be left out."""
    names = list(given)
    known = {spec.name for spec in specs}
    if known == set(names):
        return []
    missing = sorted(name for name in known.difference(names) if name not in synthetic)
    unknown = sorted(name for name in names if name not in known)
    parts = [f"input {name!r} is missing" for name in missing]
    parts += [f"there is no input {name!r}" for name in unknown]
    if not parts:
        return []
    listed = ", ".join(str(spec) for spec in specs)
    return [InputMismatchError("; ".join(parts), hint=f"the program takes {listed}")]
