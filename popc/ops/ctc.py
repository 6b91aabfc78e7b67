"""Connectionist temporal classification: the loss, and decoding by beam search.

Logarithms of probabilities [T, N, C] (time, batch, classes), one of the classes being the blank.
"""

from __future__ import annotations

from typing import Final

from popc.ir import TensorType
from popc.ir.attributes import integer
from popc.ops.infer import FLOATS, INTEGERS, check_choice, check_rank, one_dtype, operand
from popc.ops.loss import REDUCTIONS
from popc.ops.spec import OperandTypes, OpSpec
from popc_runtime.errors import ModelError
from popc_runtime.format import Attributes, DType

__all__ = ["OPS"]


def _ctc(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Operands: logarithms, labels [N, S], lengths of the inputs [N] and of the labels [N].

    Reduction "mean" divides the loss of each sample by the number of its labels, and takes the
    mean of that.  ``zero_infinity``: samples that no path fits have loss 0, not infinity; they
    have gradient 0 in any case.  With ``gradient`` there is a second result, the gradient of each
    sample's loss.
    """
    logs, labels, input_lengths, label_lengths = (operand(inputs, index) for index in range(4))
    batch = _check_logs(logs, attributes)
    check_choice(attributes, "reduction", REDUCTIONS)
    one_dtype([labels], INTEGERS)
    if labels.rank != 2 or labels.shape[0] != batch:
        raise ModelError(f"labels {labels} do not fit logarithms of probabilities {logs}")
    for lengths in (input_lengths, label_lengths):
        _check_lengths(lengths, batch)
    loss = logs.with_shape((batch,) if attributes["reduction"] == "none" else ())
    return (loss, logs) if integer(attributes, "gradient", 0) else (loss,)


def _decoder(inputs: OperandTypes, attributes: Attributes) -> tuple[TensorType, ...]:
    """Logarithm of the probability, length and labels of the likeliest label sequences.

    Operands: logarithms, their lengths [N].  Results for ``top_paths`` = P sequences: [N, P],
    [N, P] and [N, P, T]; beyond its length a sequence is filled with the blank.
    """
    logs, lengths = operand(inputs, 0), operand(inputs, 1)
    batch = _check_logs(logs, attributes)
    _check_lengths(lengths, batch)
    if logs.shape[2] < 2:
        raise ModelError("there must be a class beside the blank")
    paths, width = integer(attributes, "top_paths"), integer(attributes, "beam_width")
    if not 1 <= paths <= width:
        raise ModelError(
            f"top_paths is {paths}, but must be at least 1 and at most the beam width, {width}"
        )
    found = TensorType(DType.UINT32, (batch, paths))
    return logs.with_shape(found.shape), found, found.with_shape((batch, paths, logs.shape[0]))


def _check_logs(logs: TensorType, attributes: Attributes) -> int:
    """The batch size of logarithms [T, N, C]."""
    one_dtype([logs], FLOATS)
    check_rank(logs, 3, "logarithms of probabilities")
    _, batch, classes = logs.shape
    blank = integer(attributes, "blank")
    if not 0 <= blank < classes:
        raise ModelError(f"the blank is class {blank}, but there are {classes} classes")
    return batch


def _check_lengths(lengths: TensorType, batch: int) -> None:
    one_dtype([lengths], INTEGERS)
    if lengths.shape != (batch,):
        raise ModelError(f"lengths {lengths} do not fit a batch of {batch}")


OPS: Final[dict[str, OpSpec]] = {
    "Ctc": OpSpec(_ctc),
    "CtcBeamSearchDecoder": OpSpec(_decoder),
}
