"""Ensembles of decision trees.

Operands are rows x [N, F] and lists about the nodes of all trees: ``features``, ``thresholds`` (of
the type of x) and ``children``; ``roots``, the node at which each tree begins; and lists about what
leaves hold: ``starts`` [leaves + 1], ``targets`` and ``weights`` (of the type of x).

A row at node i goes to node ``children[i] - 1`` if the node's question is answered with yes, else
to node ``children[i]``.  The question is about the number of feature ``features[i] >> 3``: whether
it is at most ``thresholds[i]``.  The other bits of ``features[i]`` change it: 1 asks about the
negative number, 2 whether it is equal, 4 says yes to what is not a number, which is no otherwise.
Children come behind their parents, so that every way ends.  A child below zero makes a leaf, the
one of number ``-1 - children[i]``, which has the entries from its start to the next.

The result [N, n_targets] is the sum, least or largest (``aggregate``) of the weights that a row
meets for each target, in the order of trees and of entries; 0 if it meets none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.ground.frozen import frozen
from popc_runtime.kernels.core.binding import Binding, Calls, Kernel

__all__ = ["KERNELS"]

_MOST_PLACES: Final = 1 << 20  # rows of a block times trees
_NEGATED, _EQUAL, _MISSING, _BITS = 1, 2, 4, 3  # of features

# From results so far, weights, and whether there have been any: the results with them.
Combine: TypeAlias = Callable[[Array, Array, Array], Array]


@frozen
class _Forest:
    """The operands that stand for trees, as the docstring of the module describes them.

    Attributes:
        leaves: The number of the leaf that each node is; -1 for others.
        most: Entries of the largest leaf.
    """

    features: Array
    thresholds: Array
    children: Array
    roots: Array
    starts: Array
    targets: Array
    weights: Array
    leaves: Array
    most: int

    @classmethod
    def of(cls, binding: Binding) -> _Forest:
        """The trees of an instruction.

        Raises:
            IndexError: a number names what is not there.
        """
        names = ("features", "thresholds", "children", "roots", "starts", "targets", "weights")
        tables = {name: binding.input(place) for place, name in enumerate(names, start=1)}
        children, starts = tables["children"], tables["starts"]
        inner = children >= 0
        leaves = np.where(inner, -1, -1 - children)
        _require(tables["features"][inner] >> _BITS, 0, binding.input(0).shape[1], "features")
        _require(tables["roots"], 0, len(children), "roots")
        _require(children[inner], np.flatnonzero(inner) + 2, len(children), "children")
        _require(leaves[~inner], 0, len(starts) - 1, "leaves")
        _require(starts, 0, len(tables["targets"]) + 1, "starts")
        _require(np.diff(starts), 0, None, "counts of entries")
        _require(tables["targets"], 0, binding.integer("n_targets"), "targets")
        return cls(**tables, leaves=leaves, most=int(np.diff(starts).max(initial=0)))

    def reached(self, x: Array) -> Array:
        """The leaf that each row reaches in each tree [trees, rows]."""
        at = np.repeat(self.roots.astype(np.int64)[:, None], len(x), axis=1)
        rows = np.arange(len(x))
        while True:
            child = self.children[at]
            inner = child >= 0
            if not inner.any():
                leaves: Array = self.leaves[at]
                return leaves
            feature = np.where(inner, self.features[at], 0)
            at = np.where(inner, child - _says_yes(feature, x, rows, self.thresholds[at]), at)

    def aggregated(self, x: Array, out: Array, combine: Combine) -> None:
        """Write the result for rows."""
        met = np.zeros(out.shape, bool)
        out.fill(0)
        for leaves in self.reached(x):
            begin, end = self.starts[leaves], self.starts[leaves + 1]
            for number in range(self.most):
                rows = np.flatnonzero(begin + number < end)
                entries = begin[rows] + number
                place = rows, self.targets[entries]
                with np.errstate(all="ignore"):
                    out[place] = combine(out[place], self.weights[entries], met[place])
                met[place] = True


def _says_yes(feature: Array, x: Array, rows: Array, threshold: Array) -> Array:
    """The answers of nodes [trees, rows] to rows."""
    if not x.shape[1]:
        return np.zeros(feature.shape, bool)
    number = x[rows, feature >> _BITS]
    number = np.where(feature & _NEGATED, -number, number)
    with np.errstate(invalid="ignore"):
        low = np.where(feature & _EQUAL, number == threshold, number <= threshold)
    answers: Array = low | ((feature & _MISSING != 0) & np.isnan(number))
    return answers


def _require(numbers: Array, low: int | Array, high: int | None, what: str) -> None:
    """Refuse numbers outside of ``low`` to ``high`` - 1."""
    bad = numbers < low
    if high is not None:
        bad |= numbers >= high
    if bad.any():
        raise IndexError(f"the trees name {what} that are not there: {numbers[bad][0]}")


def _sum(now: Array, weights: Array, met: Array) -> Array:
    del met
    result: Array = now + weights
    return result


def _least(now: Array, weights: Array, met: Array) -> Array:
    return np.where(met & ~(weights < now), now, weights)


def _largest(now: Array, weights: Array, met: Array) -> Array:
    return np.where(met & ~(weights > now), now, weights)


_AGGREGATES: Final[dict[str, Combine]] = {"SUM": _sum, "MIN": _least, "MAX": _largest}


def _ensemble(binding: Binding) -> Calls:
    final = all(map(binding.is_constant, range(1, 8)))
    known = _Forest.of(binding) if final else None
    combine = _AGGREGATES[binding.text("aggregate")]
    return partial(_blocks, binding, known, combine)


def _blocks(binding: Binding, known: _Forest | None, combine: Combine) -> None:
    forest = known or _Forest.of(binding)
    x, out = binding.input(0), binding.output()
    step = max(_MOST_PLACES // max(len(forest.roots), 1), 1)
    for row in range(0, len(x), step):
        forest.aggregated(x[row : row + step], out[row : row + step], combine)


KERNELS: Final[dict[str, Kernel]] = {"TreeEnsemble": _ensemble}
