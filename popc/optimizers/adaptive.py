"""AdaGrad, RMSProp and AdaDelta; `popc.optimizers.spec.Adaptive` has the formulas."""

from __future__ import annotations

from functools import partial

import numpy as np

from popc.ir import Tensor
from popc.optimizers.scalars import Scalar
from popc.optimizers.spec import Adaptive
from popc.optimizers.update import WeightUpdate
from popc_runtime.format import Array, DType
from popc_runtime.kernels.core.stored import as_stored

__all__ = ["update_by_adaptive"]


def update_by_adaptive(spec: Adaptive, u: WeightUpdate) -> Tensor:
    """The next value of the weight."""
    type_ = u.state_type(spec.accl1_type)
    gradient, scale = u.regularized_gradient(spec.weight_decay_mode, type_.dtype)
    initial = partial(_ones, type_.dtype) if spec.rmsprop_tf_variant else None
    square = u.state("Accl1___", type_, initial)
    if spec.mode == "adagrad":
        square_now = u.moment("decay_add_square", square, gradient, 1.0, scale)
    else:
        square_now = u.moment("moving_average_square", square, gradient, u.hyper("alpha"), scale)
    u.keep(square, square_now)
    if spec.mode == "adadelta":
        step = _adadelta(spec, u, gradient, square_now, scale)
    else:
        step = _rmsprop(spec, u, gradient, square_now, scale)
    rate = u.hyper("learning_rate")
    if u.uses("momentum"):
        step, rate = _with_momentum(spec, u, step, rate)
    decay = u.hyper("weight_decay") if spec.weight_decay_mode == "decay" else 0.0
    keep = u.scalars.sub(1.0, u.scalars.mul(rate, decay))
    return u.emit("ScaledVarUpdate", [u.weight, step], [rate, keep])


def _rmsprop(
    spec: Adaptive, u: WeightUpdate, gradient: Tensor, square: Tensor, scale: Scalar
) -> Tensor:
    mean = None
    if spec.mode == "centered_rmsprop":
        variable = u.state("Accl2___", u.state_type(spec.accl2_type))
        mean = u.moment("moving_average", variable, gradient, u.hyper("alpha"), scale)
        u.keep(variable, mean)
    return u.emit(
        "RMSPropUpdater",
        [gradient, square, mean],
        [u.hyper("eps"), scale],
        {"tf_variant": int(spec.rmsprop_tf_variant)},
        prefix="AdaptiveUpdater___",
    )


def _adadelta(
    spec: Adaptive, u: WeightUpdate, gradient: Tensor, square: Tensor, scale: Scalar
) -> Tensor:
    steps = u.state("Accl2___", u.state_type(spec.accl2_type))
    step = u.emit(
        "AdaDeltaUpdater",
        [gradient, square, steps],
        [u.hyper("eps"), scale],
        prefix="AdaptiveUpdater___",
    )
    u.keep(steps, u.moment("moving_average_square", steps, step, u.hyper("alpha")))
    return step


def _with_momentum(
    spec: Adaptive, u: WeightUpdate, step: Tensor, rate: Scalar
) -> tuple[Tensor, Scalar]:
    """The step, and its rate: TensorFlow sums steps that have their rate already."""
    own = u.weight.type
    variable = u.state("Accl3___", own.with_dtype(spec.accl3_type or own.dtype))
    momentum = u.hyper("momentum")
    if spec.rmsprop_tf_variant:
        moved, rate = u.moment("decay_add", variable, step, momentum, rate), 1.0
    else:
        moved = u.moment("decay_add", variable, step, momentum)
    u.keep(variable, moved)
    return moved, rate


def _ones(dtype: DType, weight: Tensor) -> Array:
    return as_stored(np.ones(weight.type.shape, np.float32), dtype)
