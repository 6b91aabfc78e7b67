"""The user's settings of training: the loss, the optimizer, and the weights it trains."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from popc.ir import TensorType
from popc.optimizers import OptimizerSpec, optimizer_to_mapping, parse_optimizer
from popc.options import did_you_mean, read_table
from popc.training.losses import LossSpec, parse_loss
from popc_runtime.errors import OptionError
from popc_runtime.ground.frozen import frozen

__all__ = ["TrainingSettings", "parse_training", "read_training_file", "with_requests"]

_T = TypeVar("_T")
_TABLES = ("loss", "optimizer", "weights")


@frozen
class TrainingSettings:
    """The settings for training a model.

    Attributes:
        loss: What is minimised.
        optimizer: How.
        trainable: Names or patterns of the weights to train; empty: every floating-point
            initializer with at least one dimension that is no constant of a formula.
        frozen: Names or patterns of weights that stay as they are, whatever ``trainable`` says.
        needs_weights: Whether a model is refused whose loss depends on no weight, and of which no
            other gradient is asked for.
    """

    loss: LossSpec
    optimizer: OptimizerSpec
    trainable: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    needs_weights: bool = True

    def is_trainable(self, name: str, type_: TensorType) -> bool:
        """True if an initializer is a weight to train.

        Scalars are not, unless named: exporters keep numbers of formulas in them.
        """
        if any(fnmatchcase(name, pattern) for pattern in self.frozen):
            return False
        if not self.trainable:
            return type_.rank > 0
        return any(fnmatchcase(name, pattern) for pattern in self.trainable)


def read_training_file(path: str | os.PathLike[str]) -> TrainingSettings:
    """Read a TOML or JSON file with the tables ``loss``, ``optimizer`` and perhaps ``weights``.

    Raises:
        OptionError: lists everything that is wrong with it.
        ResourceError: it cannot be read.
    """
    problems: list[str] = []
    table = read_table(path, "training file", problems)
    if problems:
        raise _error(problems)
    return parse_training(table)


def parse_training(mapping: Mapping[str, Any]) -> TrainingSettings:
    """The settings in a mapping with the keys ``loss``, ``optimizer`` and perhaps ``weights``.

    Raises:
        OptionError: lists everything that is wrong.
    """
    problems: list[str] = []
    for key in mapping:
        if key not in _TABLES:
            guess = did_you_mean(key, _TABLES) or f"there are {', '.join(_TABLES)}"
            problems.append(f"training has no table {key!r}: {guess}")
    loss = _collected(lambda: parse_loss(_table(mapping, "loss")), problems)
    optimizer = _collected(lambda: parse_optimizer(_table(mapping, "optimizer")), problems)
    weights = mapping.get("weights", {})
    trainable = _names(weights, "trainable", problems)
    frozen = _names(weights, "frozen", problems)
    if isinstance(weights, Mapping):
        unknown = sorted(map(str, weights.keys() - {"trainable", "frozen"}))
        problems += [f"weights has no setting {key!r}" for key in unknown]
    if problems or loss is None or optimizer is None:
        raise _error(problems)
    return TrainingSettings(loss, optimizer, trainable, frozen)


def with_requests(settings: TrainingSettings, requests: Mapping[str, object]) -> TrainingSettings:
    """``settings`` with what options of another system ask for, by dotted name.

    What the settings say themselves stays.

    Raises:
        OptionError: an optimizer cannot do what is asked for.
    """
    table = optimizer_to_mapping(settings.optimizer)
    for request, value in requests.items():
        assert request == "optimizer.automatic_loss_scaling", "no other is known"
        if settings.optimizer.automatic_loss_scaling is not None:
            continue
        scale = settings.optimizer.loss_scaling.value
        table |= {
            "automatic_loss_scaling": value or True,
            "loss_scaling": {"value": scale, "const": False},
        }
    if not requests:
        return settings
    return replace(settings, optimizer=parse_optimizer(table))


def _table(mapping: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = mapping.get(name)
    if value is None:
        raise _error([f"the table {name!r} is missing"])
    if not isinstance(value, Mapping):
        raise _error([f"{name} must be a table, not {value!r}"])
    return value


def _collected(parse: Callable[[], _T], problems: list[str]) -> _T | None:
    try:
        return parse()
    except OptionError as error:
        problems.extend(error.details or (error.message,))
        return None


def _names(weights: object, key: str, problems: list[str]) -> tuple[str, ...]:
    if not isinstance(weights, Mapping):
        if key == "trainable":  # say it once
            problems.append(f"weights must be a table, not {weights!r}")
        return ()
    value = weights.get(key, ())
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(item, str) for item in given):
        problems.append(f"weights.{key} must be a list of names or patterns, not {value!r}")
        return ()
    return tuple(given)


def _error(problems: list[str]) -> OptionError:
    if len(problems) == 1:
        return OptionError(problems[0], subject="training")
    return OptionError(
        f"{len(problems)} settings of the training are wrong",
        subject="training",
        details=tuple(problems),
    )
