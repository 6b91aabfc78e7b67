"""Optimizers from plain data: the table ``[optimizer]`` of an options file, or a dictionary.

    [optimizer]
    type = "adamw"
    learning_rate = { value = 1e-3, const = false }
    weight_decay = 0.01

    [[optimizer.specific]]
    tensors = ["*.bias"]
    weight_decay = 0

    [[optimizer.clip_norm]]
    max_norm = 1.0

PopART's spellings are understood: ``defaultLearningRate`` is ``learning_rate``, and a pair
``[0.1, false]`` is a value with its constness.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from popc.optimizers.spec import (
    SGD,
    Adam,
    Adaptive,
    AutomaticLossScaling,
    ClipNorm,
    GradientMap,
    OptimizerSpec,
    Specific,
    option_error,
)
from popc.optimizers.values import HyperParameterSpec, Value
from popc.options.suggest import did_you_mean
from popc.options.table import FrozenTable
from popc_runtime.errors import OptionError
from popc_runtime.format import DType

__all__ = ["OPTIMIZER_TYPES", "optimizer_to_mapping", "parse_optimizer"]

# What a type stands for: the kind of spec, and the settings that come with the type.
_TYPES: Final[dict[str, tuple[type[OptimizerSpec], dict[str, str]]]] = {
    "adadelta": (Adaptive, {"mode": "adadelta"}),
    "adagrad": (Adaptive, {"mode": "adagrad"}),
    "adam": (Adam, {"mode": "adam"}),
    "adam_no_bias": (Adam, {"mode": "adam_no_bias"}),
    "adamax": (Adam, {"mode": "adamax"}),
    "adamw": (Adam, {"mode": "adam", "weight_decay_mode": "decay"}),
    "centered_rmsprop": (Adaptive, {"mode": "centered_rmsprop"}),
    "lamb": (Adam, {"mode": "lamb"}),
    "lamb_no_bias": (Adam, {"mode": "lamb_no_bias"}),
    "rmsprop": (Adaptive, {"mode": "rmsprop"}),
    "sgd": (SGD, {}),
}
OPTIMIZER_TYPES: Final = tuple(_TYPES)
# PopART's spellings, which differ in case and underscores only, and its name for a plain SGD.
_SPELLINGS: Final = {name.replace("_", ""): name for name in _TYPES} | {"constsgd": "sgd"}

_CHOICES: Final = {
    "accumulator_and_momentum": ("combined", "separate"),
    "weight_decay_mode": ("decay", "l2_regularization"),
}
_STATE_TYPES: Final = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64)
# The fields that hold the entries of lists of tables.
_LISTS: Final = {
    "clip_norm": "clip_norms",
    "gradient_map": "gradient_maps",
    "specific": "specific",
}

_T = TypeVar("_T")
_Parser: TypeAlias = Callable[[object], _T]  # raises ValueError: what follows the setting's name


def parse_optimizer(mapping: Mapping[str, object]) -> OptimizerSpec:
    """The optimizer that a table describes.

    Raises:
        OptionError: lists everything that is wrong.
    """
    reader = _Reader()
    given = reader.table(mapping, "optimizer")
    word = given.pop("type", None)
    name = _SPELLINGS.get(_without_joints(word)) if isinstance(word, str) else None
    if name is None:
        raise option_error([_type_problem(word)])
    kind, implied = _TYPES[name]
    parsers = _parsers(kind, name, implied, reader)
    settings = reader.settings(given, parsers, "optimizer", f"the optimizer {name}")
    try:
        spec = kind(
            **{_LISTS.get(key, key): setting for key, setting in {**settings, **implied}.items()}
        )
    except OptionError as error:
        reader.problems.extend(error.details)
    if reader.problems:
        raise option_error(reader.problems)
    return spec


def _type_problem(name: object) -> str:
    choices = f"choose from {', '.join(_TYPES)}"
    if name is None:
        return f"optimizer.type is missing: {choices}"
    advice = did_you_mean(name.lower(), _TYPES) if isinstance(name, str) else ""
    return f"optimizer.type is {name!r}, which does not exist: {advice or choices}"


def _parsers(
    kind: type[OptimizerSpec], name: str, implied: Mapping[str, str], reader: _Reader
) -> dict[str, _Parser[Any]]:
    """The parsers of the settings that the type takes."""
    mode = implied.get("mode", name)
    hypers = {spec.name: spec for spec in kind.hyper_parameters()}
    parsers: dict[str, _Parser[Any]] = {}
    for key in (field.name for field in fields(kind)):
        if key in implied or mode not in kind.MODES.get(key, (mode,)):
            continue
        if key in hypers:
            parsers[key] = partial(_parse_value, hypers[key])
        elif key in _CHOICES:
            parsers[key] = partial(_parse_choice, _CHOICES[key])
        elif key.endswith("_type"):
            parsers[key] = _parse_dtype
        elif key == "rmsprop_tf_variant":
            parsers[key] = _parse_bool
    own = {
        key: parser for key, parser in parsers.items() if key in hypers and hypers[key].per_tensor
    }
    parsers["specific"] = partial(_parse_list, partial(reader.specific, own))
    parsers["clip_norm"] = partial(_parse_list, reader.clip_norm)
    parsers["gradient_map"] = partial(_parse_list, reader.gradient_map)
    parsers["automatic_loss_scaling"] = reader.automatic_loss_scaling
    return parsers


class _Reader:
    """Reads tables and collects what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def table(self, value: object, where: str) -> dict[str, object]:
        """A table by our names of its keys."""
        if not isinstance(value, Mapping):
            self.problems.append(f"{where} is {value!r}, but must be a table of settings")
            return {}
        table: dict[str, object] = {}
        for key, item in value.items():
            name = _our_name(str(key))
            if name in table:
                self.problems.append(f"{where}.{name} is given twice, also as {key}")
            table[name] = item
        return table

    def settings(
        self,
        table: Mapping[str, object],
        parsers: Mapping[str, _Parser[Any]],
        where: str,
        what: str,
    ) -> dict[str, Any]:
        """The settings of a table that are right."""
        settings: dict[str, Any] = {}
        for key, value in table.items():
            if key not in parsers:
                advice = did_you_mean(key, parsers) or f"choose from {', '.join(sorted(parsers))}"
                self.problems.append(f"{where}.{key} is not a setting of {what}: {advice}")
                continue
            try:
                settings[key] = parsers[key](value)
            except ValueError as error:
                self.problems.append(f"{where}.{key} {error}")
        return settings

    def specific(
        self, parsers: Mapping[str, _Parser[Any]], index: int, value: object
    ) -> Specific | None:
        """An entry of ``[[optimizer.specific]]``; ``None`` if it names no tensors."""
        where = f"optimizer.specific[{index}]"
        taken = {"tensors": _parse_names, "accum_type": _parse_dtype, **parsers}
        found = self.settings(self.table(value, where), taken, where, "single tensors")
        tensors = found.pop("tensors", ())
        if not tensors:
            self.problems.append(f"{where}.tensors is missing: list the names of the weights")
            return None
        accum_type = found.pop("accum_type", None)
        return Specific(tensors, FrozenTable(found), accum_type)

    def clip_norm(self, index: int, value: object) -> ClipNorm | None:
        """An entry of ``[[optimizer.clip_norm]]``; ``None`` if it has no bound."""
        where = f"optimizer.clip_norm[{index}]"
        bound = HyperParameterSpec("max_norm", "", open_low=True)
        parsers: dict[str, _Parser[Any]] = {
            "max_norm": partial(_parse_number, bound),
            "tensors": _parse_names,
        }
        table = self.table(value, where)
        found = self.settings(table, parsers, where, "clip_norm")
        if "max_norm" not in table:
            self.problems.append(f"{where}.max_norm is missing")
        return ClipNorm(**found) if "max_norm" in found else None

    def gradient_map(self, index: int, value: object) -> GradientMap | None:
        """An entry of ``[[optimizer.gradient_map]]``; ``None`` if it names no function."""
        where = f"optimizer.gradient_map[{index}]"
        parsers: dict[str, _Parser[Any]] = {"function": _parse_text, "tensors": _parse_names}
        table = self.table(value, where)
        found = self.settings(table, parsers, where, "gradient_map")
        if "function" not in table:
            self.problems.append(f"{where}.function is missing: name a function of the model")
        return GradientMap(**found) if "function" in found else None

    def automatic_loss_scaling(self, value: object) -> AutomaticLossScaling | None:
        """The table ``[optimizer.automatic_loss_scaling]``, or ``true``; ``None`` if disabled."""
        if isinstance(value, bool):
            return AutomaticLossScaling() if value else None
        where = "optimizer.automatic_loss_scaling"
        part = HyperParameterSpec("", "", high=1.0)
        parsers: dict[str, _Parser[Any]] = {
            "bin_edge_location": partial(_parse_number, part),
            "enabled": _parse_bool,
            "threshold_upper_count_proportion": partial(_parse_number, part),
            "to_track_tensors": _parse_names,
            "tracked_gradients": partial(_parse_choice, ("all", "products")),
            "update_period": _parse_count,
        }
        table = self.table(value, where)
        found = self.settings(table, parsers, where, "automatic loss scaling")
        return AutomaticLossScaling(**found) if found.pop("enabled", True) else None


