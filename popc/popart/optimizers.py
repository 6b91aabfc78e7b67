"""PopART's optimizers: hyper-parameters with defaults, checks, values of single weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from popc.popart.calls import native
from popc.popart.debug import DebugContext
from popc.popart.enums import DataType
from popc.popart.errors import popart_exception
from popc.popart.logger import log
from popc.popart.optimizer_values import OptimizerValue, OptimizerValueMap, values_of_map
from popc.popart.option_enums import (
    AdamMode,
    AdaptiveMode,
    SGDAccumulatorAndMomentum,
    WeightDecayMode,
)

__all__ = ["SGD", "Adam", "Adaptive", "ClipNormSettings", "ConstSGD", "Optimizer"]

_LOSS_SCALING: Final = "lossScaling"
# What must hold of a hyper-parameter: the words for what is refused, and the test for it.
_NOT_NEGATIVE: Final = ("Negative", lambda value: value < 0)
_POSITIVE: Final = ("Non-positive", lambda value: value <= 0)


class ClipNormSettings:
    """A group of weights whose gradients are scaled down to a norm.

    The constructor is PopART's deprecated form of `clipWeights`.
    """

    def __init__(self, weightIds: Sequence[str], maxNorm: float) -> None:
        log("popart", "WARN", "ClipNormSettings(weightIds, maxNorm) is deprecated: use clipWeights")
        self._set(list(weightIds), maxNorm, all_weights=False)

    def _set(self, weights: list[str], norm: float, *, all_weights: bool) -> None:
        self.weightIds = weights
        self.maxNorm = float(norm)
        self._all = all_weights

    @classmethod
    def _made(cls, weights: list[str], norm: float, *, all_weights: bool) -> ClipNormSettings:
        made = cls.__new__(cls)
        made._set(weights, norm, all_weights=all_weights)
        return made

    @staticmethod
    def clipWeights(weightIds: Sequence[str], maxNorm: float, /) -> ClipNormSettings:
        """Clip the gradients of these weights together."""
        return ClipNormSettings._made(list(weightIds), maxNorm, all_weights=False)

    @staticmethod
    def clipAllWeights(maxNorm: float, /) -> ClipNormSettings:
        """Clip the gradients of all weights together."""
        return ClipNormSettings._made([], maxNorm, all_weights=True)

    @property
    def clipsAllWeights(self) -> bool:
        """True if the group is all weights."""
        return self._all

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ClipNormSettings):
            return NotImplemented
        same = (self.weightIds, self._all) == (other.weightIds, other._all)
        return same and math.isclose(self.maxNorm, other.maxNorm, rel_tol=1e-6)

    __hash__ = None  # type: ignore[assignment]  # it can be changed


class Optimizer:
    """The members that all optimizers have in common.

    Attributes:
        NAME: What messages call it.
        DEFAULTS: The hyper-parameters, with the values that they have if none are given.
    """

    NAME: ClassVar[str] = ""
    DEFAULTS: ClassVar[dict[str, float]] = {}
    _ALIASES: ClassVar[dict[str, str]] = {}

    def _read(self, values: object, clip: Sequence[ClipNormSettings]) -> None:
        """Take the values of a map, and check them.

        Raises:
            TypeError: it is no map.
            popart_exception: a key or a value is wrong.
        """
        if not isinstance(values, dict):
            raise TypeError(
                "__init__(): incompatible constructor arguments. The following argument types are "
                f"supported:\n    1. (values: dict, ...)\n\nInvoked with: {values!r}"
            )
        given = {self._ALIASES.get(key, key): item for key, item in values_of_map(values).items()}
        keys = {_key(name): name for name in self.DEFAULTS}
        for key in given:
            if key not in keys and key != _LOSS_SCALING:
                allowed = ", ".join([*keys, _LOSS_SCALING])
                raise popart_exception(
                    f"Invalid {self.NAME} key, {key}, the allowed keys are ( {allowed} )"
                )
        self._loss_scaling = given.get(_LOSS_SCALING, OptimizerValue(1.0))
        self._values = {
            name: given.get(key, OptimizerValue(self.DEFAULTS[name])) for key, name in keys.items()
        }
        self._specific: dict[str, dict[str, OptimizerValue]] = {}
        self.clipNormSettings = list(clip)
        self._check(self._values)
        if self._loss_scaling.val() == 0:
            raise popart_exception("Loss scaling cannot be 0")

    # -- checks ----------------------------------------------------------------------------------

    _LIMITS: ClassVar[dict[str, tuple[str, Any]]] = {}

    def _check(self, values: dict[str, OptimizerValue]) -> None:
        """Refuse values that no update can be made with.

        Raises:
            popart_exception: a value is out of range.
        """
        rate = values["learningRate"]
        if rate.val() == 0 and rate.isConst():
            raise popart_exception(
                f"Constant, zero learning rate in {self.NAME}, this will not train anything"
            )
        for name, (word, refused) in self._LIMITS.items():
            if refused(values[name].val()):
                raise popart_exception(
                    f"{word} {_in_words(name)} ({values[name].val():g}) in {self.NAME} is not "
                    f"supported"
                )

    # -- values ----------------------------------------------------------------------------------

    def getLossScalingVal(self) -> float:
        """The factor of the loss."""
        return self._loss_scaling.val()

    def lossScaling(self) -> OptimizerValue:
        """The factor of the loss, and whether it is constant."""
        return self._loss_scaling

    def insertSpecific(self, id: object, values: object, /) -> None:  # noqa: A002
        """Give a weight values of its own; those that are left out are the defaults.

        Raises:
            popart_exception: it has values, or a key or a value is wrong.
        """
        if not isinstance(id, str) or not isinstance(values, dict):
            raise TypeError(
                "insertSpecific(): incompatible function arguments. The following argument types "
                "are supported:\n    1. (arg0: str, arg1: dict)\n\n"
                f"Invoked with: {id!r}, {values!r}"
            )
        given = values_of_map(values)
        for key in given:
            if key not in self.DEFAULTS:
                raise popart_exception(
                    f"Invalid key {key} in {self.NAME}::insertSpecific. Permitted keys are "
                    f"( {', '.join(self.DEFAULTS)} )"
                )
        if id in self._specific:
            raise popart_exception(
                f"Attempt to insert specific value for optimization Tensor {id}, but there already "
                f"is one"
            )
        whole = {**self._values, **given}
        self._check(whole)
        self._specific[id] = whole

    def specificWeights(self) -> list[str]:
        """The weights that have values of their own."""
        return list(self._specific)

    def valueMap(self, name: str) -> OptimizerValueMap:
        """A hyper-parameter by its name, such as "learningRate"."""
        specific = {weight: values[name] for weight, values in self._specific.items()}
        return OptimizerValueMap(self._values[name], specific)

    def learningRates(self) -> OptimizerValueMap:
        """Learning rates."""
        return self.valueMap("learningRate")

    def weightDecays(self) -> OptimizerValueMap:
        """Weight decays."""
        return self.valueMap("weightDecay")


class SGD(Optimizer):
    """Stochastic gradient descent with momentum."""

    NAME = "SGD"
    DEFAULTS: ClassVar[dict[str, float]] = {
        "learningRate": 0.1,
        "weightDecay": 0.0,
        "momentum": 0.0,
        "dampening": 0.0,
        "velocityScaling": 1.0,
        "nesterov": 0.0,
    }
    _LIMITS: ClassVar[dict[str, tuple[str, Any]]] = {
        "learningRate": _NOT_NEGATIVE,
        "weightDecay": _NOT_NEGATIVE,
        "momentum": _NOT_NEGATIVE,
        "dampening": _NOT_NEGATIVE,
        "velocityScaling": _POSITIVE,
    }

    @native
    def __init__(
        self,
        pyd: object,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        accumulatorAndMomentum: SGDAccumulatorAndMomentum = SGDAccumulatorAndMomentum.Combined,
        accumType: DataType = DataType.UNDEFINED,
        accl1Type: DataType = DataType.UNDEFINED,
        debugContext: DebugContext | str = "sgd",
    ) -> None:
        del debugContext
        self.accumulatorAndMomentum = accumulatorAndMomentum
        self.accumType = accumType
        self.accl1Type = accl1Type
        self._read(pyd, clip_norm_settings)

    def _check(self, values: dict[str, OptimizerValue]) -> None:
        super()._check(values)
        if values["nesterov"].val() != 0 and values["dampening"].val() > 0:
            raise popart_exception(
                f"Nesterov momentum with dampening ({values['dampening'].val():g}) in SGD is not "
                f"supported"
            )

    def momentums(self) -> OptimizerValueMap:
        """Momentums."""
        return self.valueMap("momentum")

    def dampenings(self) -> OptimizerValueMap:
        """Dampenings."""
        return self.valueMap("dampening")

    def velocityScalings(self) -> OptimizerValueMap:
        """Scalings of velocities."""
        return self.valueMap("velocityScaling")

    def nesterov(self) -> OptimizerValueMap:
        """True if the gradient is taken ahead."""
        return self.valueMap("nesterov")


class ConstSGD(SGD):
    """Stochastic gradient descent with constant values."""

    @native
    def __init__(
        self,
        learning_rate: float,
        weight_decay: float = 0,
        loss_scaling: float = 1,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
    ) -> None:
        super().__init__(
            {
                "defaultLearningRate": (learning_rate, True),
                "defaultWeightDecay": (weight_decay, True),
                _LOSS_SCALING: (loss_scaling, True),
            },
            clip_norm_settings,
        )


class Adam(Optimizer):
    """Adam, AdaMax and LAMB."""

    NAME = "Adam"
    DEFAULTS: ClassVar[dict[str, float]] = {
        "learningRate": 0.1,
        "weightDecay": 0.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-6,
        "maxWeightNorm": 10.0,
    }
    _LIMITS: ClassVar[dict[str, tuple[str, Any]]] = {
        "learningRate": _NOT_NEGATIVE,
        "weightDecay": _NOT_NEGATIVE,
        "beta1": _NOT_NEGATIVE,
        "beta2": _NOT_NEGATIVE,
        "eps": _POSITIVE,
    }
    _ALIASES: ClassVar[dict[str, str]] = {"maxWeightNorm": "defaultMaxWeightNorm"}

    @native
    def __init__(
        self,
        values: object,
        mode: AdamMode = AdamMode.Adam,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        clip_norm_settings: Sequence[ClipNormSettings] = (),
        scaled_optimizer_state: bool = False,
        debugContext: DebugContext | str = "adam",
    ) -> None:
        del debugContext
        if isinstance(values, dict) and "maxWeightNorm" in values:
            log("popart", "WARN", "maxWeightNorm is deprecated: use defaultMaxWeightNorm")
        self.mode, self.weightDecayMode = mode, weight_decay_mode
        self.accumType, self.accl1Type, self.accl2Type = accum_type, accl1_type, accl2_type
        self.scaledOptimizerState = scaled_optimizer_state
        self._read(values, clip_norm_settings)

    def beta1s(self) -> OptimizerValueMap:
        """First decay rates."""
        return self.valueMap("beta1")

    def beta2s(self) -> OptimizerValueMap:
        """Second decay rates."""
        return self.valueMap("beta2")

    def epss(self) -> OptimizerValueMap:
        """The term that keeps divisors from zero."""
        return self.valueMap("eps")

    def maxWeightNorms(self) -> OptimizerValueMap:
        """Limits of the norms of weights."""
        return self.valueMap("maxWeightNorm")


class Adaptive(Optimizer):
    """AdaGrad, RMSProp and AdaDelta."""

    NAME = "Adaptive"
    DEFAULTS: ClassVar[dict[str, float]] = {
        "learningRate": 0.01,
        "weightDecay": 0.0,
        "alpha": 0.99,
        "momentum": 0.0,
        "eps": 1e-6,
    }
    _LIMITS: ClassVar[dict[str, tuple[str, Any]]] = {
        "learningRate": _NOT_NEGATIVE,
        "weightDecay": _NOT_NEGATIVE,
        "alpha": _NOT_NEGATIVE,
        "momentum": _NOT_NEGATIVE,
        "eps": _POSITIVE,
    }

    @native
    def __init__(
        self,
        values: object,
        mode: AdaptiveMode = AdaptiveMode.RMSProp,
        weight_decay_mode: WeightDecayMode = WeightDecayMode.Decay,
        accum_type: DataType = DataType.UNDEFINED,
        accl1_type: DataType = DataType.FLOAT,
        accl2_type: DataType = DataType.FLOAT,
        accl3_type: DataType = DataType.UNDEFINED,
        rmsprop_tf_variant: bool = False,
        debugContext: DebugContext | str = "adaptive",
    ) -> None:
        del debugContext
        self.mode, self.weightDecayMode = mode, weight_decay_mode
        self.accumType, self.accl1Type = accum_type, accl1_type
        self.accl2Type, self.accl3Type = accl2_type, accl3_type
        self.rmspropTFVariant = rmsprop_tf_variant
        self._read(values, ())
        if rmsprop_tf_variant and mode in (AdaptiveMode.AdaGrad, AdaptiveMode.AdaDelta):
            raise popart_exception(
                f"The variant of TensorFlow (rmsprop_tf_variant) is not supported by {mode.name}"
            )

    def alphas(self) -> OptimizerValueMap:
        """Decay rates."""
        return self.valueMap("alpha")

    def momentums(self) -> OptimizerValueMap:
        """Momentums."""
        return self.valueMap("momentum")

    def epss(self) -> OptimizerValueMap:
        """The term that keeps divisors from zero."""
        return self.valueMap("eps")


def _key(name: str) -> str:
    """The key of a hyper-parameter's default; `nesterov` has none of its own."""
    return name if name == "nesterov" else f"default{name[0].upper()}{name[1:]}"


def _in_words(name: str) -> str:
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name)
