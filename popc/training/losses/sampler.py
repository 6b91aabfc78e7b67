"""The classes that a sampled loss compares with, and how often each is to be expected among them.

Classes are sorted by frequency, and drawn by Zipf's law: of C classes, k has the share
P(k) = log((k + 2) / (k + 1)) / log(C + 1), as in TensorFlow's ``log_uniform_candidate_sampler``.
"""

from __future__ import annotations

from math import log
from typing import Final, Protocol

import numpy as np

from popc.ir import AttributeMap, Shape, Tensor
from popc.ops.loss_forms import OpEmitter
from popc.training.losses.spec import LossSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["LossEmitter", "Sample", "draw"]

_WIDE: Final = DType.FLOAT32
_LEAST: Final = 1e-7  # of a random number whose logarithm is taken


class LossEmitter(OpEmitter, Protocol):
    """The graph that a loss is added to."""

    input: Tensor
    spec: LossSpec

    def find(self, name: str) -> Tensor:
        """A tensor to compute with."""
        ...

    def labels(self, name: str, shape: Shape) -> Tensor:
        """Integers: an existing tensor of ``shape``, or a new input."""
        ...

    def reshaped(self, x: Tensor, shape: Shape) -> Tensor:
        """``x`` in another shape."""
        ...


@frozen
class Sample:
    """Classes to compare with.

    Attributes:
        classes: Their numbers [S].
        tries: How often one was drawn until there were S different ones, a float32; ``None`` if
            any S are taken.
        count: How many classes there are in all.
    """

    builder: LossEmitter
    classes: Tensor
    tries: Tensor | None
    count: int

    def log_expected(self, ids: Tensor, dtype: DType) -> Tensor:
        """The logarithm of how often each class of ``ids`` is to be expected among them."""
        b, size = self.builder, self.classes.type.shape[0]
        number = b.emit("Cast", [ids], {"to": _WIDE.value})
        upper, lower = (b.emit("Add", [number, b.constant(x, _WIDE)]) for x in (2.0, 1.0))
        share = b.emit("Log", [b.emit("Div", [upper, lower])])
        whole = log(self.count + 1)
        expected = b.emit("Mul", [share, b.constant(size / whole, _WIDE)])
        if self.tries is not None:
            # 1 - (1 - P)^tries, unless every try was another class.
            once = b.emit("Neg", [b.emit("Mul", [share, b.constant(1 / whole, _WIDE)])])
            never = b.emit("Mul", [self.tries, b.emit("Log1p", [once])])
            ever = b.emit("Neg", [b.emit("Expm1", [never])])
            plain = b.emit("Equal", [self.tries, b.constant(float(size), _WIDE)])
            expected = b.emit("Where", [plain, expected, ever])
        found = b.emit("Log", [expected])
        return found if dtype is _WIDE else b.emit("Cast", [found], {"to": dtype.value})


def draw(b: LossEmitter, count: int) -> Sample:
    """So many of ``count`` classes as the loss wants: named, or drawn with or without replacement.

    Raises:
        ModelError: there are not so many.
    """
    size = b.spec.num_sampled
    assert size is not None, "checked with the settings"
    if b.spec.samples:
        return Sample(b, b.labels(b.spec.samples, (size,)), None, count)
    if not b.spec.unique:
        return Sample(b, _any(b, size, count), None, count)
    if size > count:
        raise ModelError(
            f"it is to compare with {size} classes of which none is drawn twice, but there are "
            f"{count}"
        )
    return _different(b, size, count)


def _any(b: LossEmitter, size: int, count: int) -> Tensor:
    """Classes [S], drawn with replacement."""
    uniform = _uniform(b, size, 0.0)
    power = b.emit("Exp", [b.emit("Mul", [uniform, b.constant(log(count + 1), _WIDE)])])
    number = b.emit("Floor", [b.emit("Sub", [power, b.constant(1.0, _WIDE)])])
    within = b.emit("Clip", [number], {"min": 0.0, "max": float(count - 1)})
    return b.emit("Cast", [within], {"to": b.spec.label_dtype.value})


def _different(b: LossEmitter, size: int, count: int) -> Sample:
    """Classes of which none is drawn twice, and how many tries that would have taken.

    The S largest of log P(k) + Gumbel noise, in order, are those that drawing one by one gives if
    what is there already is thrown away.  As long as those that are there have the share p, the
    number of tries until another one comes is geometric: 1 + floor(log(u) / log(p)).
    """
    k = np.arange(count, dtype=np.float64)
    shares = np.log((k + 2) / (k + 1)) / log(count + 1)
    noise = b.emit("Neg", [b.emit("Log", [_uniform(b, count, _LEAST)])])
    keys = b.emit("Sub", [b.constant(np.log(shares), _WIDE), b.emit("Log", [noise])])
    first: AttributeMap = {"k": size, "axis": 0, "largest": 1}
    producer = b.emit("TopK", [keys], first).producer
    assert producer is not None, "it was just made"
    classes = producer.outputs[1]
    own = b.emit("Gather", [b.constant(shares, _WIDE), classes], {"axis": 0})
    there = b.emit("CumSum", [own], {"axis": 0, "exclusive": 1, "reverse": 0})
    there = b.emit("Clip", [there], {"min": 0.0, "max": 1 - _LEAST})
    chance = b.emit("Log", [_uniform(b, size, _LEAST)])
    more = b.emit("Div", [chance, b.emit("Log", [there])])
    whole = b.emit("Add", [b.emit("Floor", [more]), b.constant(1.0, _WIDE)])
    tries = b.emit("ReduceSum", [whole], {"axes": (0,), "keepdims": 0})
    numbers = b.emit("Cast", [classes], {"to": b.spec.label_dtype.value})
    return Sample(b, numbers, tries, count)


def _uniform(b: LossEmitter, size: int, low: float) -> Tensor:
    drawn: AttributeMap = {"to": _WIDE.value, "shape": (size,), "low": low, "high": 1.0}
    return b.emit("RandomUniform", [], drawn)
