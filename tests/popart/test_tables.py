"""The tables of methods against ONNX's own schemas."""

from __future__ import annotations

from typing import Any, Final

import onnx
import pytest

from popc.popart.calls import DEBUG, REQUIRED, Parameter
from popc.popart.opsets import GRAPHCORE_ROWS, ONNX_ROWS, OPSETS, AiGraphcoreOpset1
from popc.popart.opsets.rows import Row

_A: Final = onnx.AttributeProto
_ROLES: Final = ("args", "num_outputs")
# PopART's builder has no parameter for these.
_LEFT_OUT: Final = {"auto_pad", "consumed_inputs", "sparse_value"}
_UNLIMITED: Final = 1 << 30
# The schema allows fewer inputs than PopART's builder, or the other way round.
_INPUTS: Final = {("Loop", 1): 3, ("Loop", 11): 2}
_METHODS: Final = sorted({row.method for row in ONNX_ROWS})


def _schema(row: Row) -> Any:
    return onnx.defs.get_schema(row.op_type, row.version, "")


def _parameters(row: Row) -> list[Parameter]:
    """Those that become attributes, in order."""
    left_out = (*_ROLES, "is_value_sparse")  # which is no attribute, but would choose one
    return [
        parameter
        for parameter in row.form
        if parameter.name not in left_out and parameter.kind is not DEBUG
    ]


@pytest.mark.parametrize("method", _METHODS)
def test_methods_are_those_of_onnx(method: str) -> None:
    for row in ONNX_ROWS:
        if row.method == method:
            _check_counts(row)
            _check_defaults(row)
            _check_order(row)


def _check_counts(row: Row) -> None:
    schema = _schema(row)
    assert schema.since_version == row.version
    assert row.fewest == _INPUTS.get((row.op_type, row.version), schema.min_input)
    assert row.most == (None if schema.max_input >= _UNLIMITED else schema.max_input)
    assert row.outputs == (None if schema.max_output >= _UNLIMITED else schema.max_output)
    assert onnx.defs.get_schema(row.op_type, row.opset, "").since_version == row.version


def _check_defaults(row: Row) -> None:
    schema = _schema(row)
    expected = {
        name: attribute for name, attribute in schema.attributes.items() if name not in _LEFT_OUT
    }
    parameters = {parameter.name: parameter for parameter in _parameters(row)}
    assert set(parameters) == set(expected)
    for name, item in expected.items():
        default = parameters[name].default
        if item.required:
            assert default is REQUIRED, name
        elif item.default_value.type == _A.UNDEFINED or isinstance(default, list):
            assert default in ("", None, [], REQUIRED), name  # the operator knows its own
        else:
            value = onnx.helper.get_attribute_value(item.default_value)
            value = value.decode() if isinstance(value, bytes) else value
            assert default == (pytest.approx(value, 2e-6) if isinstance(value, float) else value)


def _check_order(row: Row) -> None:
    parameters = _parameters(row)
    assert row.form[-1].kind is DEBUG
    required = [parameter.name for parameter in parameters if parameter.default is REQUIRED]
    optional = [parameter.name for parameter in parameters if parameter.default is not REQUIRED]
    assert [parameter.name for parameter in parameters] == [*sorted(required), *sorted(optional)]


@pytest.mark.parametrize("opset", OPSETS)
def test_every_operator_of_onnx_has_a_method(opset: int) -> None:
    latest: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and schema.since_version <= opset:
            latest[schema.name] = max(latest.get(schema.name, 0), schema.since_version)
    current = {name for name, version in latest.items() if _is_public(name, version)}
    methods = {
        row.op_type
        for row in ONNX_ROWS
        if row.opset <= opset and hasattr(OPSETS[opset], row.method)
    }
    assert current <= methods


def _is_public(name: str, version: int) -> bool:
    """Operators that are neither experimental nor gone."""
    schema = onnx.defs.get_schema(name, version, "")
    return not schema.deprecated and "EXPERIMENTAL" not in str(schema.support_level)


def test_the_class_of_ai_graphcore_has_58_methods() -> None:
    names = {name for name in dir(AiGraphcoreOpset1) if not name.startswith("_")}
    assert len(names) == 58
    assert {row.method for row in GRAPHCORE_ROWS} | {"multiconv"} == names
