"""New values of variables that are computed in the memory of the old ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from popc.ir import Op, Tensor
from popc.ops.aliases import Aliases
from popc.ops.constraints import Precedence, VariableUpdate, find_updates
from popc.ops.overwriting import overwritable

__all__ = ["find_settled"]

# How far back to look for the ops that a new value of a variable depends on.
_CLOSE: Final = 32


def find_settled(ops: Sequence[Op], aliases: Aliases, precedence: Precedence) -> frozenset[Tensor]:
    """New values of variables that are computed in the memory of the old ones, in every order."""
    updates: dict[Op, list[VariableUpdate]] = {}
    for update in find_updates(ops):
        updates.setdefault(update.updater, []).append(update)
    return frozenset(
        updater.output
        for updater, found in updates.items()
        if updater not in aliases.views
        and updater in precedence.successors
        and _fits(updater, found, aliases)
        and all(
            updater in precedence.successors.get(reader, ()) or reader in _close_before(updater)
            for update in found
            for reader in update.readers
            if reader not in aliases.views
        )
    )


def _close_before(op: Op) -> set[Op]:
    """Ops that ``op`` depends on, but only the nearest of them."""
    nearest = [op]
    for near in nearest:  # grows while it is walked
        producers = [t.producer for t in near.present_inputs if t.producer is not None]
        nearest += producers if len(nearest) < _CLOSE else []
    return set(nearest)


def _fits(updater: Op, updates: Sequence[VariableUpdate], aliases: Aliases) -> bool:
    """True if all of ``updater``'s result is copied, to where it reads only what it may replace."""
    result, places = updater.output, aliases.places
    values = [update.copier.operand(1) for update in updates]
    copied = sum(value.type.nbytes for value in values if places[value].root is result)
    targets = {places[update.copier.operand(0)].root for update in updates}
    allowed = overwritable(updater)
    return copied == result.type.nbytes and all(
        index in allowed and operand.type == result.type
        for index, operand in enumerate(updater.inputs)
        if operand is not None and places[operand].root in targets
    )
