"""Arguments of a run as inputs by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from popc_runtime.errors import InputMismatchError, UsageError
from popc_runtime.format import TensorSpec
from popc_runtime.ground.hints import Any

__all__ = ["inputs_by_name", "inputs_by_position"]


def inputs_by_name(inputs: object, named: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs of a mapping and of keyword arguments together.

    Raises:
        UsageError: ``inputs`` is no mapping of names, or an input is in both.
    """
    if inputs is None:
        return named
    if not isinstance(inputs, Mapping):
        raise UsageError(
            f"inputs are given by name, not as an object of type {type(inputs).__name__}",
            hint='run({"x": array}) or run(x=array); model(array) takes them in their order',
        )
    wrong = [name for name in inputs if not isinstance(name, str)]
    if wrong:
        raise UsageError(f"names of inputs are text, not {wrong[0]!r}")
    twice = sorted(set(inputs).intersection(named)) if named else ()
    if twice:
        raise UsageError(f"input {twice[0]!r} is given in the mapping and by keyword")
    return {**inputs, **named} if named else inputs


def inputs_by_position(
    specs: Sequence[TensorSpec], arrays: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The inputs of a call with positional and keyword arguments.

    Raises:
        InputMismatchError: there are more than the program has inputs.
        UsageError: an input is given twice.
    """
    listed = ", ".join(map(str, specs))
    if len(arrays) > len(specs):
        raise InputMismatchError(
            f"{len(arrays)} inputs are given, but the program has {len(specs)}",
            hint=f"it takes {listed}, in this order" if specs else "",
        )
    found = {spec.name: array for spec, array in zip(specs, arrays, strict=False)}
    twice = [name for name in found if name in named]
    if twice:
        raise UsageError(
            f"input {twice[0]!r} is given by position and by keyword",
            hint=f"positions are {listed}",
        )
    return {**found, **named}
