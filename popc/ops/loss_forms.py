"""Losses as combinations of ops: what import rules and losses added for training have in common."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Final, Protocol

from popc.ir import AttributeMap, Tensor
from popc_runtime.format import DType

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["OpEmitter", "ctc_loss", "l1_loss", "nll_loss", "reduced", "squared_error"]


class OpEmitter(Protocol):
    """The means to add ops to a graph."""

    def emit(
        self,
        op_type: str,
        inputs: Sequence[Tensor | None],
        attributes: AttributeMap | None = None,
        /,
    ) -> Tensor:
        """Add an op; its first result."""
        ...

    def constant(self, values: npt.ArrayLike, dtype: DType, /) -> Tensor:
        """A constant."""
        ...


_REDUCE_OPS: Final = {"mean": "ReduceMean", "sum": "ReduceSum"}


def reduced(emitter: OpEmitter, x: Tensor, reduction: str) -> Tensor:
    """``x``, or the mean or sum of its elements."""
    if reduction == "none" or not x.type.rank:
        return x
    attributes: AttributeMap = {"axes": tuple(range(x.type.rank)), "keepdims": 0}
    return emitter.emit(_REDUCE_OPS[reduction], [x], attributes)


def l1_loss(emitter: OpEmitter, x: Tensor, factor: float, reduction: str) -> Tensor:
    """factor * |x|."""
    loss = reduced(emitter, emitter.emit("Abs", [x]), reduction)
    if factor == 1:
        return loss
    return emitter.emit("Mul", [loss, emitter.constant(factor, x.type.dtype)])


def squared_error(emitter: OpEmitter, x: Tensor, target: Tensor, reduction: str) -> Tensor:
    """(x - target) ** 2."""
    difference = emitter.emit("Sub", [x, target])
    return reduced(emitter, emitter.emit("Square", [difference]), reduction)


def nll_loss(
    emitter: OpEmitter,
    x: Tensor,
    labels: Tensor,
    reduction: str,
    *,
    ignore_index: int | None,
    log_probability: bool,
    outside: bool = False,
) -> Tensor:
    """The negative logarithm of the label's probability; ``x`` [..., C], labels [...].

    ``outside``: labels may name no class, and have probability 0 then.
    """
    attributes: AttributeMap = {"reduction": reduction, **({"outside": 1} if outside else {})}
    if ignore_index is not None:
        attributes["ignore_index"] = ignore_index
    if not log_probability:
        return emitter.emit("Nll", [x, labels], attributes)
    shape = labels.type.shape
    count = prod(shape)
    operands = [
        _reshaped(emitter, x, (count, x.type.shape[-1])),
        _reshaped(emitter, labels, (count,)),
    ]
    loss = emitter.emit("NegativeLogLikelihoodLoss", operands, attributes)
    return _reshaped(emitter, loss, shape) if reduction == "none" else loss


def ctc_loss(
    emitter: OpEmitter,
    operands: Sequence[Tensor],
    reduction: str,
    *,
    blank: int,
    zero_infinity: bool,
    dtype: DType | None = None,
) -> Tensor:
    """CTC loss of the operands of ``Ctc``; ``dtype``: its element type, if another than theirs."""
    attributes: AttributeMap = {
        "reduction": reduction,
        "blank": blank,
        "zero_infinity": int(zero_infinity),
    }
    log_probs, *rest = operands
    result = dtype or log_probs.type.dtype
    if result.itemsize > log_probs.type.dtype.itemsize:  # the sums profit from it too
        log_probs = emitter.emit("Cast", [log_probs], {"to": result.value})
    loss = emitter.emit("Ctc", [log_probs, *rest], attributes)
    return loss if loss.type.dtype is result else emitter.emit("Cast", [loss], {"to": result.value})


def _reshaped(emitter: OpEmitter, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x.type.shape == shape else emitter.emit("Reshape", [x], {"shape": shape})
