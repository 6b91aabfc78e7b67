"""Divide a model among chips without being told how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Final

import numpy as np

from popc.ir import Graph, Op, Tensor, order_closely
from popc_runtime.errors import OptionError

__all__ = ["balanced_cuts", "best_cuts_naively", "split_automatically", "varying_ops"]

# Ops whose gradients need neither operands nor results.
_LINEAR: Final = frozenset(
    {
        "Add", "Boundary", "Cast", "Concat", "CopyVarUpdate", "Expand", "HostStore", "IpuCopy",
        "Neg", "Pad", "ReduceMean", "ReduceSum", "Reshape", "Slice", "Split", "Squeeze", "Sub",
        "Sum", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip


def split_automatically(
    graph: Graph, chips: int, ratios: Sequence[float] = (), *, accumulates: bool, trains: bool
) -> int:
    """Put consecutive ops of ``graph`` on consecutive chips, all of which get about the same.

    Returns: how many ops.

    What counts is the bytes of the weights that an op is the first to read (twice if gradients
    accumulate), and in training those of the results that the backward pass needs.

    Raises:
        OptionError: there are fewer ops than chips.
    """
    order = varying_ops(graph)
    shares = [float(ratio) for ratio in ratios] or [1.0] * chips
    wanted = sum(share > 0 for share in shares)
    if len(order) < wanted:
        raise OptionError(
            f"virtual_graph_mode is auto, but {len(order)} ops cannot be divided among {wanted} "
            "chips",
            subject="virtual_graph_mode",
            hint="set num_ipus to a smaller number",
        )
    costs = _costs(order, 2 if accumulates else 1, trains=trains)
    crossing = _crossing_bytes(order)
    cuts = balanced_cuts(costs, shares, crossing)
    for chip, (start, end) in enumerate(pairwise(cuts)):
        for op in order[start:end]:
            op.settings = replace(op.settings, virtual_graph=chip)
    return len(order)


def varying_ops(graph: Graph) -> list[Op]:
    """The ops that depend on what the host sends, as they follow each other in the model.

    Others, such as transfers and what is done to weights, go where they are needed.
    """
    follows = {op: dict.fromkeys(user for t in op.outputs for user in t.uses) for op in graph.ops}
    varying: set[Tensor] = set(graph.inputs)
    found: list[Op] = []
    for op in order_closely(follows):
        if not op.inputs or any(tensor in varying for tensor in op.present_inputs):
            varying.update(op.outputs)
            if op.inputs and op.outputs:
                found.append(op)
    return found


def _costs(order: Sequence[Op], copies_of_weights: int, *, trains: bool) -> list[int]:
    seen: set[Tensor] = set()
    costs: list[int] = []
    for op in order:
        weights = [
            operand for operand in dict.fromkeys(op.present_inputs) if operand.kind.outlasts_runs
        ]
        new = [weight for weight in weights if weight not in seen]
        seen.update(new)
        cost = copies_of_weights * sum(tensor.type.nbytes for tensor in new)
        if trains:
            cost += sum(output.type.nbytes for output in op.outputs if _is_kept(output))
        costs.append(cost)
    return costs if any(costs) else [sum(t.type.nbytes for t in op.outputs) for op in order]


def _is_kept(tensor: Tensor) -> bool:
    """True if the backward pass is likely to need ``tensor``."""
    return any(user.op_type not in _LINEAR for user in tensor.uses)


def _crossing_bytes(order: Sequence[Op]) -> list[int]:
    """For each place between ops, what would have to be copied if it became a border."""
    position = {op: index for index, op in enumerate(order)}
    change = [0] * (len(order) + 2)
    for index, op in enumerate(order):
        for tensor in op.outputs:
            last = max((position.get(user, index) for user in tensor.uses), default=index)
            change[index + 1] += tensor.type.nbytes
            change[last + 1] -= tensor.type.nbytes
    return [int(total) for total in np.cumsum(change)[: len(order) + 1]]


def balanced_cuts(
    costs: Sequence[int], shares: Sequence[float], crossing: Sequence[int]
) -> tuple[int, ...]:
    """The cuts in a row of ops: the k-th chip gets those from the k-th place to the next.

    Of all ways to cut, one with the least load, which is the largest of cost / share over the
    chips; and of these one with the fewest bytes ``crossing`` between chips.  A chip whose share is
    0 gets nothing, every other one at least one op.

    Args:
        costs: Of each op.
        shares: Of each chip.
        crossing: Bytes that are live in front of each op, and at the end.
    """
    sums = np.concatenate([[0], np.cumsum(np.asarray(costs, np.float64))])
    busy = [chip for chip, share in enumerate(shares) if share > 0]
    parts = [shares[chip] for chip in busy]
    limit = _least_load(sums, parts)
    places = _cheapest_cuts(sums, parts, np.asarray(crossing, np.float64), limit)
    starts = dict(zip(busy, places, strict=True))
    cuts = [0]
    for chip in range(len(shares)):
        cuts.append(starts.get(chip, cuts[-1]))
    return tuple(cuts)


def _least_load(sums: np.ndarray, parts: Sequence[float]) -> float:
    """The least possible largest load: for each number of chips and each end, the best so far."""
    count = len(sums) - 1
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    for share in parts:
        following = np.full(count + 1, np.inf)
        for end in range(1, count + 1):
            loads = np.maximum(best[:end], (sums[end] - sums[:end]) / share)
            following[end] = loads.min()
        best = following
    return float(best[count])


def _cheapest_cuts(
    sums: np.ndarray, parts: Sequence[float], crossing: np.ndarray, limit: float
) -> list[int]:
    """The end of each part, if none is loaded more than ``limit`` and the least crosses."""
    count = len(sums) - 1
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    choices: list[np.ndarray] = []
    for share in parts:
        following = np.full(count + 1, np.inf)
        chosen = np.zeros(count + 1, np.int64)
        for end in range(1, count + 1):
            load = (sums[end] - sums[:end]) / share
            bytes_ = np.where(load <= limit, best[:end], np.inf)
            chosen[end] = int(bytes_.argmin())
            following[end] = bytes_[chosen[end]] + crossing[end]
        choices.append(chosen)
        best = following
    places = [count]
    for chosen in reversed(choices):
        places.append(int(chosen[places[-1]]))
    return places[-2::-1]


def best_cuts_naively(costs: Sequence[int], shares: Sequence[float]) -> float:
    """The least load of `balanced_cuts`, by trying all ways to cut."""
    busy = [share for share in shares if share > 0]
    inner = combinations(range(1, len(costs)), len(busy) - 1)
    return min(
        max(
            sum(costs[start:end]) / share
            for (start, end), share in zip(pairwise((0, *cut, len(costs))), busy, strict=True)
        )
        for cut in inner
    )
