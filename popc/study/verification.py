"""Compare what popc computes with what another runtime computes."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from popc.frontend import LoadedModel, bound_values, expose_tensors, first_values
from popc.requests import Requests
from popc_runtime import Executable, TensorSpec, load
from popc_runtime.data.words import labelled, words_of
from popc_runtime.errors import ResourceError, SpokenHint, UsageError
from popc_runtime.format import Array, LabelKind, is_archive
from popc_runtime.ground.frozen import frozen

__all__ = ["Comparison", "compare", "run_onnxruntime", "verify_file"]

# Rounding of half-precision and of quantised values moves a result by one step of the coarse grid.
_COARSE_ATOL = 2e-3
_BOUND = "give each value that was bound at compile time"


@frozen
class Comparison:
    """One tensor as computed by both sides.

    Attributes:
        name: ONNX name of the tensor.
        node: The node that produces it ("" for inputs).
        type: dtype and shape.
        difference: Largest absolute difference.
        allowed: What the tolerance allows at that element.
        agrees: Whether every element is within the tolerance.
        reason: Why not, in a few words.
        program: Of an archive with several programs, the one that was compared; else "".
    """

    name: str
    node: str
    type: str
    difference: float
    allowed: float
    agrees: bool
    reason: str = ""
    program: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return asdict(self)


def compare(
    name: str, ours: Array, theirs: Array, *, rtol: float, atol: float, node: str = ""
) -> Comparison:
    """Compare two arrays; ``atol`` is relative to the largest finite value of ``theirs``."""
    dtype = "string" if ours.dtype == object else ours.dtype
    type_ = f"{dtype}[{','.join(map(str, ours.shape))}]"
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        other = f"{theirs.dtype}[{','.join(map(str, theirs.shape))}]"
        return Comparison(name, node, type_, np.inf, 0.0, agrees=False, reason=f"expected {other}")
    if ours.size == 0:
        return Comparison(name, node, type_, 0.0, 0.0, agrees=True)
    if ours.dtype.kind not in "fiu":
        equal = bool((ours == theirs).all())
        reason = "" if equal else f"{int((ours != theirs).sum()):,} elements differ"
        return Comparison(name, node, type_, float(not equal), 0.0, agrees=equal, reason=reason)
    wide, reference = ours.astype(np.float64), theirs.astype(np.float64)
    same = (wide == reference) | (np.isnan(wide) & np.isnan(reference))
    finite = np.abs(reference[np.isfinite(reference)])
    peak = float(finite.max(initial=0.0))
    coarse = max(atol, _COARSE_ATOL) if ours.dtype == np.float16 else atol
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(wide - reference))
    difference = np.where(np.isnan(difference), np.inf, difference)
    allowed = rtol * np.abs(np.where(np.isfinite(reference), reference, 0.0)) + coarse * peak
    worst = int(np.argmax(difference - allowed))
    excess = int((difference > allowed).sum())
    return Comparison(
        name,
        node,
        type_,
        float(difference.reshape(-1)[worst]),
        float(allowed.reshape(-1)[worst]),
        agrees=excess == 0,
        reason=f"{excess:,} of {ours.size:,} elements differ" if excess else "",
    )


def run_onnxruntime(
    model: LoadedModel,
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    *,
    optimise: bool = False,
) -> list[Array]:
    """The tensors named ``outputs``, computed by onnxruntime.

    Raises:
        ResourceError: onnxruntime is not installed, or cannot run the model.
    """
    if not outputs:
        return []
    _require_onnxruntime()
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    if not optimise:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            expose_tensors(model, outputs), settings, providers=["CPUExecutionProvider"]
        )
        known = {input_.name for input_ in session.get_inputs()}
        arrays: list[Array] = session.run(
            list(outputs), {name: array for name, array in inputs.items() if name in known}
        )
    except Exception as error:
        raise ResourceError(f"onnxruntime cannot run the model: {error}") from error
    return arrays


def _require_onnxruntime() -> None:
    if importlib.util.find_spec("onnxruntime") is None:
        raise ResourceError(
            "onnxruntime is not installed", hint="install it with pip install 'popc[verify]'"
        )


def verify_file(
    requests: Requests,
    file: Path,
    inputs: Sequence[str],
    *,
    every: bool,
    rtol: float,
    atol: float,
    compiled: Callable[[Requests], Executable],
    program: str = "",
) -> list[Comparison]:
    """Compare a model, or an archive and its model, with onnxruntime on the same inputs.

    Args:
        requests: The model.
        file: The model too, or the archive.
        inputs: ``NAME=VALUE``; random numbers for inputs that are not named.
        every: Compare all tensors of the model.
        rtol, atol: See `compare`.
        compiled: Compiles and loads the model that was read.
        program: The program to compare; "" for all, or the one that takes the inputs.

    Raises:
        UsageError: an archive is given without its model.
        ResourceError: onnxruntime is missing or cannot run the model.
    """
    archived = is_archive(file)
    _require_onnxruntime()  # before a long compilation, not after
    request = requests.programs[0]
    if archived and request.model == file:
        raise UsageError(
            "an archive is verified against its model",
            hint=SpokenHint(
                "give requests for the model that it was compiled from", "--model MODEL.onnx"
            ),
        )
    if archived and every:
        raise UsageError(
            "an archive does not return all tensors of its model",
            hint=SpokenHint(
                "give the model instead", "--all compiles the model: give it instead of the archive"
            ),
        )
    loaded = request.load()
    requests = requests.of_model(loaded)
    if every:
        requests = requests.with_outputs(loaded.tensor_names())
    executable = load(os.fspath(file)) if archived else compiled(requests)
    bound = bound_values(loaded, request.bind)
    rows: list[Comparison] = []
    kept = first_values(loaded, request.bindings(loaded))
    for chosen, label in _chosen(executable, program, inputs):
        if kept:
            chosen.state.reset()
        results, given = _run_popc(chosen, inputs)
        _require_all_inputs(loaded, {*bound, *given, *kept})
        names = [name for name in results if name in loaded.tensor_names()]
        feeds = {**loaded.as_inputs(bound), **kept, **given, **dict(_as_words(chosen, given))}
        reference = run_onnxruntime(loaded, feeds, names)
        specs = {spec.name: spec for spec in chosen.outputs}
        for name, array in zip(names, reference, strict=True):
            node = loaded.producer_of(name)
            ours, theirs = _comparable(specs[name], results[name], array)
            row = compare(name, ours, theirs, rtol=rtol, atol=atol, node=node)
            rows.append(replace(row, program=label))
    return rows


def _as_words(executable: Executable, given: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """The inputs of strings by name, as words.

    Raises:
        UsageError: one has places of words that are no labels, which onnxruntime cannot be given.
    """
    for spec in executable.inputs:
        if spec.label_kind is None or spec.name not in given:
            continue
        words, array = words_of(given[spec.name]), given[spec.name]
        if words is None and array.size and not 0 <= array.min() <= array.max() < len(spec.labels):
            raise UsageError(
                f"input {spec.name!r} has places of words that are no labels, for which "
                "onnxruntime needs the words",
                hint="give an array of strings",
            )
        yield spec.name, labelled(spec, array) if words is None else words


def _comparable(spec: TensorSpec, ours: Array, theirs: Any) -> tuple[Array, Array]:
    """A result of both sides as arrays: of words, and of the columns of a list of maps."""
    if spec.label_kind is LabelKind.COLUMNS:
        rows = [[row.get(label, np.nan) for label in spec.labels] for row in theirs]
        return ours, np.array(rows, ours.dtype).reshape(len(rows), len(spec.labels))
    return labelled(spec, ours), theirs


def _chosen(
    executable: Executable, program: str, inputs: Sequence[str]
) -> list[tuple[Executable, str]]:
    """The programs that are compared, and how rows call them.

    Raises:
        UsageError: there is no such program.
    """
    if program:
        return [(executable.program(program), program)]
    if inputs or len(executable.programs) == 1:
        return [(executable, "")]
    return [(each, each.name) for each in executable.programs]


def _require_all_inputs(model: LoadedModel, given: set[str]) -> None:
    missing = [info.name for info in model.inputs if info.name not in given]
    if missing:
        raise UsageError(
            f"the model takes {', '.join(missing)}, which the archive does not",
            hint=SpokenHint(
                f"{_BOUND} in bind; if nothing was bound, the requests are for another model",
                f"{_BOUND} with --bind NAME=VALUE; if nothing was bound, --model names another "
                "model",
            ),
        )


def _run_popc(
    executable: Executable, inputs: Sequence[str]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Results and inputs of one run."""
    from popc.inputs.arrays import drawn_names, gather_inputs, may_not_suit, random_inputs

    given = gather_inputs(inputs, executable)[0]
    drawn = random_inputs(executable, given)
    with may_not_suit([*drawn_names(inputs, executable), *drawn]):
        arrays = {**given, **drawn}
        return executable.run(arrays), arrays
