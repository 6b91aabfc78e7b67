"""The optimizers of PopART with their defaults, as frozen records.

Formulas: g is the gradient without the loss scale, summed or averaged over the micro-batches and
clipped; w a weight; t the number of the update, from 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isinf
from typing import ClassVar

from popc.optimizers.values import (
    HyperParameterSpec,
    Value,
    described,
    hyper_parameters_of,
)
from popc.options.table import FrozenTable
from popc_runtime.errors import OptionError
from popc_runtime.format import DType

__all__ = [
    "SGD",
    "Adam",
    "Adaptive",
    "AutomaticLossScaling",
    "ClipNorm",
    "GradientMap",
    "OptimizerSpec",
    "Specific",
    "option_error",
]


def option_error(problems: list[str]) -> OptionError:
    """The error for one or more problems of an optimizer."""
    count = len(problems)
    return OptionError(
        "a setting of the optimizer is wrong"
        if count == 1
        else f"{count} settings of the optimizer are wrong",
        subject="optimizer",
        details=tuple(problems),
    )


@dataclass(frozen=True, slots=True)
class Specific:
    """Values for some weights only.

    Attributes:
        tensors: Their names, or patterns with ``*``, ``?`` and ``[...]``.
        values: Hyper-parameters by name; the others have the values of all weights.
        accum_type: The type to accumulate their gradients in; that of all weights if ``None``.
    """

    tensors: tuple[str, ...]
    values: FrozenTable[Value]
    accum_type: DType | None = None


@dataclass(frozen=True, slots=True)
class ClipNorm:
    """Scale the gradients of a group of weights down so that their joint L2 norm is bounded.

    Attributes:
        max_norm: The bound.
        tensors: Names or patterns of the weights; all weights if empty.
    """

    max_norm: float
    tensors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GradientMap:
    """Let a function of the model change gradients before weights are updated with them.

    Attributes:
        function: Its name, with its domain ("local.decay") or without.  It takes the gradient,
            without loss scale and as reduced over micro-batches and replicas, and the weight in
            the type of the gradient, and returns the gradient.
        tensors: Names or patterns of the weights; all weights if empty.
    """

    function: str
    tensors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AutomaticLossScaling:
    """Double the loss scale from time to time, and halve it when gradients get near to overflow.

    Attributes:
        bin_edge_location: From which part of the largest number of its type on a gradient element
            counts as near to overflow.
        threshold_upper_count_proportion: Which part of the elements may be that near.
        tracked_gradients: Which gradients are watched: "all" but those that only view others, or
            "products", those that products and convolutions compute.
        to_track_tensors: Names or patterns of the tensors whose gradients are watched instead, if
            there are any.
        update_period: How many weight updates there are per update of the loss scale.
    """

    bin_edge_location: float = 0.125
    threshold_upper_count_proportion: float = 1e-7
    tracked_gradients: str = "all"
    to_track_tensors: tuple[str, ...] = ()
    update_period: int = 1


@dataclass(frozen=True, kw_only=True)
class OptimizerSpec:
    """The settings that all optimizers have.

    Attributes:
        loss_scaling: What the loss, and with it every gradient, is multiplied by; weight updates
            divide by it again.
        specific: Values for some weights; where several match a weight, the last one counts.
        clip_norms: Groups of weights with bounded gradients.
        gradient_maps: Functions that change gradients before they are bounded; where several match
            a weight, they follow each other.
        accum_type: The type to accumulate gradients of micro-batches in; that of the weight if
            ``None``.
        automatic_loss_scaling: How the program adapts the loss scale by itself, if it does.
    """

    # Settings that have no effect in some modes, by setting: the modes in which they have one.
    MODES: ClassVar[dict[str, tuple[str, ...]]] = {}

    loss_scaling: Value = field(
        default=Value(1.0), metadata=described("lossScaling", open_low=True, per_tensor=False)
    )
    specific: tuple[Specific, ...] = ()
    clip_norms: tuple[ClipNorm, ...] = ()
    gradient_maps: tuple[GradientMap, ...] = ()
    accum_type: DType | None = None
    automatic_loss_scaling: AutomaticLossScaling | None = None

    @property
    def type(self) -> str:
        """The name of the optimizer in options."""
        mode: str = getattr(self, "mode", "sgd")
        return mode

    @classmethod
    def hyper_parameters(cls) -> list[HyperParameterSpec]:
        """The specifications of the hyper-parameters, in order of declaration."""
        return hyper_parameters_of(cls)

    def takes(self, setting: str) -> bool:
        """True if the setting has an effect in the mode of this optimizer."""
        return self.type in self.MODES.get(setting, (self.type,))

    def value(self, name: str) -> Value:
        """The value of a hyper-parameter for weights without a specific one."""
        found: Value = getattr(self, name)
        return found

    def values(self, name: str) -> Iterator[Value]:
        """All values of a hyper-parameter: the one for all weights, then specific ones."""
        yield self.value(name)
        for specific in self.specific:
            if name in specific.values:
                yield specific.values[name]

    def __post_init__(self) -> None:
        problems = list(self.problems())
        if problems:
            raise option_error(problems)

    def problems(self) -> Iterator[str]:
        """The problems of the values, each as a sentence."""
        for spec in self.hyper_parameters():
            yield from _problems_of(spec, f"optimizer.{spec.name}", self.value(spec.name))
            for index, specific in enumerate(self.specific):
                if spec.name in specific.values:
                    where = f"optimizer.specific[{index}].{spec.name}"
                    yield from _problems_of(spec, where, specific.values[spec.name])
        if self.automatic_loss_scaling is not None and self.loss_scaling.const:
            yield (
                "optimizer.loss_scaling is constant, but automatic loss scaling changes it: "
                f"give {{ value = {self.loss_scaling.value:g}, const = false }}"
            )


def _problems_of(spec: HyperParameterSpec, where: str, given: Value) -> Iterator[str]:
    problem = spec.problem(given.value)
    if problem:
        yield f"{where} {problem}"
    elif spec.flag and not given.const:
        yield f"{where} shapes the program and cannot be changed later"
    elif not given.const and isinf(given.value):
        yield f"{where} is inf and not constant, but only a constant can be inf"
    elif spec.name == "learning_rate" and given.const and given.value == 0:
        yield (
            f"{where} is 0 and constant, so that nothing would be learnt; a rate that starts at 0 "
            "is { value = 0, const = false }"
        )


@dataclass(frozen=True, kw_only=True)
class SGD(OptimizerSpec):
    """Stochastic gradient descent, with momentum if there is any.

    Without momentum: w - lr (1 - dampening) (g + wd w).  (PyTorch ignores dampening there.)
    With momentum: v becomes momentum v + (1 - dampening) (g + wd w), from v = 0 (PyTorch starts
    with v = g, without dampening), and w becomes w - lr v, or with nesterov
    w - lr (g + wd w + momentum v).

    Attributes:
        velocity_scaling: What v is kept multiplied by.
        accumulator_and_momentum: "combined" keeps momentum v + (1 - dampening) wd w between
            updates (``Accl___``), and adds the gradients of micro-batches to that as they come.  A
            changed momentum or weight decay therefore takes effect one update later.  "separate"
            keeps v (``Accl1___``) and accumulates gradients elsewhere.  PopART calls them SGD1 and
            SGD2.
        accl1_type: The type of v, if separate; that of the weight if ``None``.
    """

    learning_rate: Value = field(default=Value(0.1), metadata=described("learningRate"))
    weight_decay: Value = field(default=Value(0.0), metadata=described("weightDecay"))
    momentum: Value = field(default=Value(0.0), metadata=described("momentum"))
    dampening: Value = field(
        default=Value(0.0), metadata=described("dampening", high=1.0, open_high=True)
    )
    velocity_scaling: Value = field(
        default=Value(1.0), metadata=described("velocityScaling", open_low=True)
    )
    nesterov: Value = field(default=Value(0.0), metadata=described("nesterov", high=1.0, flag=True))
    accumulator_and_momentum: str = "combined"
    accl1_type: DType | None = None

    def problems(self) -> Iterator[str]:
        """Besides values: nesterov without momentum or with dampening, types that have no use."""
        yield from super().problems()
        momentum = any(value.value or not value.const for value in self.values("momentum"))
        if any(value.value for value in self.values("nesterov")):
            if not momentum:
                yield "optimizer.nesterov needs a momentum, which is 0"
            if any(value.value for value in self.values("dampening")):
                yield "optimizer.nesterov needs a dampening of 0"
        if self.accumulator_and_momentum == "combined":
            if self.accl1_type is not None:
                yield 'optimizer.accl1_type needs accumulator_and_momentum = "separate"'
            types = [self.accum_type, *(specific.accum_type for specific in self.specific)]
            if any(types) and momentum:
                yield (
                    'optimizer.accum_type needs accumulator_and_momentum = "separate" where there '
                    "is momentum"
                )


@dataclass(frozen=True, kw_only=True)
class Adam(OptimizerSpec):
    """Adam, AdamW, AdaMax and Lamb.

    m becomes beta1 m + (1 - beta1) g, and v becomes beta2 v + (1 - beta2) g^2, or with AdaMax
    max(beta2 v, |g|).  The bias corrections are m / (1 - beta1^t) and v / (1 - beta2^t) (AdaMax:
    of m only; "..._no_bias": none).  The direction is x = m / (sqrt(v) + eps), without root for
    AdaMax, and w becomes w - lr (x + wd w); with Lamb, w - lr min(|w|, max_weight_norm) / |y| y
    for y = x + wd w, where a norm of 0 makes the quotient 1.  (PyTorch's AdaMax adds eps to |g|
    instead.)

    Attributes:
        mode: "adam", "adam_no_bias", "adamax", "lamb" or "lamb_no_bias".
        weight_decay_mode: "decay" as above, which makes AdamW of Adam; or "l2_regularization":
            wd w is added to g instead, as PyTorch's Adam does.
        accl1_type, accl2_type: The types of m and v (``Accl1___``, ``Accl2___``); float32 if
            ``None``, or float64 for such a weight.
    """

    MODES: ClassVar[dict[str, tuple[str, ...]]] = {"max_weight_norm": ("lamb", "lamb_no_bias")}

    learning_rate: Value = field(default=Value(0.1), metadata=described("learningRate"))
    weight_decay: Value = field(default=Value(0.0), metadata=described("weightDecay"))
    beta1: Value = field(
        default=Value(0.9), metadata=described("adamBeta1", high=1.0, open_high=True)
    )
    beta2: Value = field(
        default=Value(0.999), metadata=described("adamBeta2", high=1.0, open_high=True)
    )
    eps: Value = field(default=Value(1e-6), metadata=described("adamEps", open_low=True))
    max_weight_norm: Value = field(
        default=Value(10.0), metadata=described("maxWeightNorm", open_low=True, boundless=True)
    )
    mode: str = "adam"
    weight_decay_mode: str = "decay"
    accl1_type: DType | None = None
    accl2_type: DType | None = None


@dataclass(frozen=True, kw_only=True)
class Adaptive(OptimizerSpec):
    """AdaGrad, RMSProp, centered RMSProp and AdaDelta.

    v becomes alpha v + (1 - alpha) g^2, or with AdaGrad v + g^2.  The direction x is
    g / (sqrt(v) + eps); centered: g / (sqrt(v - a^2) + eps) with the mean a of the gradients kept
    like v; with AdaDelta g sqrt((u + eps) / (v + eps)), and then u becomes alpha u +
    (1 - alpha) x^2.  With momentum, b becomes momentum b + x and takes the place of x.  w becomes
    w - lr (x + wd w).  (PyTorch has the same forms with weight decay as l2_regularization, and
    other defaults: eps is 1e-8 for RMSprop and 1e-10 for Adagrad, and Adadelta has lr 1 and alpha,
    there called rho, 0.9.)

    Attributes:
        mode: "adagrad", "rmsprop", "centered_rmsprop" or "adadelta".
        weight_decay_mode: "decay" as above, or "l2_regularization": wd w is added to g instead.
        rmsprop_tf_variant: RMSProp as TensorFlow has it: v starts at 1, eps is under the root,
            and b sums lr x, so that with momentum w becomes w - (b + wd w), as in PopART.
        accl1_type, accl2_type: The types of v and of a or u (``Accl1___``, ``Accl2___``); float32
            if ``None``, or float64 for such a weight.
        accl3_type: The type of b (``Accl3___``); that of the weight if ``None``.
    """

    MODES: ClassVar[dict[str, tuple[str, ...]]] = {
        "accl2_type": ("centered_rmsprop", "adadelta"),
        "alpha": ("rmsprop", "centered_rmsprop", "adadelta"),
        "rmsprop_tf_variant": ("rmsprop", "centered_rmsprop"),
    }

    learning_rate: Value = field(default=Value(0.01), metadata=described("learningRate"))
    weight_decay: Value = field(default=Value(0.0), metadata=described("weightDecay"))
    alpha: Value = field(default=Value(0.99), metadata=described("adaptiveAlpha", high=1.0))
    momentum: Value = field(default=Value(0.0), metadata=described("adaptiveMomentum"))
    eps: Value = field(default=Value(1e-6), metadata=described("adaptiveEps", open_low=True))
    mode: str = "rmsprop"
    weight_decay_mode: str = "decay"
    rmsprop_tf_variant: bool = False
    accl1_type: DType | None = None
    accl2_type: DType | None = None
    accl3_type: DType | None = None
