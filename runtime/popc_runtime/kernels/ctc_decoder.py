"""The likeliest label sequences of connectionist temporal classification, by beam search.

In each time step every sequence of the beam is kept (a blank, or its last label again) or extended
by a label; the likeliest stay in the beam.  An extension that is in the beam already is added to
that.  Sequences are compared by a hash of 64 bits, so that a step costs the same for long ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Calls, Kernel
from popc_runtime.kernels.ctc import check_lengths

__all__ = ["KERNELS"]

_KEPT: Final = -1  # in place of the label that extends a sequence
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
_UNUSED: Final = np.uint64(1 << 63)  # hashes of sequences that do not exist are counted from here


def _decoder(binding: Binding) -> Calls:
    return partial(_decode, binding)


def _decode(binding: Binding) -> None:
    logs, lengths = binding.input(0), binding.input(1)
    steps, batch, _ = logs.shape
    blank, paths = binding.integer("blank"), binding.integer("top_paths")
    check_lengths(lengths, steps, "time steps")
    beam = _Beam(batch, binding.integer("beam_width"))
    for time in range(int(lengths.max(initial=0))):
        beam.advance(logs[time].astype(np.float64), blank, lengths > time)
    found, sizes, labels = (binding.output(index) for index in range(3))
    total = beam.total()[:, :paths]
    found[...] = total
    labels[...] = blank
    sizes[...] = _trace(beam.history, labels)
    none = np.isneginf(total)
    sizes[none], labels[none] = 0, blank


def _trace(history: Iterable[tuple[Array, Array]], labels: Array) -> Array:
    """Write the labels [N, P, T] of the best sequences; their lengths [N, P]."""
    batch, paths, _ = labels.shape
    samples = np.arange(batch)[:, None]
    place = np.broadcast_to(np.arange(paths), (batch, paths))
    backwards: list[Array] = []
    for parents, added in reversed(list(history)):
        backwards.append(added[samples, place])
        place = parents[samples, place]
    sizes = np.zeros((batch, paths), np.int64)
    for added in reversed(backwards):
        sample, path = np.nonzero(added != _KEPT)
        labels[sample, path, sizes[sample, path]] = added[sample, path]
        sizes[sample, path] += 1
    return sizes


@dataclass
class _Beam:
    """W sequences for each of N samples, the likeliest first.

    Attributes:
        history: For each step [N, W]: which sequence of the step before each one comes from, and
            the label added to it.
    """

    batch: int
    width: int
    history: list[tuple[Array, Array]] = field(default_factory=list["tuple[Array, Array]"])

    def __post_init__(self) -> None:
        shape = (self.batch, self.width)
        self._rows = np.arange(self.batch)[:, None]
        # Logarithms of the probability of paths that end in a blank, and in a label.
        self._blank = np.full(shape, -np.inf)
        self._label = np.full(shape, -np.inf)
        self._blank[:, :1] = 0
        self._last = np.full(shape, _KEPT)
        self._hash = _UNUSED + np.arange(self.width, dtype=np.uint64) + np.zeros(shape, np.uint64)
        self._parent_hash = ~self._hash
        self._hash[:, :1] = 0

    def total(self) -> Array:
        """Logarithms of the probabilities of the sequences."""
        return np.asarray(np.logaddexp(self._blank, self._label))

    def advance(self, logs: Array, blank: int, active: Array) -> None:
        """One time step with ``logs`` [N, C]; samples that are not active stay as they are."""
        total = self.total()
        kept_blank = total + logs[:, blank, None]
        last = np.maximum(self._last, 0)
        step = logs[self._rows, last]
        kept_label = self._label + step
        classes = _likely_classes(logs, blank, self.width + 1)
        extended = self._extensions(total, logs, classes)
        self._merge(total, step, kept_label, extended, classes)
        scores = np.concatenate(
            [np.logaddexp(kept_blank, kept_label), extended.reshape(self.batch, -1)], axis=1
        )
        chosen = _best(scores, self.width)
        chosen[~active] = np.arange(self.width)
        keeps = chosen < self.width
        source, which = np.divmod(np.maximum(chosen - self.width, 0), classes.shape[1])
        parent = np.where(keeps, chosen, source)
        added = np.where(keeps, _KEPT, classes[self._rows, which])
        kept_blank[~active], kept_label[~active] = self._blank[~active], self._label[~active]
        score = scores[self._rows, chosen]
        self._blank = np.where(keeps, kept_blank[self._rows, parent], -np.inf)
        self._label = np.where(keeps, kept_label[self._rows, parent], score)
        self._rename(parent, added, keeps)
        self.history.append((parent, added))

    def _extensions(self, total: Array, logs: Array, classes: Array) -> Array:
        """The score of each sequence extended by each of ``classes`` [N, K]: [N, W, K].

        The last label again is another label only behind a blank.
        """
        again = classes[:, None, :] == self._last[:, :, None]
        before = np.where(again, self._blank[:, :, None], total[:, :, None])
        return np.asarray(before + logs[self._rows, classes][:, None, :])

    def _merge(
        self, total: Array, step: Array, kept: Array, extended: Array, classes: Array
    ) -> None:
        """Move extensions that are in the beam already from ``extended`` to ``kept``."""
        sample, child, parent = np.nonzero(self._parent_hash[:, :, None] == self._hash[:, None, :])
        label = self._last[sample, child]
        again = label == self._last[sample, parent]
        before = np.where(again, self._blank[sample, parent], total[sample, parent])
        kept[sample, child] = np.logaddexp(kept[sample, child], before + step[sample, child])
        place, which = np.nonzero(classes[sample] == label[:, None])
        extended[sample[place], parent[place], which] = -np.inf

    def _rename(self, parent: Array, added: Array, keeps: Array) -> None:
        """Hashes and last labels of the sequences just chosen."""
        old, last = self._hash[self._rows, parent], self._last[self._rows, parent]
        new = (old + np.uint64(1) + added.astype(np.uint64)) * _MULTIPLIER
        new ^= new >> np.uint64(29)
        self._parent_hash = np.where(keeps, self._parent_hash[self._rows, parent], old)
        self._hash = np.where(keeps, old, new & ~_UNUSED)
        self._last = np.where(keeps, last, added)
        none = np.isneginf(self._blank) & np.isneginf(self._label)
        unused = np.broadcast_to(_UNUSED + np.arange(self.width, dtype=np.uint64), none.shape)
        self._hash = np.where(none, unused, self._hash)
        self._parent_hash = np.where(none, ~unused, self._parent_hash)


def _likely_classes(logs: Array, blank: int, most: int) -> Array:
    """The ``most`` likeliest classes of each sample, without the blank, in order: [N, K].

    Others cannot get into a beam of ``most`` - 1 sequences: the same sequence extended by likelier
    classes is in front of them.
    """
    labels = np.delete(np.arange(logs.shape[1]), blank)
    if len(labels) <= most:
        return np.broadcast_to(labels, (len(logs), len(labels)))
    likely = np.argpartition(-logs[:, labels], most - 1, axis=1)[:, :most]
    return np.asarray(np.sort(labels[likely], axis=1))


def _best(scores: Array, count: int) -> Array:
    """Numbers of the ``count`` largest scores of each row, in order; of equal ones the first."""
    bound = -np.partition(-scores, count - 1, axis=1)[:, count - 1 : count]
    better, equal = scores > bound, scores == bound
    room = count - better.sum(axis=1, keepdims=True)
    chosen = better | (equal & (np.cumsum(equal, axis=1) <= room))
    numbers = np.nonzero(chosen)[1].reshape(len(scores), count)
    ranked = np.argsort(-np.take_along_axis(scores, numbers, axis=1), axis=1, kind="stable")
    return np.take_along_axis(numbers, ranked, axis=1)


KERNELS: Final[dict[str, Kernel]] = {
    "CtcBeamSearchDecoder": _decoder,
}
