"""Print popc/frontend/operators.txt: what the package onnx knows about operators.

`make operators` writes it.  The first line lists the sets of element types that inputs may have;
then comes a line for each operator, with its versions, the newest first: since when, the fewest
inputs, the inputs (name, presence, type variable, number of the set), and the attributes with their
defaults, or null.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, Final

import onnx
from onnx import AttributeProto, helper

from popc_runtime.format import DType

__all__ = ["operators_table"]

_OPTION: Final = onnx.defs.OpSchema.FormalParameterOption
_PRESENCES: Final = {
    _OPTION.Single: "required",
    _OPTION.Optional: "optional",
    _OPTION.Variadic: "variadic",
}
_NAMES: Final = {"float": DType.FLOAT32, "double": DType.FLOAT64} | {it.value: it for it in DType}


def operators_table() -> str:
    """The lines of the file."""
    rows: defaultdict[str, list[Any]] = defaultdict(list)
    types: dict[tuple[str, ...], int] = {}
    schemas: Any = onnx.defs.get_all_schemas_with_history()
    for schema in sorted(schemas, key=lambda it: (it.domain, it.name, -it.since_version)):
        inputs = [_formal(each, types) for each in schema.inputs]
        row = [schema.since_version, schema.min_input, inputs, _attributes(schema)]
        rows[f"{schema.domain}:{schema.name}"].append(row)
    lines = [_packed(list(types)), *(f"{name} {_packed(row)}" for name, row in rows.items())]
    return "\n".join(lines)


def _packed(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _formal(formal: Any, types: dict[tuple[str, ...], int]) -> list[Any]:
    names = (name.removeprefix("tensor(").removesuffix(")") for name in formal.types)
    dtypes = tuple(sorted(_NAMES[name].value for name in names if name in _NAMES))
    shares = formal.is_homogeneous and len(formal.types) > 1
    number = types.setdefault(dtypes, len(types))
    return [formal.name, _PRESENCES[formal.option], formal.type_str if shares else "", number]


def _attributes(schema: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, attribute in sorted(schema.attributes.items()):
        default = attribute.default_value
        if default.type == AttributeProto.UNDEFINED:
            found[name] = None
            continue
        value = helper.get_attribute_value(default)
        found[name] = [*map(_plain, value)] if isinstance(value, list) else _plain(value)
    return found


def _plain(value: Any) -> str | int | float:
    assert isinstance(value, bytes | int | float), "tensors and graphs have no place in the table"
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    print(operators_table())
