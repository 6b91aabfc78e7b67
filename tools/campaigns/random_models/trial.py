"""Compile a recipe, run it on both engines, and compare with what it should give."""

from __future__ import annotations

import os
import tempfile
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

import popc
import popc_runtime
from popc_runtime.errors import OptionError, PopcError
from popc_runtime.format import Array
from popc_runtime.native import find_library
from tools.campaigns.random_models.evaluation import RefusedError, run_model
from tools.campaigns.random_models.recipe import Recipe
from tools.campaigns.random_models.value import Value

__all__ = ["ENGINES", "Expectation", "Finding", "expect", "try_options"]

ENGINES: Final = ("native", "numpy")
_FOLDER: Final = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


@dataclass(frozen=True)
class Finding:
    """A fault that was found.

    Attributes:
        kind: "differs", "refused", "fails" or "crashes".
        engine: That differs; "" if no program was run.
        what: For people: an error, or the first element that differs.
    """

    kind: str
    engine: str
    what: str

    @property
    def signature(self) -> tuple[str, str]:
        """The part that outlives shrinking: the kind, and the last line of an error."""
        last = self.what.strip().splitlines()[-1] if self.kind == "fails" else ""
        return self.kind, "".join(" " if c.isdigit() else c for c in last)[:60]


@dataclass(frozen=True)
class Expectation:
    """A model, and what its outputs should hold."""

    model: onnx.ModelProto
    feeds: Mapping[str, Array]
    outputs: Mapping[str, Value]


def expect(recipe: Recipe, values: Mapping[str, Value]) -> Expectation:
    """The expected results of a model whose tensors have these values.

    Raises:
        RefusedError: onnxruntime refuses the model, or does not give what its nodes give.
    """
    model = recipe.model(values)
    whole = run_model(model, recipe.inputs)
    for name, array in zip(recipe.outputs, whole, strict=True):
        if problem := difference(array, values[name]):
            raise RefusedError(f"onnxruntime gives for {name} as a whole {problem}")
    return Expectation(model, recipe.inputs, {name: values[name] for name in recipe.outputs})


def difference(array: Array, wanted: Value) -> str:
    """The difference beyond what is allowed, as text; "" if there is none."""
    if array.dtype != wanted.array.dtype or array.shape != wanted.shape:
        return f"{array.dtype}{list(array.shape)}, not {wanted.array.dtype}{list(wanted.shape)}"
    with np.errstate(all="ignore"):
        apart = np.abs(array.astype(np.float64) - wanted.array.astype(np.float64))
    wrong = ~(apart <= wanted.error)
    if not wrong.any():
        return ""
    worst = np.unravel_index(int(np.argmax(np.where(wrong, apart - wanted.error, -1))), apart.shape)
    place = [int(i) for i in worst]
    return (
        f"{int(wrong.sum())} of {wrong.size} elements differ: at {place} {array[worst]!s}, not "
        f"{wanted.array[worst]!s} ± {wanted.error[worst]:.3g}"
    )


def try_options(wanted: Expectation, options: Mapping[str, Any]) -> Finding | None:
    """Compile and run on every engine; ``None`` if all is well.

    Raises:
        OptionError: the options do not go together, or not with the model.
    """
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(dir=_FOLDER) as folder:
        warnings.simplefilter("error")
        path = Path(folder) / "model.popx"
        try:
            popc.compile(wanted.model, options={"compression": "fast", **options}).save(path)
        except OptionError:
            raise
        except PopcError as error:
            return Finding("refused", "", f"{type(error).__name__}: {error}")
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            return Finding("fails", "", traceback.format_exc())
        for engine in ENGINES[find_library() is None :]:
            if finding := _run(path, engine, wanted):
                return finding
    return None


def _run(path: Path, engine: str, wanted: Expectation) -> Finding | None:
    try:
        program = popc_runtime.load(os.fspath(path), engine=engine, threads=1)
        feeds = {
            spec.name: _repeated(wanted.feeds[spec.name], spec.shape) for spec in program.inputs
        }
        program.run({name: _other(array) for name, array in feeds.items()})
        runs = [program.run(feeds) for _ in range(2)]
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding
        return Finding("fails", engine, traceback.format_exc())
    for results in runs:
        # By place: an output that is an input has another name.
        for array_or_step, (name, value) in zip(
            results.values(), wanted.outputs.items(), strict=True
        ):
            for array in _samples(array_or_step, value):
                if problem := difference(array, value):
                    return Finding("differs", engine, f"{name}: {problem}")
    return None


def _other(array: Array) -> Array:
    """Other numbers, so that nothing of an earlier run can be taken for what a later one makes."""
    return np.asarray(-2 * array) if array.dtype.kind == "f" else array


def _repeated(array: Array, shape: tuple[int, ...]) -> Array:
    """The same sample for every batch of a step."""
    return np.broadcast_to(array, shape).copy()


def _samples(array: Array, value: Value) -> list[Array]:
    """The results of every batch of a step."""
    if array.ndim == value.array.ndim + 1:
        return list(array)
    return [array]
