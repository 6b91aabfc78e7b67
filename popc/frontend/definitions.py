"""The standard's definitions of its operators, in each version: what they take, and defaults.

`operators.txt` holds it, which `make operators` writes: to ask the package onnx for one definition
has all of them made, with their documentation, which takes as long as a small model.  So models
mean the same whichever version of that package is there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final

from popc.frontend.values import OnnxAttribute
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["Definition", "Formal", "Presence", "all_definitions", "find_definition", "newest"]

_TABLE: Final = Path(__file__).with_name("operators.txt")


class Presence(StrEnum):
    """The number of times that an input may be given."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    VARIADIC = "variadic"


@frozen
class Formal:
    """An input of an operator.

    Attributes:
        name: What the standard calls it.
        presence: How often it may be given.
        variable: The name of its type, which others of that name share; "" if it is free.
        dtypes: What it may be, of what popc has; empty: nothing that popc has, or anything.
    """

    name: str
    presence: Presence
    variable: str
    dtypes: frozenset[DType]


@frozen
class Definition:
    """An operator from one version on.

    Attributes:
        since: The first version.
        fewest: Inputs that have to be given.
        inputs: All that may be; the last one may be variadic.
        attributes: Their names.
        defaults: Of attributes that have one.
    """

    since: int
    fewest: int
    inputs: tuple[Formal, ...]
    attributes: frozenset[str]
    defaults: Mapping[str, OnnxAttribute]


@cache
def find_definition(op_type: str, domain: str, version: int) -> Definition | None:
    """The definition that holds in ``version`` of a domain, if there is one."""
    found = all_definitions(op_type, domain)
    return next((each for each in found if each.since <= version), None)


def newest(op_type: str, domain: str) -> Definition | None:
    """The definition of the newest version."""
    return next(iter(all_definitions(op_type, domain)), None)


def all_definitions(op_type: str, domain: str) -> tuple[Definition, ...]:
    """The definitions of an operator, the newest one first."""
    types, lines = _table()
    line = lines.get(f"{domain}:{op_type}")
    return () if line is None else tuple(_read(types, *row) for row in json.loads(line))


@cache
def _table() -> tuple[list[frozenset[DType]], dict[str, str]]:
    """Sets of types, and of each operator what is still to be read."""
    first, *lines = _TABLE.read_text(encoding="utf-8").splitlines()
    types = [frozenset(map(DType, names)) for names in json.loads(first)]
    rows = (line.partition(" ") for line in lines)
    return types, {name: rest for name, _, rest in rows}


def _read(
    types: list[frozenset[DType]], since: int, fewest: int, inputs: Any, attributes: Any
) -> Definition:
    formals = [
        Formal(name, Presence(presence), variable, types[number])
        for name, presence, variable, number in inputs
    ]
    defaults = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in attributes.items()
        if value is not None
    }
    return Definition(since, fewest, tuple(formals), frozenset(attributes), defaults)
