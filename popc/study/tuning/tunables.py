"""The table of options that are worth exploring.

A row says which values make sense for a program, and whether results stay the same bit for bit.
Options that say what a user wants (batches, anchors, targets) are not here: they are no matter of
cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from popc.study.advice import Situation
from popc_runtime.ground.frozen import frozen

__all__ = ["TUNABLES", "Dimension", "Tunable", "dimensions_of"]


@frozen
class Tunable:
    """An option and the values to try.

    Attributes:
        option: Its name.
        values: What to try, as an options file would have it; it may depend on the program.
        when: Whether that makes sense for a program.
        exact: Whether results stay the same bit for bit.
    """

    option: str
    values: tuple[Any, ...] | Callable[[Situation], tuple[Any, ...]]
    when: Callable[[Situation], bool] = lambda _: True
    exact: bool = True


@frozen
class Dimension:
    """A dimension of the space that is searched.

    Attributes:
        option: Its name.
        values: To try: all but the one that the program has now.
        exact: See `Tunable`.
    """

    option: str
    values: tuple[Any, ...]
    exact: bool = True


def dimensions_of(situation: Situation, *, allow_inexact: bool = False) -> list[Dimension]:
    """The options to search for a program, in the order of the table.

    Options that the user has set stay as they are.
    """
    found: list[Dimension] = []
    for row in TUNABLES:
        if not (row.exact or allow_inexact) or situation.request.is_set(row.option):
            continue
        current = situation.value(row.option)
        if not row.when(situation):
            continue
        listed = row.values if isinstance(row.values, tuple) else row.values(situation)
        values = tuple(value for value in listed if not _same(value, current))
        if values:
            found.append(Dimension(row.option, values, row.exact))
    return found


def _same(value: Any, current: Any) -> bool:
    """True if an option has a value already."""
    if isinstance(value, dict):
        return dict(current) == value
    return bool(value == current) and isinstance(value, bool) == isinstance(current, bool)


def _trains(situation: Situation) -> bool:
    return situation.trains


def _replicated(situation: Situation) -> bool:
    return bool(situation.value("replicated_graph_count") > 1)


def _updates_replicas(situation: Situation) -> bool:
    return situation.trains and _replicated(situation)


def _has_half(situation: Situation) -> bool:
    tensors = [tensor for chip in situation.report.memory for tensor in chip.tensors]
    return any(tensor.type.startswith("float16") for tensor in tensors)


def _spreads(situation: Situation) -> bool:
    return bool(situation.value("num_ipus") > 1)


def _streams(situation: Situation) -> bool:
    return situation.report.target.host.streaming_memory_bytes > 0


def _trains_and_streams(situation: Situation) -> bool:
    return situation.trains and _streams(situation)


def _parts(situation: Situation) -> tuple[int, ...]:
    """Numbers of equal parts of the batch."""
    found = situation.batch()
    size = found[0] if found is not None else situation.report.samples
    return (0, *(parts for parts in (2, 4, 8, 16, 32) if parts <= size and size % parts == 0))


def _state_locations(situation: Situation) -> tuple[dict[str, Any], ...]:
    off_chip = ({"storage": "off_chip"},) if _streams(situation) else ()
    divided = ({"replicated_tensor_sharding": True},) if _replicated(situation) else ()
    return ({}, *off_chip, *divided)


_SWITCH: Final = (False, True)
_OFF_CHIP: Final[tuple[dict[str, str], ...]] = ({}, {"storage": "off_chip"})

TUNABLES: Final[Sequence[Tunable]] = (
    Tunable(
        "available_memory_proportion", (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    ),
    Tunable("auto_recomputation", ("none", "norm_only", "standard", "recompute_all"), _trains),
    Tunable("batch_serialization_factor", _parts),
    Tunable("virtual_graph_mode", ("off", "auto"), _spreads),
    Tunable("weight_tensor_location", _OFF_CHIP, _streams),
    Tunable("optimizer_state_tensor_location", _state_locations, _trains),
    Tunable("activation_tensor_location", _OFF_CHIP, _trains_and_streams),
    Tunable("enable_outlining", _SWITCH),
    Tunable("subgraph_copying_strategy", ("on_enter_and_exit", "just_in_time")),
    Tunable("merge_var_update", ("off", "auto_tight", "auto_loose", "all"), _trains),
    Tunable("merge_all_reduce_collectives", _SWITCH, _updates_replicas),
    Tunable("scheduling_algorithm", ("choose_best", "clustering", "post_order", "kahn")),
    Tunable("fold_limit_bytes", (0, 65_536, 1 << 20, 1 << 24)),
    Tunable("compression", ("default", "max")),
    Tunable("decompose_grad_sum", _SWITCH, _trains, exact=False),
    Tunable("partials_type", ("float", "half"), _has_half, exact=False),
    Tunable("partials_type_matmuls", ("float", "half"), _has_half, exact=False),
)
