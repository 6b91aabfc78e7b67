"""Trained weights out of archives and checkpoints, and into running programs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from popc.frontend.inference import for_inference
from popc.frontend.weights import fill_weights, read_weights
from popc.ir import TensorType
from popc_runtime import Executable
from popc_runtime.errors import InputMismatchError, ModelError, UsageError
from popc_runtime.format import ArchiveFile, Array, Manifest, VariableRole, VariableSpec
from popc_runtime.process.files import new_file, refuse_to_replace
from popc_runtime.state.checkpoint import read_checkpoint

__all__ = ["StateSource", "export_onnx", "load_weights"]

# Where weights come from: a running program, what was read of one, or a checkpoint.
StateSource: TypeAlias = "Executable | Mapping[str, Array] | str | os.PathLike[str]"

_MODEL_BLOB = "model"
_LISTED = 12  # problems that an error tells


def export_onnx(
    archive: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    state: StateSource | None = None,
    optimizer_state: bool = False,
    inference: bool = False,
    replica: int = 0,
    force: bool = False,
) -> Path:
    """Write the model that an archive was compiled from, with trained weights.

    Args:
        archive: An archive that trains, or whose weights are not constant.
        target: The ONNX file to write.
        state: Where the weights come from; those that the archive starts with if not given.
        optimizer_state: Add the optimizer's state as further initializers, from which
            `load_weights` restores it, and with which training begins if this model is compiled.
        inference: Write normalisations that use their running statistics, and no dropout, where the
            model was exported in training mode.
        replica: Of weights that not all replicas share, those of this one are written.
        force: Replace a file that exists.

    Raises:
        UsageError: the archive keeps no model because its weights are constant, or there are fewer
            replicas.
        InputMismatchError: ``state`` is of another program.
        ModelError: the result is too large for one file.
        ResourceError, ArchiveError, CheckpointError: a file cannot be read or written.
    """
    with ArchiveFile.open(archive) as file:
        if _MODEL_BLOB not in file.blobs:
            raise UsageError(
                f"{archive} does not keep its model: its weights are constant",
                hint="compile it with constant_weights = false, or as a program that trains",
            )
        skeleton, manifest = bytes(file.read(_MODEL_BLOB)), file.manifest
    if not 0 <= replica < manifest.replicas:
        there = f"{manifest.replicas} (0 to {manifest.replicas - 1})"
        raise UsageError(f"there is no replica {replica}: {archive} has {there}")
    values = _values(archive, manifest, state, replica)
    roles = {spec.name: spec.role for spec in manifest.variables}
    weights = {n: v for n, v in values.items() if roles[n] is VariableRole.WEIGHT}
    states = {n: v for n, v in values.items() if roles[n] is VariableRole.OPTIMIZER_STATE}
    model = fill_weights(skeleton, weights, states if optimizer_state else {})
    if inference:
        for_inference(model)
    path = Path(target)
    refuse_to_replace(path, force=force)
    try:
        data = model.SerializeToString(deterministic=True)
    except ValueError as error:
        raise ModelError(
            "the model is larger than 2 GB, which one ONNX file cannot hold"
        ) from error
    with new_file(path) as out:
        out.write(data)
    return path


def _values(
    archive: str | os.PathLike[str], manifest: Manifest, state: StateSource | None, replica: int
) -> dict[str, tuple[TensorType, Array]]:
    import popc_runtime

    if state is None:
        state = popc_runtime.load(archive)
    found: Mapping[str, Array]
    where = "the executable"
    if isinstance(state, Executable):
        found = state.state.read()
    elif isinstance(state, Mapping):
        found = state
    else:
        found, where = read_checkpoint(state).tensors, str(state)
    problems = [line for spec in manifest.variables for line in _misfit(spec, found)]
    if problems:
        raise InputMismatchError(
            f"{where} does not belong to {archive}: {len(problems)} variables do not fit",
            details=tuple(problems[:_LISTED]),
        )
    return {
        spec.name: (
            TensorType(spec.dtype, spec.whole or spec.shape),
            found[spec.name][spec.rows[replica]]
            if spec.rows and not spec.whole
            else found[spec.name],
        )
        for spec in manifest.variables
    }


def _misfit(spec: VariableSpec, found: Mapping[str, Array]) -> Iterator[str]:
    """The problems with the value of a variable, as lines of text."""
    if spec.name not in found:
        yield f"it lacks {spec}"
        return
    array = found[spec.name]
    if array.dtype != spec.dtype.storage or array.shape != spec.host_shape:
        shape = ",".join(map(str, array.shape))
        yield f"it has {array.dtype}[{shape}] for {spec}"


def load_weights(
    executable: Executable,
    model: str | os.PathLike[str],
    *,
    ignore_unknown: bool = False,
) -> tuple[str, ...]:
    """Write the initializers of an ONNX model to the variables of the same names.

    Args:
        executable: A program with variables.
        model: The path of a model with the same weights: the original, or one that `export_onnx`
            wrote, from which the optimizer's state is restored too.
        ignore_unknown: Pass over floating-point initializers that the program has no variable for.

    Returns:
        The names of the variables that were written.

    Raises:
        InputMismatchError: the model lacks weights, has others, or has other types; lists all, and
            nothing has been written.
        ModelError, ResourceError: the model cannot be read.
    """
    found = read_weights(str(model))
    specs = {spec.name: spec for spec in executable.state.specs}
    hint = "give the model that was compiled, or a model that `popc export` has written"
    problems = [
        f"{model} lacks the weight {spec}"
        for spec in specs.values()
        if spec.role is VariableRole.WEIGHT and spec.name not in found
    ]
    for name, (type_, _) in found.items():
        spec = specs.get(name)
        if spec is None:
            if type_.dtype.is_float and type_.rank and not ignore_unknown:
                hint = "ignore_unknown skips weights that the program has no variable for"
                problems.append(f"the program has no variable for {name}: {type_}")
        elif (spec.dtype, spec.whole or spec.shape) != (type_.dtype, type_.shape):
            problems.append(f"{name} is {type_} in {model}, but the program has {spec}")
    if problems:
        raise InputMismatchError(
            f"the weights of {model} do not fit the program",
            details=tuple(problems),
            hint=hint,
        )
    values = {
        name: np.broadcast_to(data, specs[name].host_shape)  # all replicas start alike
        for name, (_, data) in found.items()
        if name in specs
    }
    executable.state.write(values)
    return tuple(values)
