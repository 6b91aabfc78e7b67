"""The loss scale: what the loss is multiplied by to keep small gradients from vanishing in float16.

It may adapt itself (PopART's automatic loss scaling): the program watches how many elements of the
gradients are near to overflow, halves the scale when there are too many, and doubles it otherwise,
up to a bound: where the loss is exact, gradients are 0, and say nothing about the next ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from popc.autodiff import GRADIENT_PREFIX
from popc.ir import (
    AttributeMap,
    Graph,
    OpSettings,
    StepPart,
    Tensor,
    TensorType,
    VariableRole,
)
from popc.ops import OPS
from popc.ops.build import build
from popc.optimizers.scalars import add_hyper_parameter
from popc.optimizers.spec import AutomaticLossScaling, OptimizerSpec, option_error
from popc_runtime.format import DType

__all__ = ["FINAL_LOSS_SCALE", "LOSS_SCALING", "add_loss_scale_update", "loss_scale"]

# PopART's names.
LOSS_SCALING: Final = "lossScaling_FLOAT"
FINAL_LOSS_SCALE: Final = "finalLossScale"
_FACTOR: Final = "lossScaleUpdateFactor"
_STATISTICS: Final = "Accum___autoLossScaleStats"
_COUNTER: Final = "Counter___lossScaleUpdate"

# Ops of the backward pass that compute gradients of products and convolutions.
_PRODUCTS: Final = frozenset({"Conv", "ConvTranspose", "ConvWeightsGrad", "Gemm", "MatMul"})

_SETTINGS: Final = OpSettings(origin="lossScaleUpdate")
_SCALAR: Final = TensorType(DType.FLOAT32, ())
_LARGEST: Final = {
    DType.BFLOAT16: 3.3895313892515355e38,
    DType.FLOAT16: float(np.finfo(np.float16).max),
    DType.FLOAT32: float(np.finfo(np.float32).max),
    DType.FLOAT64: float(np.finfo(np.float64).max),
}


def loss_scale(graph: Graph, spec: OptimizerSpec) -> Tensor | float:
    """The start of the gradient of the loss: a number, or a float32 scalar of the graph.

    A changeable loss scale is a variable; one that adapts itself is multiplied by a second one.
    """
    if spec.loss_scaling.const:
        return spec.loss_scaling.value
    scale = add_hyper_parameter(graph, LOSS_SCALING, spec.loss_scaling.value)
    if spec.automatic_loss_scaling is None:
        return scale
    one = np.ones((), np.float32)
    factor = graph.add_variable(_FACTOR, _SCALAR, VariableRole.OPTIMIZER_STATE, one)
    names = [FINAL_LOSS_SCALE]
    return build(graph, "Mul", [scale, factor], output_names=names, settings=_SETTINGS).output


def add_loss_scale_update(
    graph: Graph,
    spec: OptimizerSpec,
    *,
    accumulation_factor: int,
    replicas: int = 1,
    largest: float = 2.0**15,
) -> None:
    """Adapt the loss scale to the gradients, if ``spec`` says so.

    The new scale counts from the next update on.  Call this when all gradients are in the graph;
    those that only view other gradients are not looked at.  ``largest`` is a bound of the scale.

    Raises:
        OptionError: there is no gradient for what is to be tracked.
    """
    settings = spec.automatic_loss_scaling
    if settings is None:
        return
    final = graph.tensors[FINAL_LOSS_SCALE]
    edge = settings.bin_edge_location
    counts = [
        _emit(graph, "Histogram", [gradient], {"levels": (edge * _LARGEST[gradient.type.dtype],)})
        for gradient in _tracked(graph, settings)
    ]
    if accumulation_factor > 1:
        # Each by itself: in a pipeline, gradients of different stages are of different samples.
        names = (f"{_STATISTICS}{number or ''}" for number in range(len(counts)))
        counts = [
            _emit(graph, "Accumulate", [count], {"kind": "sum"}, name=name)
            for count, name in zip(counts, names, strict=False)
        ]
    statistics = _emit(graph, "Sum", counts)
    if replicas > 1:
        together: AttributeMap = {"op": "add", "size": replicas, "stride": 1}
        statistics = _emit(graph, "ReplicatedAllReduce", [statistics], together)
    factor = graph.tensors[_FACTOR]
    operands = [factor, statistics, final]
    if settings.update_period > 1:
        operands.append(_counted(graph))
    attributes: AttributeMap = {
        "threshold": settings.threshold_upper_count_proportion,
        "period": settings.update_period,
        "largest": largest,
    }
    updated = _emit(graph, "LossScaleUpdate", operands, attributes, name=f"UpdatedVar___{_FACTOR}")
    build(graph, "CopyVarUpdate", [factor, updated], settings=_SETTINGS)


def _counted(graph: Graph) -> Tensor:
    """The number of updates before this one."""
    counter = graph.add_variable(_COUNTER, _SCALAR, VariableRole.OPTIMIZER_STATE)
    one = graph.add_constant("one", _SCALAR, np.ones((), np.float32))
    build(graph, "CopyVarUpdate", [counter, _emit(graph, "Add", [counter, one])])
    return counter


def _tracked(graph: Graph, settings: AutomaticLossScaling) -> list[Tensor]:
    """The gradients to watch."""
    found = {
        name.removeprefix(GRADIENT_PREFIX): tensor
        for name, tensor in graph.tensors.items()
        if name.startswith(GRADIENT_PREFIX) and tensor.type.dtype.is_float
    }
    patterns = settings.to_track_tensors
    if not patterns and settings.tracked_gradients == "products":
        return _products(graph)
    if not patterns:
        return [tensor for tensor in found.values() if not _is_view(tensor)]
    problems = [
        f"optimizer.automatic_loss_scaling.to_track_tensors: {pattern!r} has no gradient"
        for pattern in patterns
        if not any(fnmatchcase(name, pattern) for name in found)
    ]
    if problems:
        raise option_error(problems)
    return [
        tensor
        for name, tensor in found.items()
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    ]


def _products(graph: Graph) -> list[Tensor]:
    """The gradients that products and convolutions compute, each by itself where several add up.

    Raises:
        OptionError: there is none.
    """
    products = [
        op.output
        for op in graph.ops
        if op.settings.part is StepPart.BACKWARD and op.op_type in _PRODUCTS
    ]
    found = [gradient for gradient in products if gradient.type.dtype.is_float]
    if not found:
        where = "optimizer.automatic_loss_scaling.tracked_gradients"
        raise option_error([f"{where}: there is no gradient of a product or convolution"])
    return found


def _is_view(tensor: Tensor) -> bool:
    return tensor.producer is not None and OPS[tensor.producer.op_type].view is not None


def _emit(
    graph: Graph,
    op_type: str,
    inputs: Sequence[Tensor],
    attributes: AttributeMap | None = None,
    *,
    name: str = "",
) -> Tensor:
    names = [name] if name else ()
    return build(graph, op_type, inputs, attributes, output_names=names, settings=_SETTINGS).output
