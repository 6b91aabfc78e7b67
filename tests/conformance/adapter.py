"""Runs a backend test case through the whole of popc: compile, save, load, run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import popc
import popc_runtime
from popc_runtime.errors import DataDependentShapeError
from tests.conformance.cases import Case


@dataclass(frozen=True, slots=True)
class CompiledCase:
    """A case with one of its sets of inputs, as a program.

    Attributes:
        archive: The program.
        inputs: What it takes.
        outputs: What it is to give.
        tries: How many sets of inputs were bound in turn, until a program could be made.
    """

    archive: popc.Archive
    inputs: dict[str, Any]
    outputs: list[Any]
    tries: int


def compile_case(case: Case, **options: Any) -> Iterator[CompiledCase]:
    """Programs of ``case``, one for each of its sets of inputs, compiled with ``options``.

    Inputs of sequence or optional type are always bound, since their structure decides the
    program.  If a shape depends on the value of a tensor input, all integer and bool inputs are
    bound as well, and if that is not enough, everything.

    Raises:
        Exception: whatever popc raises.
    """
    for inputs, outputs in case.data_sets:
        named = dict(zip((info.name for info in case.inputs()), inputs, strict=False))
        for tries, bound in enumerate(_bindings(case, named), start=1):
            try:
                archive = _compile(case, named, bound, options)
            except DataDependentShapeError:
                if len(bound) == len(named):
                    raise
                continue
            rest = {name: np.asarray(named[name]) for name in named if name not in bound}
            yield CompiledCase(archive, rest, flatten(outputs), tries)
            break


def run_case(case: Case, folder: Any) -> bool:
    """Check every data set of ``case``; whether inputs had to be bound at compile time.

    Raises:
        Exception: whatever popc raises, or AssertionError on a wrong result.
    """
    tries = 1
    for compiled in compile_case(case):
        path = folder / "case.popx"
        compiled.archive.save(path, force=True)
        results = popc_runtime.load(path).run(compiled.inputs)
        _check(list(results.values()), compiled.outputs, case)
        tries = compiled.tries
    return tries > 1


def _bindings(case: Case, named: dict[str, Any]) -> list[set[str]]:
    """The sets of inputs to bind, smallest first."""
    structured = {
        info.name
        for info in case.inputs()
        if info.name in named and not info.type.HasField("tensor_type")
    }
    discrete = {
        name for name in named.keys() - structured if np.asarray(named[name]).dtype.kind in "iub"
    }
    return [structured, structured | discrete, set(named)]


def _compile(
    case: Case, named: dict[str, Any], bound: set[str], options: dict[str, Any]
) -> popc.Archive:
    return popc.compile(
        case.model,
        shapes={name: np.shape(value) for name, value in named.items() if name not in bound},
        bind={name: named[name] for name in named if name in bound},
        options=options,
    )


def flatten(values: Any) -> list[Any]:
    """Arrays of nested lists in order; ``None`` disappears."""
    if values is None:
        return []
    if isinstance(values, (list, tuple)):
        return [item for value in values for item in flatten(value)]
    return [np.asarray(values)]


def _check(results: list[Any], expected: list[Any], case: Case) -> None:
    assert len(results) == len(expected), f"{len(results)} outputs instead of {len(expected)}"
    for ours, theirs in zip(results, expected, strict=True):
        assert ours.dtype == theirs.dtype, f"{ours.dtype} instead of {theirs.dtype}"
        assert ours.shape == theirs.shape, f"{ours.shape} instead of {theirs.shape}"
        np.testing.assert_allclose(ours, theirs, rtol=case.rtol, atol=case.atol)
