"""SGD: without momentum, with a velocity that takes up gradients as they come, or one of its own.

PopART calls these SGD0, SGD1 and SGD2; `popc.optimizers.spec.SGD` has the formulas.
"""

from __future__ import annotations

from functools import partial

from popc.ir import Tensor
from popc.ops.build import build
from popc.optimizers.scalars import Scalar
from popc.optimizers.spec import SGD
from popc.optimizers.update import WeightUpdate
from popc_runtime.format import Array
from popc_runtime.kernels.core.stored import as_stored, floats_of

__all__ = ["accumulates_into_velocity", "update_by_sgd"]


def accumulates_into_velocity(spec: SGD, weight: WeightUpdate) -> bool:
    """True if gradients of micro-batches are added to the velocity as they come.

    That needs no accumulator, but nesterov looks at the gradient alone, too.
    """
    return (
        spec.accumulator_and_momentum == "combined"
        and weight.uses("momentum")
        and not weight.uses("nesterov")
    )


def update_by_sgd(spec: SGD, u: WeightUpdate, *, micro_batches: bool) -> Tensor:
    """The next value of the weight.

    ``micro_batches``: the gradient is that of one micro-batch, to be accumulated here.
    """
    if not u.uses("momentum"):
        return _plain(u)
    if spec.accumulator_and_momentum == "combined":
        return _combined(u, micro_batches=micro_batches)
    return _separate(spec, u)


def _plain(u: WeightUpdate) -> Tensor:
    s = u.scalars
    sources = ["learning_rate", "dampening"]
    rate = s.mul(u.hyper("learning_rate"), s.sub(1.0, u.hyper("dampening")))
    keep = s.sub(1.0, s.mul(rate, u.hyper("weight_decay")))
    factors = [
        u.named(s.mul(rate, u.scale), "scaledLearningRate0", *sources),
        u.named(keep, "weightDecayScaleFactor0", *sources, "weight_decay"),
    ]
    return u.emit("SGD0VarUpdate", [u.weight, u.gradient], factors)


def _combined(u: WeightUpdate, *, micro_batches: bool) -> Tensor:
    """Between updates the velocity holds what the next one adds gradients to."""
    decay, scale = _decay(u), _gradient_scale(u)
    momentum = u.hyper("momentum")
    velocity = u.state("Accl___", u.weight.type, partial(_first_velocity, u))
    if micro_batches:
        # The velocities of replicas are averaged, their gradients are to be added up.
        scale = u.scalars.mul(scale, float(u.sharing.size))
        gradient = u.gradient
        if scale != 1:
            gradient = u.scaled_gradient(scale, 0.0, velocity.type.dtype)
        moved = build(u.graph, "Accumulate", [gradient, velocity], {"kind": "sum"}).output
        moved = u.reduced(moved, "mean")
    else:
        moved = u.moment("decay_add", velocity, u.gradient, 1.0, scale)
    updated = _step(u, moved)
    u.keep(velocity, u.emit("SGD1AcclUpdate", [moved, updated], [momentum, decay]))
    return updated


def _separate(spec: SGD, u: WeightUpdate) -> Tensor:
    type_ = u.weight.type
    velocity = u.state("Accl1___", type_.with_dtype(spec.accl1_type or type_.dtype))
    factors = [u.hyper("momentum"), _gradient_scale(u), _decay(u)]
    moved = u.emit("SGD2AcclUpdate", [velocity, u.gradient, u.weight], factors)
    u.keep(velocity, moved)
    return _step(u, moved)


def _step(u: WeightUpdate, velocity: Tensor) -> Tensor:
    s = u.scalars
    rate = u.hyper("learning_rate")
    velocity_rate = s.div(rate, u.hyper("velocity_scaling"))
    if not u.uses("nesterov"):
        factor = u.named(velocity_rate, "scaledLearningRate1", "learning_rate", "velocity_scaling")
        return u.emit("SGD1VarUpdate", [u.weight, velocity], [factor])
    factors = [
        s.mul(rate, u.scale),
        s.mul(velocity_rate, u.hyper("momentum")),
        s.sub(1.0, s.mul(rate, u.hyper("weight_decay"))),
    ]
    return u.emit("SGDNesterovVarUpdate", [u.weight, velocity, u.gradient], factors)


def _decay(u: WeightUpdate) -> Scalar:
    """(1 - dampening) * weight decay * velocity scaling: what the weight adds to its velocity."""
    s = u.scalars
    undamped = s.sub(1.0, u.hyper("dampening"))
    decay = s.mul(s.mul(undamped, u.hyper("weight_decay")), u.hyper("velocity_scaling"))
    sources = ("dampening", "weight_decay", "velocity_scaling")
    return u.named(decay, "scaledWeightDecay1", *sources)


def _gradient_scale(u: WeightUpdate) -> Scalar:
    """(1 - dampening) * velocity scaling * scale: what the gradient counts in the velocity."""
    s = u.scalars
    undamped = s.sub(1.0, u.hyper("dampening"))
    scale = s.mul(s.mul(undamped, u.hyper("velocity_scaling")), u.scale)
    return u.named(scale, "dampeningScaleFactor1", "dampening", "velocity_scaling")


def _first_velocity(u: WeightUpdate, weight: Tensor) -> Array | None:
    """The weight decay of the first update; ``None`` if there is none."""
    undamped = 1 - u.initial("dampening")
    decay = undamped * u.initial("weight_decay") * u.initial("velocity_scaling")
    if decay == 0 or weight.initial is None:
        return None
    dtype = weight.type.dtype
    return as_stored(floats_of(weight.initial, dtype) * decay, dtype)
