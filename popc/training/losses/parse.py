"""A loss from plain data: the table ``[loss]`` of a training file, or a dictionary.

For example ``{"type": "cross_entropy", "input": "logits", "label": "labels"}``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from popc.options.suggest import did_you_mean
from popc.training.losses.spec import LOSS_TYPES, LossSpec
from popc_runtime.errors import OptionError
from popc_runtime.format import DType

__all__ = ["parse_loss"]


def parse_loss(table: Mapping[str, Any]) -> LossSpec:
    """The loss that a table describes.

    Raises:
        OptionError: lists everything that is wrong.
    """
    problems: list[str] = []
    settings: dict[str, Any] = {}
    for key, value in table.items():
        known = _KEYS.get(_ALIASES.get(key, key))
        if known is None:
            advice = did_you_mean(key, _KEYS) or f"choose from {', '.join(_KEYS)}"
            problems.append(f"loss.{key} is not a setting of a loss: {advice}")
            continue
        name, read = known
        if name in settings:
            problems.append(f"loss.{key} is given twice, also as {_ALIASES.get(key, key)}")
        try:
            settings[name] = read(value)
        except ValueError as error:
            problems.append(f"loss.{key} is {value!r}, but must be {error}")
    if "type" not in table:
        problems.append(f"loss.type is missing: choose from {', '.join(LOSS_TYPES)}")
    elif "type" in settings:
        # What is there but wrong has been reported; it is not missing.
        stand_ins = {key: "?" if key in table else "" for key in ("input", "label")}
        problems += LossSpec(**{**stand_ins, **settings}).problems()
    if problems:
        raise OptionError(
            "a setting of the loss is wrong"
            if len(problems) == 1
            else f"{len(problems)} settings of the loss are wrong",
            subject="loss",
            details=tuple(problems),
        )
    return LossSpec(**settings)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a name")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("a whole number")
    return value


def _positive(value: object) -> int:
    number = _whole(value)
    if number < 1:
        raise ValueError("at least 1")
    return number


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a number")
    return float(value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _integer_type(value: object) -> DType:
    names = [dtype.value for dtype in DType if dtype.is_integer]
    if value not in names:
        raise ValueError(f"one of {', '.join(names)}")
    return DType(str(value))


def _reduction(value: object) -> str:
    """In any case; PopART says NoReduction."""
    name = _text(value).lower()
    return "none" if name == "noreduction" else name


_READERS: Final[dict[str, Callable[[object], object]]] = {
    "axis": _whole,
    "blank": _whole,
    "ignore_index": _whole,
    "label_dtype": _integer_type,
    "lambda_": _number,
    "log_probability": _truth,
    "max_labels": _positive,
    "num_sampled": _positive,
    "num_true": _positive,
    "reduction": _reduction,
    "unique": _truth,
    "zero_infinity": _truth,
}
# PopART's names of settings.
_ALIASES: Final = {"ignoreIndex": "ignore_index", "inputIsLogProbability": "log_probability"}
# Key in a table -> attribute of the spec, and what reads its value.
_KEYS: Final[dict[str, tuple[str, Callable[[object], object]]]] = {
    field.name.rstrip("_"): (field.name, _READERS.get(field.name, _text))
    for field in fields(LossSpec)
}
