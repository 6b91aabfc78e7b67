"""Connectionist temporal classification: the loss and its gradient.

A path through the L = 2 S + 1 states blank, label, blank, label, ..., blank of a sample emits one
class per time step; it may stay in a state, go to the next, and jump over a blank between different
labels.  The loss is -log of the probability of all paths to the end (Graves et al., 2006).

Time is a loop; in each step all samples and states are done at once.  Sums of probabilities are
kept as float64 logarithms, but what is exponentiated are differences of two of them, for which the
type of the operand is precise enough.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding, Calls, Kernel, Scratch
from popc_runtime.kernels.core.copying import as_contiguous
from popc_runtime.kernels.parts.labels import check_labels

__all__ = ["KERNELS", "check_lengths"]

_IMPOSSIBLE: Final = -1e30  # logarithm of 0: unlike -inf it may be subtracted from itself
_UNLIKELY: Final = -1e29  # less is impossible
_BYTES: Final = 1 << 26  # of the sums over time of a block of samples


def _ctc(binding: Binding) -> Calls:
    logs, before = as_contiguous(binding, 0)
    steps, batch, _ = logs.shape
    grads = binding.output(1) if binding.integer("gradient", 0) else None
    states = 2 * binding.input(1).shape[1] + 1
    likelihoods = binding.scratch.take((batch,), np.float64)
    kept = steps if grads is not None else 2
    size = max(1, min(batch, _BYTES // max(1, kept * states * likelihoods.itemsize)))
    lattice = _Lattice(binding.scratch, logs, (kept, size, states))
    task = _Task(binding, logs, grads, lattice, likelihoods)
    return (*before, task.run, partial(_reduce, binding, likelihoods))


def _reduce(binding: Binding, likelihoods: Array) -> None:
    """The loss from the logarithms of the likelihoods."""
    out, reduction = binding.output(), binding.text("reduction")
    losses = -likelihoods
    hopeless = 0.0 if binding.integer("zero_infinity", 0) else np.inf
    losses[likelihoods < _UNLIKELY] = hopeless
    if reduction == "none":
        out[...] = losses
    elif reduction == "sum":
        out[...] = losses.sum()
    else:
        out[...] = (losses / np.maximum(binding.input(3), 1)).mean() if losses.size else np.nan


class _Task:
    """The operands; runs block by block of samples."""

    def __init__(
        self,
        binding: Binding,
        logs: Array,
        grads: Array | None,
        lattice: _Lattice,
        likelihoods: Array,
    ) -> None:
        self._labels, self._ends, self._counts = (binding.input(index) for index in (1, 2, 3))
        self._blank = binding.integer("blank")
        self._logs = logs
        self._grads = grads
        self._lattice = lattice
        self._likelihoods = likelihoods

    def run(self) -> None:
        """Fill the likelihoods and the gradients.

        Raises:
            IndexError: lengths or labels are out of range.
        """
        steps, batch, classes = self._logs.shape
        check_lengths(self._ends, steps, "time steps")
        check_lengths(self._counts, self._labels.shape[1], "labels")
        labels = self._checked_labels(classes)
        for start in range(0, batch, self._lattice.samples):
            part = slice(start, start + self._lattice.samples)
            self._lattice.set(labels[part], self._ends[part], self._counts[part], self._blank)
            self._lattice.forward(self._logs[:, part], self._likelihoods[part])
            if self._grads is not None:
                grads = self._grads[:, part]
                self._lattice.backward(self._logs[:, part], self._likelihoods[part], grads)

    def _checked_labels(self, classes: int) -> Array:
        """The labels with blanks where there is none."""
        valid = np.arange(self._labels.shape[1]) < self._counts[:, None]
        labels = np.where(valid, self._labels, self._blank).astype(np.int64)
        check_labels(labels, classes, labels.shape)
        blanks = np.argwhere(valid & (labels == self._blank))
        if len(blanks):
            place = [int(index) for index in blanks[0]]
            raise IndexError(f"label {self._blank} at {place} is reserved for the blank")
        return labels


def check_lengths(lengths: Array, most: int, what: str) -> None:
    """Raise IndexError unless all lengths are in [0, most]."""
    wrong = np.flatnonzero((lengths < 0) | (lengths > most))
    if len(wrong):
        raise IndexError(
            f"sample {wrong[0]} has {lengths[wrong[0]]} {what}, but there is room for {most}"
        )


class _Lattice:
    """The states of a block of samples over time, and the sums over the paths through them."""

    def __init__(self, scratch: Scratch, logs: Array, shape: tuple[int, int, int]) -> None:
        """``shape``: time steps to keep, samples, states."""
        kept, self.samples, self._states = shape
        size = shape[1:]
        wide, fine = np.dtype(np.float64), np.promote_types(logs.dtype, np.float32)
        # Two more states on the side that paths come from: nothing comes from there.
        self._alphas = scratch.take((kept, size[0], size[1] + 2), wide)
        self._ahead = scratch.take((size[0], size[1] + 2), wide)
        self._beta, self._peak, self._jumped = (scratch.take(size, wide) for _ in range(3))
        self._gaps = scratch.take((3, *size), fine)
        self._emitted, self._share = (scratch.take(size, fine) for _ in range(2))
        self._row = scratch.take((size[0] * logs.shape[2],), fine)

    def set(self, labels: Array, ends: Array, counts: Array, blank: int) -> None:
        """Start with a block of samples."""
        self._count = count = len(labels)
        self._blank = blank
        classes = np.full((count, self._states), blank)
        classes[:, 1::2] = labels
        self._classes = classes
        jumps = (classes[:, 2:] != blank) & (classes[:, 2:] != classes[:, :-2])
        self._jump = np.full(classes.shape, _IMPOSSIBLE)
        self._jump[:, 2:][jumps] = 0
        self._last = 2 * counts.astype(np.int64)
        self._samples_by_end: dict[int, list[int]] = {}
        for sample, end in enumerate(ends.tolist()):
            self._samples_by_end.setdefault(end - 1, []).append(sample)

    def forward(self, logs: Array, likelihoods: Array) -> None:
        """Sums over the paths up to each state and time: log-likelihoods of the samples."""
        count = self._count
        self._alphas[:, :count, :2] = _IMPOSSIBLE
        likelihoods[...] = np.where(self._last == 0, 0.0, _IMPOSSIBLE)  # those without time steps
        emit = self._emissions(logs)
        jumped = self._jumped[:count]
        for time in range(len(logs)):
            alpha = self._alphas[time % len(self._alphas), :count]
            if time:
                before = self._alphas[(time - 1) % len(self._alphas), :count]
                np.add(before[:, :-2], self._jump, out=jumped)
                total = self._log_sum(before[:, 2:], before[:, 1:-1], jumped, jumped)
                np.add(total, emit(time), out=alpha[:, 2:])
            else:
                alpha[:, 4:] = _IMPOSSIBLE
                alpha[:, 2:4] = emit(0)[:, :2]
            samples = self._samples_by_end.get(time)
            if samples:
                last = self._last[samples]
                likelihoods[samples] = np.logaddexp(
                    alpha[samples, last + 2], alpha[samples, last + 1]
                )

    def backward(self, logs: Array, likelihoods: Array, grads: Array) -> None:
        """Minus the probability of each class and time, given the labels."""
        count, states = self._count, self._states
        beta, ahead = self._beta[:count], self._ahead[:count]
        ahead[...] = _IMPOSSIBLE
        jump = np.full(self._jump.shape, _IMPOSSIBLE)
        jump[:, :-2] = self._jump[:, 2:]
        evidence = np.where(likelihoods < _UNLIKELY, -_IMPOSSIBLE, likelihoods)[:, None]
        emit, store = self._emissions(logs), self._store(grads)
        share, jumped = self._share[:count], self._jumped[:count]
        for time in reversed(range(len(logs))):
            np.add(ahead[:, 2:], jump, out=jumped)
            self._log_sum(ahead[:, :-2], ahead[:, 1:-1], jumped, beta)
            samples = self._samples_by_end.get(time)
            if samples:
                beta[samples] = self._final(samples)
            np.add(self._alphas[time, :count, 2:], beta, out=jumped)
            np.subtract(jumped, evidence, out=share, casting="same_kind")
            np.exp(share, out=share)
            store(time, share)
            np.add(beta, emit(time), out=ahead[:, :states])

    def _final(self, samples: list[int]) -> Array:
        """0 in the last label and in the blank behind it, for samples that end."""
        last = self._last[samples, None]
        states = np.arange(self._states)
        return np.where((states == last) | (states == last - 1), 0.0, _IMPOSSIBLE)

    def _log_sum(self, a: Array, b: Array, c: Array, out: Array) -> Array:
        """log(exp(a) + exp(b) + exp(c))."""
        peak, gaps = self._peak[: self._count], self._gaps[:, : self._count]
        np.maximum(a, b, out=peak)
        np.maximum(peak, c, out=peak)
        for gap, term in zip(gaps, (a, b, c), strict=True):
            np.subtract(term, peak, out=gap, casting="same_kind")
        np.exp(gaps, out=gaps)
        first, second, third = gaps
        np.add(first, second, out=first)
        np.add(first, third, out=first)
        np.log(first, out=first)
        np.add(peak, first, out=out)
        return out

    def _emissions(self, logs: Array) -> Callable[[int], Array]:
        """A function from the time to the logarithms that the states emit."""
        out = self._emitted[: self._count]
        least = out.dtype.type(_IMPOSSIBLE)
        samples = np.arange(self._count)[:, None]
        places = samples * logs.shape[2] + self._classes

        def at(time: int) -> Array:
            row = logs[time].reshape(-1)
            if row.dtype == out.dtype:
                np.take(row, places, None, out, "clip")
            else:
                out[...] = row[places]
            np.maximum(out, least, out=out)
            return out

        return at

    def _store(self, grads: Array) -> Callable[[int, Array], None]:
        """A function that stores the shares of the states as the gradient at a time."""
        count, width = self._count, grads.shape[2]
        row = self._row[: count * width]
        by_class = row.reshape(count, width)
        places = (np.arange(count)[:, None] * width + self._classes[:, 1::2]).reshape(-1)

        def at(time: int, share: Array) -> None:
            row.fill(0)
            np.subtract.at(row, places, share[:, 1::2].reshape(-1))
            by_class[:, self._blank] -= share[:, ::2].sum(axis=1)
            grads[time] = by_class

        return at


KERNELS: Final[dict[str, Kernel]] = {
    "Ctc": _ctc,
}
