"""An optimizer of PopART's as the table that popc's training file has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from popc.popart.dtypes import element_type
from popc.popart.enums import DataType
from popc.popart.errors import popart_exception
from popc.popart.optimizer_values import OptimizerValue
from popc.popart.optimizers import SGD, Adam, Adaptive, Optimizer
from popc.popart.option_enums import AdamMode, AdaptiveMode, WeightDecayMode
from popc.popart.option_enums import GradientTensorTrackingMethod as _Method
from popc.popart.option_records import AutomaticLossScalingSettings

__all__ = ["literal", "optimizer_table"]

_ADAM: Final = {
    AdamMode.Adam: "adam",
    AdamMode.AdamNoBias: "adam_no_bias",
    AdamMode.AdaMax: "adamax",
    AdamMode.Lamb: "lamb",
    AdamMode.LambNoBias: "lamb_no_bias",
}
_ADAPTIVE: Final = {
    AdaptiveMode.AdaGrad: "adagrad",
    AdaptiveMode.RMSProp: "rmsprop",
    AdaptiveMode.CenteredRMSProp: "centered_rmsprop",
    AdaptiveMode.AdaDelta: "adadelta",
}
# Hyper-parameters that only some types of optimizers use.
_ONLY: Final = {
    "maxWeightNorm": ("lamb", "lamb_no_bias"),
    "alpha": ("rmsprop", "centered_rmsprop", "adadelta"),
}
_DECAY: Final = {
    WeightDecayMode.Decay: "decay",
    WeightDecayMode.L2Regularization: "l2_regularization",
}


def literal(name: str) -> str:
    """A pattern that only ``name`` fits."""
    return re.sub(r"([*?\[])", r"[\1]", name)


def optimizer_table(
    optimizer: Optimizer, weights: Iterable[str], scaling: AutomaticLossScalingSettings
) -> dict[str, Any]:
    """The table; ``weights`` are those of the model.

    Raises:
        popart_exception: groups of weights whose gradients are clipped do not fit each other.
    """
    kind, settings = _kind(optimizer)
    table: dict[str, Any] = {"type": kind, **settings}
    for name in optimizer.DEFAULTS:
        if kind in _ONLY.get(name, (kind,)):
            table[_ours(name)] = _value(optimizer.valueMap(name).getDefault())
    table["loss_scaling"] = _value(optimizer.lossScaling())
    known = set(weights)
    specific = [_specific(optimizer, kind, w) for w in optimizer.specificWeights() if w in known]
    if specific:
        table["specific"] = specific
    if optimizer.clipNormSettings:
        table["clip_norm"] = _clip_norms(optimizer, known)
    if scaling.enabled:
        table["automatic_loss_scaling"] = _scaling(scaling)
        table["loss_scaling"]["const"] = False
    return table


def _kind(optimizer: Optimizer) -> tuple[str, dict[str, Any]]:
    """The type, and the settings that are no hyper-parameters."""
    if isinstance(optimizer, SGD):
        separate = optimizer.accumulatorAndMomentum.name == "Separate"
        mode = {"accumulator_and_momentum": "separate" if separate else "combined"}
        types = {"accum_type": optimizer.accumType, "accl1_type": optimizer.accl1Type}
        return "sgd", {**mode, **(_types(types) if separate else {})}
    if isinstance(optimizer, Adam):
        decay = {"weight_decay_mode": _DECAY[optimizer.weightDecayMode]}
        types = {
            "accum_type": optimizer.accumType,
            "accl1_type": optimizer.accl1Type,
            "accl2_type": optimizer.accl2Type,
        }
        return _ADAM[optimizer.mode], {**decay, **_types(types)}
    assert isinstance(optimizer, Adaptive), optimizer
    kind = _ADAPTIVE[optimizer.mode]
    decay = {"weight_decay_mode": _DECAY[optimizer.weightDecayMode]}
    types = {"accum_type": optimizer.accumType, "accl1_type": optimizer.accl1Type}
    if kind in ("centered_rmsprop", "adadelta"):
        types["accl2_type"] = optimizer.accl1Type
    types["accl3_type"] = optimizer.accl3Type
    variant = {"rmsprop_tf_variant": True} if optimizer.rmspropTFVariant else {}
    return kind, {**decay, **variant, **_types(types)}


def _types(types: Mapping[str, DataType]) -> dict[str, str]:
    return {
        name: element_type(type_).name
        for name, type_ in types.items()
        if type_ is not DataType.UNDEFINED
    }


def _ours(name: str) -> str:
    return re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _value(value: OptimizerValue) -> dict[str, Any]:
    return {"value": value.val(), "const": value.isConst()}


def _specific(optimizer: Optimizer, kind: str, weight: str) -> dict[str, Any]:
    values = {
        _ours(name): _value(optimizer.valueMap(name).get(weight))
        for name in optimizer.DEFAULTS
        if kind in _ONLY.get(name, (kind,))
    }
    return {"tensors": [literal(weight)], **values}


def _clip_norms(optimizer: Optimizer, known: set[str]) -> list[dict[str, Any]]:
    groups = optimizer.clipNormSettings
    if len(groups) > 1 and any(group.clipsAllWeights for group in groups):
        raise popart_exception(
            "Multiple clip groups specified, but one has the mode 'ClipAllWeights', which leaves "
            "no weights for the others"
        )
    for name in (name for group in groups for name in group.weightIds):
        if name not in known:
            raise popart_exception(f"Could not find a varupdate op for tensor {name}")
    return [
        {"max_norm": group.maxNorm, "tensors": [literal(name) for name in group.weightIds]}
        for group in groups
    ]


def _scaling(settings: AutomaticLossScalingSettings) -> dict[str, Any]:
    method, names = settings.gradientTensorTrackingMethod, settings.toTrackTensors
    if (names is not None) != (method == _Method.GradientsOfUserSpecifiedTensors):
        raise popart_exception(
            "toTrackTensors is to be set if, and only if, gradientTensorTrackingMethod is "
            "GradientsOfUserSpecifiedTensors"
        )
    return {
        "bin_edge_location": settings.binEdgeLocation,
        "threshold_upper_count_proportion": settings.thresholdUpperCountProportion,
        "to_track_tensors": [literal(name) for name in settings.toTrackTensors or ()],
        "tracked_gradients": ("products" if method == _Method.ConvAndMatmulGradients else "all"),
        "update_period": settings.updatePeriod,
    }
