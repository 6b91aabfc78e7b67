"""The gradient of each op: one table row per op, one file per family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc.autodiff.backward import GradientRule
from popc.autodiff.rules import (
    activation,
    attention,
    cast,
    collectives,
    conv,
    ctc,
    custom,
    dynamic,
    effects,
    elementwise,
    host,
    image,
    indexing,
    loss,
    matmul,
    movement,
    nbits,
    norm,
    packing,
    pad,
    placement,
    pool,
    quantize,
    random,
    reduce,
    regions,
    resize,
    rnn,
    scatter,
    scatter_reduce,
    signal,
    sizes,
    softmax,
    sort,
    spline,
    statistics,
    text,
    trees,
)
from popc.ops import OPS, optimizer
from popc_runtime.ground.tables import merge_families

__all__ = ["GRADIENTS", "NOT_DIFFERENTIABLE"]

_FAMILIES: Final = (
    activation,
    attention,
    cast,
    collectives,
    conv,
    ctc,
    custom,
    dynamic,
    effects,
    elementwise,
    host,
    image,
    indexing,
    loss,
    matmul,
    movement,
    nbits,
    norm,
    packing,
    pad,
    placement,
    pool,
    quantize,
    random,
    reduce,
    regions,
    resize,
    rnn,
    scatter,
    scatter_reduce,
    signal,
    sizes,
    softmax,
    sort,
    spline,
    statistics,
    text,
    trees,
)

GRADIENTS: Final[Mapping[str, GradientRule]] = merge_families(
    (family, family.GRADIENTS) for family in _FAMILIES
)

# Why an op has no gradient.  `tests/package/test_completeness.py` wants every op in one of the two.
NOT_DIFFERENTIABLE: Final[Mapping[str, str]] = {
    **{op_type: "is itself a gradient" for op_type in OPS if op_type.endswith("Grad")},
    **dict.fromkeys(optimizer.OPS, "is a step of an optimizer"),
    "Accumulate": "adds gradients up",
    "BitCast": "reinterprets bits",
    "CastThenPow2Scale": "reads floats of eight bits, which have no gradient",
    "ConvInteger": "multiplies integers",
    "CopyVarUpdate": "writes a variable",
    "CtcBeamSearchDecoder": "searches for labels",
    "DynamicQuantizeLSTM": "rounds to integers",
    "DynamicQuantizeLinear": "rounds to integers",
    "ExpertMatMul": "multiplies by matrices that data chooses",
    "ExpertMatMulNBits": "multiplies by matrices that data chooses",
    "FusedElementwise": "is added after the backward pass",
    "HostLoad": "reads from the host",
    "HostStore": "writes to the host",
    "MatMulInteger": "multiplies integers",
    "Pow2ScaleThenCast": "rounds to eight bits",
    "RemoteGather": "is added after the backward pass",
    "RemoteLoad": "is added after the backward pass",
    "RemoteScatterAdd": "is added after the backward pass",
    "RemoteStore": "is added after the backward pass",
    "ReplicaPart": "gives variables their first values",
    "Requantize": "rounds to integers",
    "Restore": "keeps a value from cycle to cycle of a pipeline",
    "Stash": "keeps a value from cycle to cycle of a pipeline",
    "Unique": "sorts values and joins equal ones",
}
