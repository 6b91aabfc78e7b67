"""Optimizers from plain data: defaults, spellings, and everything that can be wrong."""

from __future__ import annotations

from typing import Any

import pytest

from popc.optimizers import (
    OPTIMIZER_TYPES,
    SGD,
    Adam,
    Adaptive,
    AutomaticLossScaling,
    ClipNorm,
    Value,
    optimizer_to_mapping,
    parse_optimizer,
)
from popc_runtime.errors import OptionError
from popc_runtime.format import DType

# What PopART's documentation says.
_DEFAULTS: dict[str, dict[str, float]] = {
    "sgd": {
        "learning_rate": 0.1,
        "weight_decay": 0.0,
        "momentum": 0.0,
        "dampening": 0.0,
        "velocity_scaling": 1.0,
        "loss_scaling": 1.0,
        "nesterov": 0.0,
    },
    "lamb": {
        "learning_rate": 0.1,
        "weight_decay": 0.0,
        "beta1": 0.9,
        "beta2": 0.999,
        "eps": 1e-6,
        "loss_scaling": 1.0,
        "max_weight_norm": 10.0,
    },
    "rmsprop": {
        "learning_rate": 0.01,
        "weight_decay": 0.0,
        "alpha": 0.99,
        "momentum": 0.0,
        "eps": 1e-6,
        "loss_scaling": 1.0,
    },
}


@pytest.mark.parametrize("name", _DEFAULTS)
def test_defaults(name: str) -> None:
    spec = parse_optimizer({"type": name})
    found = {parameter.name: spec.value(parameter.name) for parameter in spec.hyper_parameters()}
    assert found == {key: Value(value) for key, value in _DEFAULTS[name].items()}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"type": "AdaMax"}, {"type": "adamax"}),
        ({"type": "LambNoBias"}, {"type": "lamb_no_bias"}),
        ({"type": "ConstSGD"}, {"type": "sgd"}),
        (
            {"type": "Adam", "weight_decay_mode": "L2Regularization"},
            {"type": "adam", "weight_decay_mode": "l2_regularization"},
        ),
        (
            {"type": "SGD", "accumulatorAndMomentum": "Separate"},
            {"type": "sgd", "accumulator_and_momentum": "separate"},
        ),
    ],
)
def test_spellings_of_popart(given: dict[str, Any], meant: dict[str, Any]) -> None:
    assert parse_optimizer(given) == parse_optimizer(meant)


@pytest.mark.parametrize("name", OPTIMIZER_TYPES)
def test_every_type_goes_through_its_mapping(name: str) -> None:
    given: dict[str, Any] = {
        "type": name,
        "learning_rate": {"value": 0.5, "const": False},
        "loss_scaling": [2.0, False],
        "specific": [{"tensors": ["a", "b*"], "weight_decay": [0.5, False]}],
        "clip_norm": [{"max_norm": 1}, {"max_norm": 2, "tensors": ["x"]}],
        "accum_type": "float32",
        "automatic_loss_scaling": {"update_period": 3, "to_track_tensors": ["t"]},
    }
    if name == "sgd":
        given |= {"nesterov": True, "momentum": 0.5, "accumulator_and_momentum": "separate"}
    spec = parse_optimizer(given)
    assert spec.type == ("adam" if name == "adamw" else name)
    assert parse_optimizer(optimizer_to_mapping(spec)) == spec
    assert spec.value("learning_rate") == Value(0.5, const=False)
    assert spec.specific[0].values["weight_decay"] == Value(0.5, const=False)
    assert spec.clip_norms == (ClipNorm(1.0), ClipNorm(2.0, ("x",)))
    assert spec.accum_type is DType.FLOAT32
    assert spec.automatic_loss_scaling == AutomaticLossScaling(
        update_period=3, to_track_tensors=("t",)
    )


