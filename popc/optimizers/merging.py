"""The updates of an optimizer that are merged, as the option merge_var_update says."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from popc.ir import Graph, Op, Tensor, order_closely
from popc.ops.build import build
from popc.optimizers.grouping import Group, UpdateFacts, merge_all, merge_loose, merge_tight
from popc.optimizers.merged import Member, MergedUpdate
from popc.optimizers.spec import Adam, OptimizerSpec
from popc.optimizers.update import UPDATED, WeightUpdate
from popc.options import MergeVarUpdate
from popc_runtime.errors import OptionError

__all__ = ["NOT_MERGED", "Merging", "finish_parts", "merged_updates"]

_OPTION: Final = "merge_var_update"


@dataclass(frozen=True, slots=True)
class Merging:
    """The way in which updates are merged.

    Attributes:
        kind: Which of them are.
        mem_threshold: The most bytes of weights that are updated together, unless ALL are.
        loose_threshold_at_peak: How many bytes gradients may wait in where memory is tightest.
        loss: Leads to the loss: what comes after the last op that does is the backward pass.
    """

    kind: MergeVarUpdate = MergeVarUpdate.OFF
    mem_threshold: int = 1_000_000
    loose_threshold_at_peak: int = 8000
    loss: Tensor | None = None


NOT_MERGED: Final = Merging()


def merged_updates(
    graph: Graph,
    spec: OptimizerSpec,
    merging: Merging,
    updates: Sequence[WeightUpdate],
    kinds: Sequence[Hashable],
) -> list[WeightUpdate]:
    """The updates to make: of single weights, and merged ones.

    Args:
        graph: The graph, up to the gradients.
        spec: The optimizer.
        merging: How to merge.
        updates: One for each weight.
        kinds: Updates whose kinds differ have different arithmetic, beside hyper-parameters.

    Raises:
        OptionError: updates of this optimizer cannot be merged, or not within the thresholds.
    """
    if merging.kind is MergeVarUpdate.OFF or not updates:
        return list(updates)
    _require_elementwise(spec)
    order = _in_order(graph)
    positions = {op: index for index, op in enumerate(order)}
    known = [_position(update.gradient, positions) for update in updates]
    rows = sorted(range(len(updates)), key=lambda index: (known[index], index))
    partitions: dict[Hashable, int] = {}
    described: list[UpdateFacts] = []
    for index in rows:
        type_ = updates[index].weight.type
        key = (_partition(spec, updates[index]), kinds[index])
        number = partitions.setdefault(key, len(partitions))
        described.append(UpdateFacts(type_.size, type_.dtype.itemsize, number, known[index]))
    groups = _groups(described, merging, order)
    return [_update_of(graph, [updates[index] for index in rows], group) for group in groups]


def _require_elementwise(spec: OptimizerSpec) -> None:
    if isinstance(spec, Adam) and spec.mode.startswith("lamb"):
        raise OptionError(
            f"{_OPTION} cannot merge the updates of {spec.mode}: the step of each weight depends "
            "on the norm of this weight",
            subject=_OPTION,
            hint=f"{_OPTION} = off, or an optimizer that works element by element",
        )


def _position(gradient: Tensor, positions: dict[Op, int]) -> int:
    return -1 if gradient.producer is None else positions[gradient.producer]


def _partition(spec: OptimizerSpec, update: WeightUpdate) -> Hashable:
    """The properties that must be equal for updates to be merged."""
    weight, resolution = update.weight, update.resolution
    values: list[Hashable] = []
    for parameter in spec.hyper_parameters():
        if parameter.per_tensor:
            value = resolution.value(parameter.name, weight.name)
            source = None if value.const else resolution.source(parameter.name, weight.name)
            values.append((value.value, value.const, source))
    types = (weight.type.dtype, update.gradient.type.dtype)
    chip = update.settings.virtual_graph
    return (*types, chip, weight.rows, update.sharing, update.scale, *values)


def _groups(updates: Sequence[UpdateFacts], merging: Merging, order: Sequence[Op]) -> list[Group]:
    if merging.kind is MergeVarUpdate.ALL:
        return merge_all(updates)
    if merging.kind is MergeVarUpdate.AUTO_LOOSE:
        return merge_loose(updates, merging.mem_threshold, _slack(order, merging))
    try:
        return merge_tight(updates, max(merging.mem_threshold, _average(updates)))
    except ValueError as error:
        raise OptionError(
            f"{_OPTION} is auto_tight, but {error}",
            subject="merge_var_update_mem_threshold",
            hint="choose a larger merge_var_update_mem_threshold",
        ) from None


def _average(updates: Sequence[UpdateFacts]) -> int:
    """The bytes of a weight on average: smaller groups would be more updates than weights."""
    return -(-sum(update.nbytes for update in updates) // len(updates))


def _update_of(graph: Graph, updates: Sequence[WeightUpdate], group: Group) -> WeightUpdate:
    members = [Member(updates[piece.update], piece.start, piece.end) for piece in group]
    if len(members) == 1 and members[0].is_whole:
        return members[0].update
    return MergedUpdate(graph, members)


def finish_parts(graph: Graph, update: WeightUpdate) -> None:
    """Put the new values of variables together that several merged updates have computed."""
    for variable, parts in update.parts.items():
        settings = update.settings
        rows = [part for _, part in sorted(parts, key=lambda part: part[0])]
        row = build(graph, "Concat", rows, {"axis": 1}, settings=settings).output
        shape = {"shape": variable.type.shape}
        names = [f"{UPDATED}{variable.name}"]
        build(graph, "Reshape", [row], {**shape}, output_names=names, settings=settings)


# -- the order of execution ------------------------------------------------------------------------


def _in_order(graph: Graph) -> list[Op]:
    """The ops, producers before users; otherwise in the order in which they have been added.

    Differentiation adds ops from the end of the model to its beginning, so that this is about how
    they will run.
    """
    return order_closely(
        {op: {user for tensor in op.outputs for user in tensor.uses} for op in graph.ops}
    )


def _slack(order: Sequence[Op], merging: Merging) -> list[int]:
    """For each op, by how much what the backward pass still needs is below its most, in bytes.

    That is what the forward pass, up to the last op that leads to the loss, has computed for later.
    """
    switch = _last_before_loss(order, merging.loss)
    positions = {op: index for index, op in enumerate(order)}
    changes = [0] * (len(order) + 1)
    for index, op in enumerate(order[: switch + 1]):
        for tensor in op.outputs:
            last = max((positions[user] for user in tensor.uses), default=-1)
            if last > switch:
                changes[index] += tensor.type.nbytes
                changes[last + 1] -= tensor.type.nbytes
    kept = list(accumulate(changes[:-1]))
    most = max(kept, default=0)
    return [most - now + merging.loose_threshold_at_peak for now in kept]


def _last_before_loss(order: Sequence[Op], loss: Tensor | None) -> int:
    if loss is None or loss.producer is None:
        return -1
    needed = {loss.producer}
    last = -1
    for index in reversed(range(len(order))):
        if order[index] in needed:
            last = max(last, index)
            needed.update(_producers(order[index]))
    return last


def _producers(op: Op) -> Iterator[Op]:
    return (tensor.producer for tensor in op.present_inputs if tensor.producer is not None)
