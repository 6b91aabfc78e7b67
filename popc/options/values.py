"""Values of options from text and from data, by the type of the option."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from popc.options.anchors import Anchor
from popc.options.annotations import Rule, parse_rules
from popc.options.dialects.popart_patterns import BUILT_IN, names_meant, why_no_switch
from popc.options.locations import Settings, parse_location
from popc.options.replication import ReplicaGroups
from popc.options.schema import OptionSpec
from popc.options.suggest import did_you_mean
from popc.options.table import FrozenTable

__all__ = ["parse_value"]

_T = TypeVar("_T")

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
_TRUTH: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


def parse_value(spec: OptionSpec, value: object) -> Any:
    """``value`` as the type of ``spec``; text is what command line and environment give.

    Raises:
        ValueError: says what is wrong, as what follows the name of the option.
    """
    return _PARSERS[spec.type](spec, value)


def _parse_bool(_: OptionSpec, value: object) -> bool:
    if isinstance(value, bool):
        return value
    truth = _TRUTH.get(value.lower()) if isinstance(value, str) else None
    if truth is None:
        raise ValueError(f"is {value!r}, but must be true or false")
    return truth


def _parse_int(spec: OptionSpec, value: object) -> int:
    number = int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise ValueError(f"is {value!r}, but must be a whole number")
    if number < spec.low:
        raise ValueError(f"is {number}, but must be at least {spec.low}")
    if number > spec.high:
        raise ValueError(f"is {number}, but must be at most {spec.high}")
    return number


def _parse_float(spec: OptionSpec, value: object) -> float:
    number = value
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            number = value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"is {value!r}, but must be a number")
    if not spec.low <= number <= spec.high:
        raise ValueError(f"is {number}, but must be from {spec.low} to {spec.high}")
    return float(number)


def _parse_text(_: OptionSpec, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"is {value!r}, but must be text")
    return value.strip()


def _parse_choice(spec: OptionSpec, value: object) -> str:
    if isinstance(value, str):
        spellings = {_without_joints(one): one for one in spec.choices} | dict(spec.synonyms)
        meant = spellings.get(_without_joints(value))
        if meant is not None:
            return meant
    raise ValueError(f"is {value!r}, but must be one of {', '.join(spec.choices)}")


def _without_joints(word: str) -> str:
    """A word as PopART writes it, such as NormOnly, is the same as norm_only."""
    return word.lower().replace("_", "")


def _parse_patterns(_: OptionSpec, value: object) -> tuple[str, ...]:
    patterns = value.split(",") if isinstance(value, str) else value
    if not isinstance(patterns, list | tuple) or not all(isinstance(one, str) for one in patterns):
        raise ValueError(f"is {value!r}, but must be a list of names or patterns")
    stripped = (one.strip() for one in patterns)
    return tuple(dict.fromkeys(one for one in stripped if one))


def _parse_names(spec: OptionSpec, value: object) -> tuple[str, ...]:
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"is {value!r}, but must be a list of names")
    chosen = sorted({name for name in names if name})
    for name in chosen:
        _require_known(spec, name)
    return tuple(chosen)


def _require_known(spec: OptionSpec, name: str) -> None:
    if name not in spec.choices:
        advice = did_you_mean(name, spec.choices) or f"choose from {', '.join(spec.choices)}"
        raise ValueError(f"contains {name!r}, which does not exist: {advice}")


def _parse_switches(spec: OptionSpec, value: object) -> FrozenTable[bool]:
    """Names of passes and rules; PopART's names of patterns stand for ours."""
    table = _parse_table(value, "from names to on or off", partial(_parse_bool, spec))
    switches: dict[str, bool] = {}
    for given, wanted in table.items():
        reason = why_no_switch(given)
        if reason and not (wanted and given in BUILT_IN):
            raise ValueError(f"names {given!r}, which is no switch: {reason}")
        for name in names_meant(given):
            if spec.choices and not reason:
                _require_known(spec, name)
            if switches.setdefault(name, wanted) != wanted:
                raise ValueError(f"switches {name!r} both on and off, once as {given!r}")
    return FrozenTable(switches)


def _parse_integers(spec: OptionSpec, value: object) -> tuple[int, ...]:
    return tuple(_parse_int(spec, one) for one in _items(value))


