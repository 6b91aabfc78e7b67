"""The table of operators says what the package onnx says."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import AttributeProto, defs, helper

from popc.frontend import definitions, messages
from popc.frontend.definitions import Definition, Presence, all_definitions, find_definition
from popc_runtime.format import DType
from tools.operators_table import operators_table

_PRESENCES = {
    Presence.REQUIRED: defs.OpSchema.FormalParameterOption.Single,
    Presence.OPTIONAL: defs.OpSchema.FormalParameterOption.Optional,
    Presence.VARIADIC: defs.OpSchema.FormalParameterOption.Variadic,
}
_OTHER_NAMES = {DType.FLOAT32: "float", DType.FLOAT64: "double"}


def _schemas() -> list[Any]:
    return list(defs.get_all_schemas_with_history())


def test_the_table_is_what_the_tool_writes() -> None:
    assert definitions._TABLE.read_text(encoding="utf-8") == operators_table() + "\n"


def test_the_table_has_every_definition_of_the_standard() -> None:
    for schema in _schemas():
        found = find_definition(schema.name, schema.domain, schema.since_version)
        assert found is not None, schema.name
        assert found.since == schema.since_version
        _compare(found, schema)


def _compare(found: Definition, schema: Any) -> None:
    assert found.fewest == schema.min_input
    assert found.attributes == set(schema.attributes)
    given = {name: each.default_value for name, each in schema.attributes.items()}
    theirs = {
        name: helper.get_attribute_value(value)
        for name, value in given.items()
        if value.type != AttributeProto.UNDEFINED
    }
    ours = {name: helper.make_attribute(name, value) for name, value in found.defaults.items()}
    assert {name: helper.get_attribute_value(value) for name, value in ours.items()} == theirs
    assert all(type(value) is not list for value in found.defaults.values())
    for formal, other in zip(found.inputs, schema.inputs, strict=True):
        assert formal.name == other.name
        assert _PRESENCES[formal.presence] == other.option
        assert formal.variable in ("", other.type_str)
        names = {f"tensor({_OTHER_NAMES.get(dtype, dtype.value)})" for dtype in formal.dtypes}
        assert names <= set(other.types)


@pytest.mark.parametrize("version", range(1, 27))
def test_the_definition_that_holds_is_the_one_that_onnx_finds(version: int) -> None:
    for name, domain in {(schema.name, schema.domain) for schema in _schemas()}:
        found = find_definition(name, domain, version)
        try:
            since = defs.get_schema(name, version, domain).since_version
        except defs.SchemaError:
            since = None
        assert (found.since if found else None) == since, name


def test_operators_that_the_standard_does_not_know_have_no_definition() -> None:
    assert all_definitions("Attention", "com.microsoft") == ()
    assert find_definition("attention", "", 26) is None


def test_messages_are_those_of_the_package() -> None:
    names = set(messages.__all__)
    assert len(names) > 10
    assert all(getattr(messages, name) is getattr(onnx, name) for name in names)
