"""Checks of what the host writes to variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from popc_runtime.data.streams.samples import as_stored
from popc_runtime.errors import CheckpointError, InputMismatchError, UsageError
from popc_runtime.format import Array, Manifest, TrainingSpec, VariableSpec
from popc_runtime.state.checkpoint import Checkpoint

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["check_checkpoint", "check_variables", "find_hyper_parameters"]

_LISTED = 12  # names or problems that an error tells


def check_variables(
    variables: Sequence[VariableSpec], values: Mapping[str, npt.ArrayLike]
) -> dict[str, Array]:
    """``values`` as arrays that fit the variables of these names, as these are stored.

    Raises:
        InputMismatchError: lists every name that does not exist, and every other dtype or shape.
    """
    specs = {spec.name: spec for spec in variables}
    arrays = {name: np.asarray(value) for name, value in values.items()}
    problems = [f"there is no variable {name!r}" for name in arrays if name not in specs]
    arrays = {
        name: as_stored(array, specs[name].dtype) if name in specs else array
        for name, array in arrays.items()
    }
    for name, array in arrays.items():
        spec = specs.get(name)
        if spec is None:
            continue
        if array.dtype != spec.dtype.storage or array.shape != spec.host_shape:
            given = f"{array.dtype}[{','.join(map(str, array.shape))}]"
            wanted = str(spec).partition(": ")[2]
            problems.append(f"variable {name!r}: expected {wanted}, got {given}")
    if not problems:
        return arrays
    known = ", ".join(list(specs)[:_LISTED]) + (", ..." if len(specs) > _LISTED else "")
    hint = f"the variables are {known}" if specs else "the program has no variables"
    if len(problems) == 1:
        raise InputMismatchError(problems[0], hint=hint)
    raise InputMismatchError(
        f"{len(problems)} values do not fit the variables", details=tuple(problems), hint=hint
    )


def check_checkpoint(checkpoint: Checkpoint, manifest: Manifest, path: str) -> None:
    """Check that ``checkpoint`` has the variables of the program, and no others.

    Raises:
        CheckpointError: it does not; lists every difference.
    """
    specs = {spec.name: spec for spec in manifest.variables}
    problems = [
        f"it has no {name!r}, the program has" for name in specs if name not in checkpoint.tensors
    ]
    problems += [
        f"it has {name!r}, the program has not" for name in checkpoint.tensors if name not in specs
    ]
    for name, array in checkpoint.tensors.items():
        spec = specs.get(name)
        if spec and (checkpoint.dtypes[name], array.shape) != (spec.dtype, spec.host_shape):
            found = VariableSpec(name, checkpoint.dtypes[name], array.shape, spec.role, 0)
            problems.append(f"it has {found}, the program has {spec}")
    if not problems:
        return
    other = checkpoint.model_sha256 != manifest.model_sha256
    more = len(problems) - _LISTED
    raise CheckpointError(
        f"{path} is a checkpoint of another {'model' if other else 'optimizer or selection'}",
        subject=path,
        details=(*problems[:_LISTED], *([f"and {more} more"] if more > 0 else [])),
        hint="use a checkpoint that was written by this archive, or by one compiled alike",
    )


def find_hyper_parameters(
    training: TrainingSpec | None, values: Mapping[str, float], group: str
) -> dict[str, float]:
    """The variables that hold the numbers named in ``values``, with the new values.

    Raises:
        UsageError: there is no such number, or it is a constant; lists every problem.
    """
    rows = training.hyper_parameters if training else ()
    known = {row.name: row for row in rows if row.group == group}
    problems = []
    for name, value in values.items():
        if name not in known:
            problems.append(f"group {group!r} has no {name!r}")
        elif not known[name].variable:
            problems.append(f"{name} is a constant of the program, {known[name].value:g}")
        elif not isfinite(value):
            problems.append(f"{name} is {value}")
        elif value < 0:
            problems.append(f"{name} is {value:g}, but must not be negative")
    if problems:
        changeable = ", ".join(row.name for row in known.values() if row.variable)
        raise UsageError(
            f"the optimizer cannot be changed: {'; '.join(problems)}",
            hint=f"changeable here: {changeable or 'nothing'}; compile others with const = false",
        )
    return {known[name].variable: float(value) for name, value in values.items()}