def _our_name(key: str) -> str:
    """``defaultLearningRate`` as ``learning_rate``."""
    key = re.sub("^default(?=[A-Z])", "", key)
    return re.sub("(?<=[a-z0-9])(?=[A-Z])", "_", key).replace("-", "_").lower()


def _parse_list(parse: Callable[[int, object], _T | None], value: object) -> tuple[_T, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ValueError(f"is {value!r}, but must be a list of tables")
    return tuple(filter(None, (parse(index, item) for index, item in enumerate(value))))


def _parse_value(spec: HyperParameterSpec, value: object) -> Value:
    if isinstance(value, Mapping):
        unknown = [str(key) for key in value if key not in ("value", "const")]
        if unknown:
            raise ValueError(f"has the field {unknown[0]!r}, but takes only value and const")
        if "value" not in value:
            raise ValueError("has no value")
        return _pair(spec, value["value"], value.get("const", True))
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != 2:
            raise ValueError(
                f"is {value!r}, but must be a number, or a pair of a number and true or false "
                "(constant or not)"
            )
        return _pair(spec, *value)
    return _pair(spec, value, const=True)


def _pair(spec: HyperParameterSpec, value: object, const: object) -> Value:
    if not isinstance(const, bool):
        raise ValueError(f"has const = {const!r}, but const must be true or false")
    if spec.flag and value not in (0, 1):  # PopART's flags are numbers
        return Value(float(_parse_bool(value)), const)
    if spec.flag:
        return Value(float(bool(value)), const)
    return Value(_number(value), const)


def _number(value: object) -> float:
    """A number, also as text; its range is checked later."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"is {value!r}, but must be a number")
    return float(value)


def _parse_number(spec: HyperParameterSpec, value: object) -> float:
    number = _number(value)
    problem = spec.problem(number)
    if problem:
        raise ValueError(problem)
    return number


def _parse_count(value: object) -> int:
    number = _number(value)
    if number < 1 or not number.is_integer():
        raise ValueError(f"is {value!r}, but must be a whole number, at least 1")
    return int(number)


def _parse_bool(value: object) -> bool:
    text = value.lower() if isinstance(value, str) else value
    if text in ("true", "false"):
        return text == "true"
    if not isinstance(value, bool):
        raise ValueError(f"is {value!r}, but must be true or false")
    return value


def _parse_choice(choices: Sequence[str], value: object) -> str:
    """One of ``choices``; case and underscores do not matter."""
    meant = {_without_joints(choice): choice for choice in choices}
    found = meant.get(_without_joints(value)) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"is {value!r}, but must be one of {', '.join(choices)}")
    return found


def _without_joints(word: str) -> str:
    return word.lower().replace("_", "")


def _parse_dtype(value: object) -> DType:
    return DType(_parse_choice([dtype.value for dtype in _STATE_TYPES], value))


def _parse_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"is {value!r}, but must be a name")
    return value


def _parse_names(value: object) -> tuple[str, ...]:
    names: Iterable[Any] = value if isinstance(value, list | tuple) else [None]
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"is {value!r}, but must be a list of names")
    return tuple(names)


def optimizer_to_mapping(spec: OptimizerSpec) -> dict[str, object]:
    """The optimizer as plain data, every setting that it takes; `parse_optimizer` reads it."""
    result: dict[str, object] = {"type": spec.type}
    for declared in fields(spec):
        value = getattr(spec, declared.name)
        if declared.name == "mode" or value is None or not spec.takes(declared.name):
            continue
        key = next((key for key, field in _LISTS.items() if field == declared.name), declared.name)
        if value not in ((), False):
            result[key] = _plain(value)
    return result


def _plain(value: object) -> object:
    if isinstance(value, Value):
        return value.value if value.const else {"value": value.value, "const": False}
    if isinstance(value, DType):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Specific):
        own = {name: _plain(number) for name, number in value.values.items()}
        types = {"accum_type": value.accum_type.value} if value.accum_type else {}
        return {"tensors": list(value.tensors), **types, **own}
    if isinstance(value, ClipNorm | GradientMap | AutomaticLossScaling):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value
