"""Give a running program another optimizer, as far as it was compiled for that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from popc.optimizers import OptimizerSpec, parse_optimizer, replacement_problem
from popc_runtime import Executable
from popc_runtime.errors import OptionError, UsageError

__all__ = ["update_optimizer"]


def update_optimizer(executable: Executable, optimizer: Mapping[str, Any]) -> None:
    """Replace the optimizer of a program that trains, from the next run on.

    As in PopART, only values that were compiled as changeable (``const = false``) may differ: the
    type, the constness of each value, the values of constants, clip norms and the weights that
    have values of their own are parts of the program.

    Args:
        executable: A program that trains.
        optimizer: The table that `popc.compile` takes as ``optimizer``.

    Raises:
        OptionError: the table is wrong, or asks for what cannot be replaced; lists everything, and
            nothing has changed.
        UsageError: the program does not train.
    """
    training = executable.manifest.training
    if training is None:
        raise UsageError(
            "the program has no optimizer", hint="compile the model as a program that trains"
        )
    old, new = parse_optimizer(json.loads(training.settings)), parse_optimizer(optimizer)
    problems = replacement_problem(old, new)
    if problems:
        raise OptionError(
            "the optimizer cannot be replaced", subject="optimizer", details=tuple(problems)
        )
    groups: dict[str, dict[str, float]] = {}
    for row in training.hyper_parameters:
        if row.variable:
            groups.setdefault(row.group, {})[row.name] = _value(new, row.name, row.group)
    for group, values in groups.items():
        executable.state.set_hyper_parameters(values, group=group)


def _value(spec: OptimizerSpec, name: str, group: str) -> float:
    for specific in spec.specific:
        if ", ".join(specific.tensors) == group:
            return specific.values[name].value
    return spec.value(name).value
