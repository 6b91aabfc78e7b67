"""Decision trees as the tables of the op: see `popc_runtime.kernels.trees`.

The op asks whether a number is at most another one, or equal to it.  Every other comparison, and
the side that missing values go to, can be said with that:

* below t is at most the number before t;
* above t is, for the negative number, below -t, and so on;
* what is not a number is never at most anything, so the opposite is asked, and children change
  places, where it belongs to the other side.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, Final

import numpy as np

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from popc_runtime.ground.frozen import frozen

__all__ = ["LEAF", "MEMBER", "MODES", "Ensemble", "Entries", "tables_of"]

# In the order of their numbers in ai.onnx.ml 5.
MODES: Final = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
MEMBER: Final = 6
LEAF: Final = 7
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ = range(6)
_OPPOSITE: Final = np.array([_GT, _GTE, _LT, _LEQ])
_NEGATED, _EQUAL, _MISSING, _BITS = 1, 2, 4, 3  # as in popc_runtime/kernels/trees.py
_MOST_FEATURES: Final = 1 << 28
_MOST: Final = (1 << 31) - 1


@frozen
class Entries:
    """The entries of leaves, in the order of the model: node of the leaf, target, weight."""

    nodes: Array
    targets: Array
    weights: Array


@frozen
class Ensemble:
    """Nodes of all trees as a model says them.

    Attributes:
        modes: Numbers of `MODES`, `MEMBER` or `LEAF`.
        features, values: What is compared with what.
        missing: Whether what is not a number goes to the first child in any case.
        yes, no: Children, as numbers of nodes.
        roots: Where trees begin.
        entries: Of the leaves.
        members: The values of each node that asks for membership, in the order of nodes.
    """

    modes: Array
    features: Array
    values: Array
    missing: Array
    yes: Array
    no: Array
    roots: Array = field(kw_only=True)
    entries: Entries = field(kw_only=True)
    members: tuple[Array, ...] = field(default=(), kw_only=True)


def tables_of(ensemble: Ensemble, dtype: np.dtype[Any]) -> list[Array]:
    """The operands of the op behind the rows; numbers are of type ``dtype``.

    Each tree is laid out level by level, with siblings side by side.

    Raises:
        ModelError: nodes do not make trees.
    """
    _check(ensemble)
    simple = _ordered(_without_members(ensemble), dtype)
    places = _places(simple)
    return _written(simple, places, dtype)


def _check(ensemble: Ensemble) -> None:
    count = len(ensemble.modes)
    inner = ensemble.modes != LEAF
    children = np.concatenate([ensemble.yes[inner], ensemble.no[inner], ensemble.roots])
    if children.size and not 0 <= children.min() <= children.max() < count:
        raise ModelError(f"the trees name nodes that are not there, beside {count}")
    named = np.bincount(children, minlength=count)
    if named.max(initial=0) > 1:
        raise ModelError(f"node {int(named.argmax())} of the trees is below several others")
    features = ensemble.features[inner]
    if features.size and not 0 <= features.min() <= features.max() < _MOST_FEATURES:
        raise ModelError("the trees compare features that are not there")
    if max(count, len(ensemble.entries.nodes)) + sum(map(len, ensemble.members)) > _MOST // 4:
        raise ModelError(f"the trees are too large, with {count:,} nodes")


def _without_members(ensemble: Ensemble) -> Ensemble:
    """Membership as one question after the other whether the number is equal to a value.

    All but the last of them lead to what is below membership by a *stand-in*: -1 less its number.
    """
    asking = np.flatnonzero(ensemble.modes == MEMBER)
    if not asking.size:
        return ensemble
    lists = {name: list(getattr(ensemble, name)) for name in _COLUMNS}
    for node, members in zip(asking, ensemble.members, strict=True):
        first, yes, no = int(node), int(ensemble.yes[node]), int(ensemble.no[node])
        if not len(members):
            raise ModelError(f"node {first} of the trees asks for a member of nothing")
        chain = [first, *range(len(lists["modes"]), len(lists["modes"]) + len(members) - 1)]
        for column in lists.values():
            column.extend([column[first]] * (len(members) - 1))
        for place, (own, value) in enumerate(zip(chain, members, strict=True)):
            last = place == len(chain) - 1
            lists["modes"][own], lists["values"][own] = _EQ, value
            lists["yes"][own] = yes if last else -1 - yes
            lists["no"][own] = no if last else chain[place + 1]
    columns = (np.array(lists[name]) for name in _COLUMNS)
    return Ensemble(*columns, roots=ensemble.roots, entries=ensemble.entries)


_COLUMNS: Final = ("modes", "features", "values", "missing", "yes", "no")


def _ordered(ensemble: Ensemble, dtype: np.dtype[Any]) -> Ensemble:
    """Questions as the op has them: features with their bits, thresholds, and children in place."""
    modes, missing = ensemble.modes.copy(), ensemble.missing.astype(bool)
    order = modes < _EQ
    turned = order & missing
    modes[turned] = _OPPOSITE[modes[turned]]
    unequal = modes == _NEQ  # which what is not a number is in any case
    swapped = turned | unequal
    negated = (modes == _GTE) | (modes == _GT)
    values = ensemble.values.astype(dtype)
    values = np.where(negated, -values, values)
    strict = (modes == _LT) | (modes == _GT)
    below = np.nextafter(values, np.array(-np.inf, dtype))
    below = np.where(values == -np.inf, np.array(np.nan, dtype), below)
    bits = _NEGATED * negated + _EQUAL * ((modes == _EQ) | unequal)
    bits = bits + _MISSING * ((modes == _EQ) & missing)
    return replace(
        ensemble,
        features=ensemble.features.astype(np.int64) << _BITS | bits,
        values=np.where(strict, below, values),
        yes=np.where(swapped, ensemble.no, ensemble.yes),
        no=np.where(swapped, ensemble.yes, ensemble.no),
    )


@frozen
class _Places:
    """The nodes in their new order, and the place behind which the children of each lie."""

    nodes: Array
    children: Array
    roots: Array


def _places(ensemble: Ensemble) -> _Places:
    """Level by level through all trees at once, then tree by tree."""
    inner = ensemble.modes != LEAF
    nodes, trees = ensemble.roots.astype(np.int64), np.arange(len(ensemble.roots))
    levels: list[tuple[Array, Array, Array]] = []
    begin = 0
    while nodes.size:
        asks = (nodes >= 0) & inner[nodes]
        count = int(asks.sum())
        behind = begin + len(nodes)
        children = np.full(len(nodes), -1)
        children[asks] = behind + 2 * np.arange(count) + 1
        levels.append((nodes, trees, children))
        below = nodes[asks]
        nodes = np.stack([ensemble.yes[below], ensemble.no[below]], axis=1).reshape(-1)
        trees, begin = np.repeat(trees[asks], 2), behind
    if not levels:
        empty = np.zeros(0, np.int64)
        return _Places(empty, empty, empty)
    nodes, trees, children = (np.concatenate(part) for part in zip(*levels, strict=True))
    order = np.argsort(trees, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    moved = np.where(children < 0, -1, place[children])
    return _Places(nodes[order], moved[order], place[: len(ensemble.roots)])


def _written(ensemble: Ensemble, places: _Places, dtype: np.dtype[Any]) -> list[Array]:
    """The tables; stand-ins hold what those hold that they stand for."""
    nodes, children = places.nodes.copy(), places.children.copy()
    stand_ins = nodes < 0
    where = np.zeros(len(ensemble.modes), np.int64)
    where[nodes[~stand_ins]] = np.flatnonzero(~stand_ins)
    nodes[stand_ins] = -1 - nodes[stand_ins]
    children[stand_ins] = children[where[nodes[stand_ins]]]
    leaf = ensemble.modes[nodes] == LEAF
    own = leaf & ~stand_ins
    number = np.full(len(ensemble.modes), -1)
    number[nodes[own]] = np.arange(int(own.sum()))
    children[leaf] = -1 - number[nodes[leaf]]
    entries = ensemble.entries
    reached = number[entries.nodes] >= 0
    order = np.argsort(number[entries.nodes[reached]], kind="stable")
    counts = np.bincount(number[entries.nodes[reached]], minlength=int(own.sum()))
    tables = [
        np.where(leaf, 0, ensemble.features[nodes]),
        np.where(leaf, 0, ensemble.values[nodes]).astype(dtype),
        children,
        places.roots,
        np.concatenate([[0], np.cumsum(counts)]),
        entries.targets[reached][order],
        entries.weights[reached][order].astype(dtype),
    ]
    return [table if table.dtype == dtype else table.astype(np.int32) for table in tables]
