"""The rules for replacing an optimizer while a session runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from popc.popart.enums import DataType
from popc.popart.errors import popart_runtime_error
from popc.popart.optimizer_values import OptimizerValue, OptimizerValueMap
from popc.popart.optimizers import SGD, Adam, Adaptive, Optimizer
from popc.popart.option_enums import SGDAccumulatorAndMomentum

__all__ = ["require_replacement"]

# Hyper-parameters in the order in which they are compared, and what messages call them.
_COMPARED: Final = {
    "SGD": (
        ("learningRate", "learning rates"),
        ("weightDecay", "weight decays"),
        ("momentum", "momentums"),
        ("dampening", "dampenings"),
        ("velocityScaling", "velocity scalings"),
        ("nesterov", "nesterov"),
    ),
    "Adam": (
        ("learningRate", "learning rates"),
        ("weightDecay", "weight decays"),
        ("beta1", "beta1s"),
        ("beta2", "beta2s"),
        ("eps", "eps"),
        ("maxWeightNorm", "max weight norms"),
    ),
    "Adaptive": (
        ("learningRate", "learning rates"),
        ("weightDecay", "weight decays"),
        ("alpha", "alphas"),
        ("momentum", "momentums"),
        ("eps", "eps"),
    ),
}


def require_replacement(old: Optimizer, new: Optimizer) -> None:
    """Check that ``new`` may take the place of ``old``.

    Raises:
        popart_runtime_error: it may not; the first reason in PopART's order.
    """
    for problem in _problems(old, new):
        raise popart_runtime_error(f"New optimizer is not a valid replacement. {problem}")


def _problems(old: Optimizer, new: Optimizer) -> Iterator[str]:
    yield from _clip_problems(old, new)
    if old.NAME != new.NAME:
        yield f"Can not replace optimizer of type {old.NAME} with new optimizer of type {new.NAME}"
        return
    yield from _mode_problems(old, new)
    change = _value_problem(old.lossScaling(), new.lossScaling())
    if change:
        yield f"Problem with loss scaling. {change}"
    for name, words in _COMPARED[old.NAME]:
        reason = _map_problem(old.valueMap(name), new.valueMap(name))
        if reason:
            yield f"Problem with {words}. {reason}"
    if isinstance(old, SGD) and isinstance(new, SGD):
        yield from _velocity_problems(old, new)


def _clip_problems(old: Optimizer, new: Optimizer) -> Iterator[str]:
    if len(old.clipNormSettings) != len(new.clipNormSettings):
        yield "Clip norm settings do not match."
    pairs = zip(old.clipNormSettings, new.clipNormSettings, strict=False)
    for index, (one, other) in enumerate(pairs):
        if one != other:
            yield f"Clip norm settings at index {index} do not match."


def _mode_problems(old: Optimizer, new: Optimizer) -> Iterator[str]:
    for kind in (Adam, Adaptive):
        if isinstance(old, kind) and isinstance(new, kind):
            if old.mode is not new.mode:
                yield f"{old.NAME} modes do not match"
            if old.weightDecayMode is not new.weightDecayMode:
                yield "Weight decay modes do not match"


def _map_problem(old: OptimizerValueMap, new: OptimizerValueMap) -> str:
    change = _value_problem(old.getDefault(), new.getDefault())
    if change:
        return f"Default value is not a valid replacement. {change}"
    before, after = old.specific(), new.specific()
    if len(before) != len(after):
        return (
            f"The number of tensors with specific values differs: {len(before)} and {len(after)}."
        )
    for name, value in before.items():
        if name not in after:
            return f"OptimizerValue for tensor {name} is missing in the new optimizer."
        change = _value_problem(value, after[name])
        if change:
            return f"OptimizerValue for tensor {name} is not a valid replacement. {change}"
    return ""


def _value_problem(old: OptimizerValue, new: OptimizerValue) -> str:
    if old.isConst() != new.isConst():
        return "Can not replace a constant value with a non constant value."
    if old.isConst() and old.val() != new.val():
        return "Values are constant but do not match."
    return ""


def _velocity_problems(old: SGD, new: SGD) -> Iterator[str]:
    if _has_velocity(old) != _has_velocity(new):
        yield "One of them needs velocities, and the other does not."
    elif _has_velocity(old):
        if old.accumulatorAndMomentum is not new.accumulatorAndMomentum:
            yield "accumulatorAndMomentum does not match."
        elif _types_of_separate(old) != _types_of_separate(new):
            yield "The types of accumulator and velocity do not match."


def _types_of_separate(optimizer: SGD) -> tuple[DataType, DataType] | None:
    """The types of accumulator and velocity, if they are two tensors."""
    separate = optimizer.accumulatorAndMomentum is SGDAccumulatorAndMomentum.Separate
    return (optimizer.accumType, optimizer.accl1Type) if separate else None


def _has_velocity(optimizer: SGD) -> bool:
    momentum = optimizer.valueMap("momentum").getDefault()
    return not momentum.isConst() or momentum.val() != 0
