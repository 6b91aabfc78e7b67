"""Class labels [N, D] of scores [N, C, D]: where their scores lie, and how much each label counts.

A label equal to ``ignore_index`` counts nothing, whatever class it names.  Any other label outside
[0, C) is an error of the data, which would otherwise pass unnoticed into the weights: an
IndexError, which the device reports with the name of the node.  Unless the attribute ``outside``
allows such labels: then they count, and have probability 0.
"""

from __future__ import annotations

import numpy as np

from popc_runtime.format.dtypes import Array
from popc_runtime.kernels.core.binding import Binding

__all__ = ["Labels", "check_labels"]


class Labels:
    """The labels of one instruction; `locate` reads them, once per run.

    Attributes:
        positions: Of each label's score in flat scores, int64 [N, D].
        counts: How much each label counts, [N, D] in the dtype of the computation; ``None`` if all
            labels count alike.
        outside: True where a label names no class, [N, D]; ``None`` if none may.
    """

    def __init__(
        self, binding: Binding, shape: tuple[int, int, int], operands: tuple[int, int]
    ) -> None:
        """``operands``: the numbers of the labels and of the class weights [C] (optional)."""
        batch, self._classes, self._inner = shape
        self._given = binding.input(operands[0])
        self._weights = binding.optional(operands[1])
        self._ignored: int | None = None
        if "ignore_index" in binding.attributes:
            self._ignored = binding.integer("ignore_index")
        self._allows = bool(binding.integer("outside", 0))
        self.outside: Array | None = None
        size = self._classes * self._inner
        self._first = np.arange(batch)[:, None] * size + np.arange(self._inner)
        self.positions = binding.scratch.take((batch, self._inner), np.int64)
        self.counts: Array | None = None
        if self._ignored is not None or self._weights is not None:
            dtype = np.promote_types(binding.output().dtype, np.float32)
            self.counts = binding.scratch.take((batch, self._inner), dtype)

    def locate(self) -> None:
        """Check the labels and fill ``positions`` and ``counts``.

        Raises:
            IndexError: a label names no class and is not to be ignored.
        """
        labels = self._given.reshape(self.positions.shape)  # here: of strided ones it is a copy
        hidden = None if self._ignored is None else labels == self._ignored
        if hidden is not None:
            labels = np.where(hidden, 0, labels)
        if self._allows:
            self.outside = (labels < 0) | (labels >= self._classes)
            labels = np.where(self.outside, 0, labels)
        check_labels(labels, self._classes, self._given.shape, ignored=self._ignored)
        np.multiply(labels, self._inner, out=self.positions, casting="unsafe")
        np.add(self.positions, self._first, out=self.positions)
        if self.counts is None:
            return
        self.counts[...] = 1 if self._weights is None else self._weights[labels]
        if self.outside is not None:
            np.copyto(self.counts, 1, where=self.outside)
        if hidden is not None:
            np.copyto(self.counts, 0, where=hidden)

    def fill_outside(self, values: Array, value: float) -> None:
        """Give labels that name no class ``value`` in ``values`` [N, D]."""
        if self.outside is not None:
            np.copyto(values, value, where=self.outside)

    def inside(self, shares: Array) -> Array:
        """``shares`` [N, D] without those of labels that name no class."""
        return shares if self.outside is None else np.where(self.outside, 0, shares)

    def total(self) -> float:
        """The sum of the counts: what a mean divides by."""
        return float(self.positions.size if self.counts is None else self.counts.sum())


def check_labels(
    labels: Array, classes: int, shape: tuple[int, ...], *, ignored: int | None = None
) -> None:
    """Raise IndexError unless all labels are in [0, classes); ``shape``: theirs to the user."""
    # As unsigned numbers, negative labels are larger than any class: one pass finds both.
    unsigned = labels.view(f"u{labels.itemsize}")
    if not labels.size or unsigned.max() < classes:
        return
    wrong = np.flatnonzero(unsigned.reshape(-1) >= classes)
    place = [int(index) for index in np.unravel_index(wrong[0], shape)]
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    hint = "" if ignored is None else f"; only {ignored} is ignored"
    raise IndexError(
        f"label {labels.reshape(-1)[wrong[0]]} at {place} is out of range for {classes} "
        f"classes{more}{hint}"
    )