def _parse_numbers(spec: OptionSpec, value: object) -> tuple[float, ...]:
    return tuple(_parse_float(spec, one) for one in _items(value))


def _items(value: object) -> list[object]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise ValueError(f"is {value!r}, but must be a list of numbers")
    stripped = (one.strip() if isinstance(one, str) else one for one in items)
    return [one for one in stripped if one != ""]


def _parse_anchor(_: OptionSpec, value: object) -> Anchor:
    return Anchor.parse(value)


def _parse_anchors(_: OptionSpec, value: object) -> FrozenTable[Anchor]:
    return _parse_table(value, "from tensor names to return types", Anchor.parse)


def _parse_groups(_: OptionSpec, value: object) -> FrozenTable[ReplicaGroups]:
    return _parse_table(value, "from weights to groups of replicas", ReplicaGroups.parse)


def _parse_choices(spec: OptionSpec, value: object) -> FrozenTable[str]:
    what = f"from names to {' or '.join(spec.choices)}"
    return _parse_table(value, what, partial(_parse_choice, spec))


def _parse_axes(spec: OptionSpec, value: object) -> FrozenTable[str]:
    def parse(axis: object) -> str:
        is_number = isinstance(axis, int) and not isinstance(axis, bool)
        return _parse_choice(spec, str(axis) if is_number else axis)

    return _parse_table(value, "from names to numbers of dimensions, or none", parse)


def _parse_floats(spec: OptionSpec, value: object) -> FrozenTable[float]:
    parse = partial(_parse_float, spec)
    return _parse_table(value, "from names to numbers", parse, example="a=0.3,b=0.5")


def _parse_ints(spec: OptionSpec, value: object) -> FrozenTable[int]:
    example = f"{spec.choices[0]}=1000" if spec.choices else "a=1,b=2"
    what = "from names to whole numbers"
    table = _parse_table(value, what, partial(_parse_int, spec), example=example)
    unknown = [name for name in table if spec.choices and name not in spec.choices]
    if unknown:
        advice = did_you_mean(unknown[0], spec.choices) or f"choose from {', '.join(spec.choices)}"
        raise ValueError(f"has no entry {unknown[0]!r}: {advice}")
    return table


def _parse_table(
    value: object, what: str, parse: Callable[[object], _T], example: str = "y=final,z=every_n:2"
) -> FrozenTable[_T]:
    """A table, ``what`` it maps, whose entries ``parse`` reads; ``example`` shows it as text."""
    table = _table_of(value, example) if isinstance(value, str) else value
    if not isinstance(table, Mapping):
        raise ValueError(f"is {value!r}, but must be a table {what}")
    entries: dict[str, _T] = {}
    for name, one in table.items():
        try:
            entries[str(name)] = parse(one)
        except ValueError as error:
            raise ValueError(f"of {name!r} {error}") from None
    return FrozenTable(entries)


def _table_of(text: str, example: str) -> dict[str, str]:
    """``y=final,z=every_n:2`` as a table."""
    table: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        name, separator, value = item.rpartition("=")
        if not separator:
            raise ValueError(f"holds {item!r}, but must be like {example}")
        table[name.strip()] = value.strip()
    return table


def _parse_location(_: OptionSpec, value: object) -> Settings:
    return parse_location(value)


def _parse_locations(_: OptionSpec, value: object) -> FrozenTable[Settings]:
    return _parse_table(value, "from tensors to where they are kept", parse_location)


def _parse_rules(spec: OptionSpec, value: object) -> tuple[Rule, ...]:
    return parse_rules(value, spec.choices)


_PARSERS: Final[dict[str, Callable[[OptionSpec, object], Any]]] = {
    "anchor": _parse_anchor,
    "anchors": _parse_anchors,
    "axes": _parse_axes,
    "bool": _parse_bool,
    "choice": _parse_choice,
    "choices": _parse_choices,
    "float": _parse_float,
    "floats": _parse_floats,
    "groups": _parse_groups,
    "int": _parse_int,
    "ints": _parse_ints,
    "integers": _parse_integers,
    "location": _parse_location,
    "locations": _parse_locations,
    "names": _parse_names,
    "numbers": _parse_numbers,
    "rules": _parse_rules,
    "switches": _parse_switches,
    "patterns": _parse_patterns,
    "text": _parse_text,
}
