"""The rules for replacing an optimizer while a program runs.

A program holds constants and the shape of the update; only hyper-parameters that are not constant
can change, by new values for their variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from popc.optimizers.spec import OptimizerSpec
from popc.optimizers.values import Value

__all__ = ["replacement_problem"]


def replacement_problem(old: OptimizerSpec, new: OptimizerSpec) -> list[str]:
    """The reasons why ``new`` cannot take the place of ``old`` in a program, a sentence each.

    As in PopART: the type must be the same, so must the constness of each hyper-parameter, the
    values of constant ones, the weights with specific values, and the clip norms.
    """
    if type(old) is not type(new) or old.type != new.type:
        return [f"an optimizer of type {old.type} cannot be replaced by one of type {new.type}"]
    return [*_other_settings(old, new), *_hyper_parameters(old, new)]


def _other_settings(old: OptimizerSpec, new: OptimizerSpec) -> Iterator[str]:
    hyper = {spec.name for spec in old.hyper_parameters()}
    for declared in fields(old):
        name = declared.name
        if name in hyper or name == "specific":
            continue
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        if name in ("clip_norms", "gradient_maps"):
            yield f"{name.replace('_', ' ')} are part of the program and cannot change"
        else:
            yield f"{name} is part of the program and cannot change from {before} to {after}"


def _hyper_parameters(old: OptimizerSpec, new: OptimizerSpec) -> Iterator[str]:
    for spec in old.hyper_parameters():
        yield from _change(spec.name, old.value(spec.name), new.value(spec.name))
    if [specific.tensors for specific in old.specific] != [
        specific.tensors for specific in new.specific
    ]:
        yield "the tensors with specific values must stay the same"
        return
    for before, after in zip(old.specific, new.specific, strict=True):
        where = f"of {', '.join(before.tensors)}"
        if before.accum_type is not after.accum_type:
            yield f"accum_type {where} is part of the program and cannot change"
        if set(before.values) != set(after.values):
            yield f"the hyper-parameters with specific values {where} must stay the same"
            continue
        for name, value in before.values.items():
            yield from _change(f"{name} {where}", value, after.values[name])


def _change(what: str, before: Value, after: Value) -> Iterator[str]:
    if before.const != after.const:
        states = {True: "constant", False: "changeable"}
        yield f"{what} is {states[before.const]} and cannot become {states[after.const]}"
    elif before.const and before.value != after.value:
        yield f"{what} is constant and cannot change from {before.value:g} to {after.value:g}"
