"""Ensembles of trees as models write them, and what they say about rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.common import converted
from popc.frontend.rules.ml.scores import rows_of
from popc.frontend.rules.ml.trees_tables import LEAF, MEMBER, MODES, Ensemble, Entries
from popc.ir import AttributeMap, Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType
from popc_runtime.ground.frozen import frozen

__all__ = [
    "TreeScores",
    "base_values",
    "check_targets",
    "listed_ensemble",
    "numbered_ensemble",
    "rows_and_type",
]

_MOST_KEYS: Final = 1 << 62
# The attributes that say where a node goes on, and if that is a leaf: if its test is true, or not.
_CHILDREN: Final = ("nodes_truenodeids", "nodes_falsenodeids")
_LEAVES: Final = ("nodes_trueleafs", "nodes_falseleafs")
_MODES: Final = {**{mode: number for number, mode in enumerate(MODES)}, "LEAF": LEAF}


@frozen
class TreeScores:
    """The scores that trees give rows, and the targets that they give any.

    Attributes:
        node: The node that asks.
        x: The rows.
        tables: The operands behind the rows.
        targets: How many there are.
        aggregate: "SUM", "AVERAGE", "MIN" or "MAX".
    """

    node: Node
    x: Tensor
    tables: Sequence[Array]
    targets: int
    aggregate: str

    def values(self) -> Tensor:
        """The aggregated weights [N, targets]."""
        average = self.aggregate == "AVERAGE"
        scores = self._emit(self.tables, "SUM" if average else self.aggregate)
        count = len(self.tables[3])
        if not average or count == 1:
            return scores
        number = np.array(max(count, 1), scores.type.dtype.storage)
        return self.node.emit("Div", [scores, self.node.constant(number)])

    def are_met(self) -> bool:
        """True if every way meets every target: for each, some tree names it in all its leaves."""
        _, _, children, roots, starts, targets, _ = self.tables
        missing = set(range(self.targets))
        for root, end in pairwise([*roots, len(children)]):
            own = children[root:end]
            leaves = np.unique(-1 - own[own < 0]).tolist()
            spans = (set(targets[starts[leaf] : starts[leaf + 1]].tolist()) for leaf in leaves)
            missing.difference_update(set(next(spans, ())).intersection(*spans))
            if not missing:
                return True
        return False

    def met(self) -> Tensor:
        """The targets that the ways of a row have met, as truths [N, targets]."""
        tables = [*self.tables[:-1], np.ones_like(self.tables[-1])]
        marks = self._emit(tables, "MAX")
        half = np.array(0.5, marks.type.dtype.storage)
        return self.node.emit("Greater", [marks, self.node.constant(half)])

    def _emit(self, tables: Sequence[Array], aggregate: str) -> Tensor:
        operands = [self.x, *map(self.node.constant, tables)]
        attributes: AttributeMap = {"n_targets": self.targets, "aggregate": aggregate}
        return self.node.emit("TreeEnsemble", operands, attributes)


def _floats(node: Node, name: str) -> Array:
    """A list of floats that may be given as a tensor."""
    if node.has(f"{name}_as_tensor"):
        return node.tensor(f"{name}_as_tensor")[1].reshape(-1)
    return np.asarray(node.numbers(name, ()), np.float32)


def _whole(node: Node, name: str) -> Array:
    return np.array(node.integers(name, ()), np.int64)


def listed_ensemble(node: Node, prefix: str) -> Ensemble:
    """Trees of TreeEnsembleClassifier (``prefix`` "class") and TreeEnsembleRegressor ("target").

    Raises:
        ModelError: lists differ in length, or a node is not there.
    """
    ids = _Ids(_whole(node, "nodes_treeids"), _whole(node, "nodes_nodeids"))
    count = len(ids.trees)
    features, values = _whole(node, "nodes_featureids"), _floats(node, "nodes_values")
    names = node.texts("nodes_modes", ())
    missing = _whole(node, "nodes_missing_value_tracks_true")
    missing = missing if len(missing) else np.zeros(count, np.int64)
    children = [_whole(node, name) for name in _CHILDREN]
    columns = (features, values, np.array(names), missing, *children)
    lengths = {count, *(len(column) for column in columns)}
    if len(lengths) > 1:
        raise ModelError(f"lists about nodes have different lengths: {sorted(lengths)}")
    unknown = [name for name in dict.fromkeys(names) if name not in _MODES]
    if unknown:
        raise ModelError(f"there is no mode {unknown[0]!r} of nodes")
    modes = np.array([_MODES[name] for name in names], np.int64)
    inner = modes != LEAF
    yes, no = (
        np.where(inner, ids.find(ids.trees, np.where(inner, side, ids.nodes)), 0)
        for side in children
    )
    return Ensemble(
        *(modes, features, values, missing, yes, no),
        roots=ids.roots(np.concatenate([yes[inner], no[inner]])),
        entries=_entries(node, prefix, ids, modes),
    )


def _entries(node: Node, prefix: str, ids: _Ids, modes: Array) -> Entries:
    nodes = ids.find(_whole(node, f"{prefix}_treeids"), _whole(node, f"{prefix}_nodeids"))
    targets, weights = _whole(node, f"{prefix}_ids"), _floats(node, f"{prefix}_weights")
    if not len(nodes) == len(targets) == len(weights):
        raise ModelError(
            f"leaves have {len(nodes)} nodes, {len(targets)} ids and {len(weights)} weights"
        )
    leaf = modes[nodes] == LEAF if len(modes) else np.zeros(0, bool)
    return Entries(nodes[leaf], targets[leaf], weights[leaf])


class _Ids:
    """The names of nodes: number of the tree, number in the tree."""

    def __init__(self, trees: Array, nodes: Array) -> None:
        if len(trees) != len(nodes):
            raise ModelError(f"nodes have {len(trees)} trees and {len(nodes)} numbers")
        self.trees = trees
        self.nodes = nodes
        self._known, numbers = np.unique(trees, return_inverse=True)
        self._low = int(nodes.min(initial=0))
        self._width = int(nodes.max(initial=0)) - self._low + 1
        if max(len(self._known), 1) * self._width > _MOST_KEYS:
            raise ModelError(f"numbers of nodes reach from {self._low} over {self._width:,}")
        keys = self._keys(numbers, nodes)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        if (self._sorted[1:] == self._sorted[:-1]).any():
            raise ModelError("two nodes of a tree have the same number")

    def _keys(self, numbers: Array, nodes: Array) -> Array:
        keys: Array = numbers * self._width + (nodes - self._low)
        return keys

    def find(self, trees: Array, nodes: Array) -> Array:
        """The places of nodes by name.

        Raises:
            ModelError: there are none of these names.
        """
        if len(trees) != len(nodes):
            raise ModelError(f"leaves have {len(trees)} trees and {len(nodes)} nodes")
        if not len(self.trees):
            bad = np.ones(len(trees), bool)
            places = np.zeros(len(trees), np.int64)
        else:
            numbers = np.minimum(np.searchsorted(self._known, trees), len(self._known) - 1)
            wanted = self._keys(numbers, np.clip(nodes, self._low, self._low + self._width - 1))
            places = np.minimum(np.searchsorted(self._sorted, wanted), len(self._sorted) - 1)
            places = self._order[places]
            bad = (self.trees[places] != trees) | (self.nodes[places] != nodes)
        if bad.any():
            raise ModelError(f"tree {trees[bad][0]} has no node {nodes[bad][0]}")
        return places

    def roots(self, children: Array) -> Array:
        """The first node of each tree, in the order in which trees are listed.

        Raises:
            ModelError: it is below another one.
        """
        _, first = np.unique(self.trees, return_index=True)
        below = np.isin(first, children)
        if below.any():
            place = first[below][0]
            raise ModelError(
                f"tree {self.trees[place]} lists node {self.nodes[place]} first, which is no root"
            )
        return np.sort(first)


def base_values(node: Node, count: int) -> Array:
    """The base values: none, one, or one for each target."""
    bases = _floats(node, "base_values")
    if len(bases) not in (0, 1, count):
        raise ModelError(f"there are {len(bases)} base values for {count} targets")
    return bases


def rows_and_type(node: Node, *names: str) -> tuple[Tensor, np.dtype[Any]]:
    """The rows, and the type that trees are computed in: float64 if they or tables are."""
    doubles = node.input(0).type.dtype is DType.FLOAT64
    wide = any(node.has(name) and node.tensor(name)[0].dtype is DType.FLOAT64 for name in names)
    x = rows_of(node, doubles=doubles)
    if wide and not doubles:
        x = converted(node, x, DType.FLOAT64)
    return x, x.type.dtype.storage


def check_targets(entries: Entries, count: int) -> None:
    """Refuse leaves whose targets are not below ``count``."""
    targets = entries.targets
    if targets.size and not 0 <= targets.min() <= targets.max() < count:
        raise ModelError(f"leaves name target {targets.max()} of {count}")


def numbered_ensemble(node: Node) -> Ensemble:
    """Trees of TreeEnsemble-5: inner nodes and leaves have numbers of their own.

    Raises:
        ModelError: lists differ in length, or a node is not there.
    """
    features, values = _whole(node, "nodes_featureids"), node.tensor("nodes_splits")[1].reshape(-1)
    modes = node.tensor("nodes_modes")[1].reshape(-1).astype(np.int64)
    missing = _whole(node, "nodes_missing_value_tracks_true")
    count = len(modes)
    missing = missing if len(missing) else np.zeros(count, np.int64)
    sides = [
        (_whole(node, to), _whole(node, is_leaf))
        for to, is_leaf in zip(_CHILDREN, _LEAVES, strict=True)
    ]
    lengths = {count, *map(len, (features, values, missing, *sides[0], *sides[1]))}
    if len(lengths) > 1:
        raise ModelError(f"lists about nodes have different lengths: {sorted(lengths)}")
    if count and not 0 <= modes.min() <= modes.max() <= MEMBER:
        raise ModelError(f"there is no mode {modes.max()} of nodes")
    targets, weights = _whole(node, "leaf_targetids"), node.tensor("leaf_weights")[1].reshape(-1)
    if len(targets) != len(weights):
        raise ModelError(f"leaves have {len(targets)} targets and {len(weights)} weights")
    yes, no = (_below(numbers, are_leaves, count, len(weights)) for numbers, are_leaves in sides)
    leaves = np.arange(count, count + len(weights))
    roots = _whole(node, "tree_roots")
    single = (yes[roots] == no[roots]) & (yes[roots] >= count) if _are_below(roots, count) else None
    if single is None:
        raise ModelError(f"roots {roots.tolist()[:3]}... are not all of {count} nodes")
    columns = ((modes, LEAF), (features, 0), (values, 0), (missing, 0), (yes, 0), (no, 0))
    return Ensemble(
        *(_with(column, len(leaves), filling) for column, filling in columns),
        roots=np.where(single, yes[roots], roots),
        entries=Entries(leaves, targets, weights),
        members=_members(node, modes),
    )


def _are_below(numbers: Array, count: int) -> bool:
    return not numbers.size or bool(0 <= numbers.min() <= numbers.max() < count)


def _with(column: Array, count: int, filling: int) -> Array:
    return np.concatenate([column, np.full(count, filling, column.dtype)])


def _below(numbers: Array, are_leaves: Array, count: int, leaves: int) -> Array:
    """Children, leaves behind the ``count`` nodes."""
    leaf = are_leaves != 0
    if not _are_below(numbers[leaf], leaves) or not _are_below(numbers[~leaf], count):
        raise ModelError(f"children are not all of {count} nodes and {leaves} leaves")
    return np.where(leaf, numbers + count, numbers)


def _members(node: Node, modes: Array) -> tuple[Array, ...]:
    """The values of each node that asks for membership: lists that end in what is no number."""
    asking = int((modes == MEMBER).sum())
    if not asking:
        return ()
    if not node.has("membership_values"):
        raise ModelError("nodes ask for members, but membership_values are missing")
    values = node.tensor("membership_values")[1].reshape(-1)
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) not in (asking, asking - 1):
        raise ModelError(f"{asking} nodes ask for members of {len(ends)} lists")
    return tuple(part[~np.isnan(part)] for part in np.split(values, ends))[:asking]