def test_spellings() -> None:
    """PopART's names, pairs, and text from a command line."""
    spec = parse_optimizer(
        {
            "type": "sgd",
            "defaultLearningRate": (0.25, False),
            "defaultMomentum": "0.5",
            "velocityScaling": [2, True],
            "nesterov": "true",
            "lossScaling": {"value": "8"},
        }
    )
    assert spec == SGD(
        learning_rate=Value(0.25, const=False),
        momentum=Value(0.5),
        velocity_scaling=Value(2.0),
        nesterov=Value(1.0),
        loss_scaling=Value(8.0),
    )
    assert parse_optimizer({"type": "adamw"}) == Adam(mode="adam", weight_decay_mode="decay")
    assert parse_optimizer({"type": "adadelta"}) == Adaptive(mode="adadelta")


_WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no type": ({}, "optimizer.type is missing: choose from adadelta, adagrad, adam, "),
    "type": ({"type": "adm"}, "optimizer.type is 'adm', which does not exist: did you mean adam?"),
    "key": (
        {"type": "sgd", "learning_rat": 1},
        "optimizer.learning_rat is not a setting of the optimizer sgd: did you mean learning_rate?",
    ),
    "key of another": (
        {"type": "adam", "max_weight_norm": 1},
        "optimizer.max_weight_norm is not a setting of the optimizer adam: ",
    ),
    "implied": (
        {"type": "adamw", "weight_decay_mode": "l2_regularization"},
        "optimizer.weight_decay_mode is not a setting of the optimizer adamw: ",
    ),
    "no number": (
        {"type": "sgd", "momentum": "fast"},
        "optimizer.momentum is 'fast', but must be a number",
    ),
    "truth": (
        {"type": "sgd", "momentum": True},
        "optimizer.momentum is True, but must be a number",
    ),
    "nan": (
        {"type": "sgd", "momentum": float("nan")},
        "optimizer.momentum is nan, but must be a finite number",
    ),
    "low": ({"type": "sgd", "momentum": -1}, "optimizer.momentum is -1, but must be at least 0"),
    "high": (
        {"type": "adam", "beta2": 1},
        "optimizer.beta2 is 1, but must be at least 0 and less than 1",
    ),
    "open": ({"type": "adam", "eps": 0}, "optimizer.eps is 0, but must be more than 0"),
    "infinite": (
        {"type": "lamb", "max_weight_norm": [float("inf"), False]},
        "optimizer.max_weight_norm is inf and not constant, but only a constant can be inf",
    ),
    "twice": (
        {"type": "sgd", "momentum": 0.5, "defaultMomentum": 0.5},
        "optimizer.momentum is given twice, also as defaultMomentum",
    ),
    "no rate": (
        {"type": "sgd", "learning_rate": 0},
        "optimizer.learning_rate is 0 and constant, so that nothing would be learnt; ",
    ),
    "field": (
        {"type": "sgd", "momentum": {"value": 1, "constant": True}},
        "optimizer.momentum has the field 'constant', but takes only value and const",
    ),
    "no value": ({"type": "sgd", "momentum": {"const": True}}, "optimizer.momentum has no value"),
    "const": (
        {"type": "sgd", "momentum": [1, "no"]},
        "optimizer.momentum has const = 'no', but const must be true or false",
    ),
    "long": (
        {"type": "sgd", "momentum": [1, True, 2]},
        (
            "optimizer.momentum is [1, True, 2], but must be a number, or a pair of a number and "
            "true or false (constant or not)"
        ),
    ),
    "flag": (
        {"type": "sgd", "momentum": 0.5, "nesterov": [True, False]},
        "optimizer.nesterov shapes the program and cannot be changed later",
    ),
    "no flag": (
        {"type": "sgd", "momentum": 0.5, "nesterov": 0.5},
        "optimizer.nesterov is 0.5, but must be true or false",
    ),
    "nesterov alone": (
        {"type": "sgd", "nesterov": True},
        "optimizer.nesterov needs a momentum, which is 0",
    ),
    "nesterov damped": (
        {"type": "sgd", "nesterov": True, "momentum": 0.5, "dampening": 0.5},
        "optimizer.nesterov needs a dampening of 0",
    ),
    "choice": (
        {"type": "adam", "weight_decay_mode": "l1"},
        "optimizer.weight_decay_mode is 'l1', but must be one of decay, l2_regularization",
    ),
    "dtype": (
        {"type": "adam", "accl1_type": "int8"},
        "optimizer.accl1_type is 'int8', but must be one of float16, bfloat16, float32, float64",
    ),
    "combined": (
        {"type": "sgd", "accl1_type": "float32"},
        'optimizer.accl1_type needs accumulator_and_momentum = "separate"',
    ),
    "combined accumulator": (
        {"type": "sgd", "accum_type": "float32", "momentum": 0.5},
        'optimizer.accum_type needs accumulator_and_momentum = "separate" where there is momentum',
    ),
    "specific": (
        {"type": "sgd", "specific": [{"tensors": ["a"], "loss_scaling": 2}]},
        "optimizer.specific[0].loss_scaling is not a setting of single tensors: ",
    ),
    "specific value": (
        {"type": "sgd", "specific": [{"tensors": ["a"], "momentum": -2}]},
        "optimizer.specific[0].momentum is -2, but must be at least 0",
    ),
    "specific tensors": (
        {"type": "sgd", "specific": [{"momentum": 0.5}]},
        "optimizer.specific[0].tensors is missing: list the names of the weights",
    ),
    "specific names": (
        {"type": "sgd", "specific": [{"tensors": "a"}]},
        "optimizer.specific[0].tensors is 'a', but must be a list of names",
    ),
    "no list": (
        {"type": "sgd", "clip_norm": {"max_norm": 1}},
        "optimizer.clip_norm is {'max_norm': 1}, but must be a list of tables",
    ),
    "no table": (
        {"type": "sgd", "clip_norm": [1]},
        "optimizer.clip_norm[0] is 1, but must be a table of settings",
    ),
    "no bound": (
        {"type": "sgd", "clip_norm": [{"tensors": ["a"]}]},
        "optimizer.clip_norm[0].max_norm is missing",
    ),
    "bound": (
        {"type": "sgd", "clip_norm": [{"max_norm": 0}]},
        "optimizer.clip_norm[0].max_norm is 0, but must be more than 0",
    ),
    "scaling": (
        {"type": "sgd", "automatic_loss_scaling": True},
        "optimizer.loss_scaling is constant, but automatic loss scaling changes it: ",
    ),
    "scaling value": (
        {"type": "sgd", "automatic_loss_scaling": {"bin_edge_location": 2}},
        "optimizer.automatic_loss_scaling.bin_edge_location is 2, but must be at least 0 and at ",
    ),
    "scaling period": (
        {"type": "sgd", "automatic_loss_scaling": {"update_period": 0}},
        "optimizer.automatic_loss_scaling.update_period is 0, but must be a whole number, at ",
    ),
}


@pytest.mark.parametrize("case", _WRONG)
def test_what_is_wrong_is_said(case: str) -> None:
    settings, message = _WRONG[case]
    with pytest.raises(OptionError) as caught:
        parse_optimizer(settings)
    assert caught.value.details[0].startswith(message)


def test_everything_is_said_at_once() -> None:
    with pytest.raises(OptionError) as caught:
        parse_optimizer({"type": "sgd", "momentum": -1, "weight_decay": "x", "beta1": 1, "eps": 2})
    assert caught.value.message == "4 settings of the optimizer are wrong"
    assert len(caught.value.details) == 4


def test_specs_check_themselves() -> None:
    with pytest.raises(OptionError) as caught:
        Adam(beta1=Value(2.0), eps=Value(-1.0))
    assert len(caught.value.details) == 2


def test_disabled_loss_scaling_is_none() -> None:
    for value in (False, {"enabled": False, "update_period": 2}):
        spec = parse_optimizer({"type": "sgd", "automatic_loss_scaling": value})
        assert spec.automatic_loss_scaling is None
