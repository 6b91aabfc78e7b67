"""Attributes that nothing reads are refused; those that rules do not read are argued."""

from __future__ import annotations

import functools
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser
from onnxruntime.capi import onnxruntime_pybind11_state

import popc
from popc.frontend import find_unsupported, load_model
from popc.frontend.known_attributes import IGNORED, READ
from popc.frontend.rules import RULES
from popc.frontend.structure import NEWEST_OPSET
from popc_runtime.errors import UnsupportedOpError
from tests.support.oracles import run_model

_OUTSIDE: Final = "consumed_inputs"  # of any node of opset 1


def _strings(value: object, seen: set[int]) -> Iterator[str]:
    """The texts that a function, or what it calls, may hold; f-strings give their parts."""
    if isinstance(value, str):
        yield value
    if id(value) in seen or isinstance(value, (str, bytes)):
        return
    seen.add(id(value))
    for inner in _parts(value):
        yield from _strings(inner, seen)


def _parts(value: object) -> list[object]:
    match value:
        case tuple() | list() | set() | frozenset():
            found = list(value)
        case Mapping():
            found = [*value.keys(), *value.values()]
        case functools.partial():
            found = [value.func, value.args, value.keywords]
        case types.CodeType():
            found = list(value.co_consts)
        case type() if value.__module__.startswith("popc.frontend.rules"):
            found = list(vars(value).values())
        case types.FunctionType() if value.__module__.startswith("popc.frontend"):
            found = _parts_of_function(value)
        case _:
            found = []
    return found


def _parts_of_function(function: types.FunctionType) -> list[object]:
    """Its code, its defaults, what it closes over, and the globals that it names."""
    names = sorted({name for code in _codes(function.__code__) for name in code.co_names})
    used = [function.__globals__.get(name) for name in names]
    modules = [
        item
        for item in used
        if isinstance(item, types.ModuleType) and item.__name__.startswith("popc.frontend.rules")
    ]
    used += [getattr(module, name, None) for module in modules for name in names]
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return [function.__code__, function.__defaults__, function.__kwdefaults__, *cells, *used]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes(inner)


@functools.cache
def _read(domain: str, op_type: str) -> frozenset[str]:
    found = set(_strings(RULES[domain, op_type], set()))
    prefixes = [name for name in found if name.endswith(("trans", "transBatch", "transpose_"))]
    return frozenset(found | {f"{prefix}{side}" for prefix in prefixes for side in "ABab"})


def _is_read(name: str, found: Collection[str]) -> bool:
    """True for what rules put together too, of parts that an underscore begins or ends."""
    joints = (at for at in range(1, len(name)) if "_" in name[at - 1 : at + 1])
    return name in found or any(
        name[:joint] in found and _is_read(name[joint:], found) for joint in joints
    )


def _schemas() -> Iterator[Any]:
    for schema in onnx.defs.get_all_schemas_with_history():
        newer = not schema.domain and schema.since_version > NEWEST_OPSET
        if (schema.domain, schema.name) in RULES and not schema.deprecated and not newer:
            yield schema


def test_attributes_of_the_standard_are_read_or_argued() -> None:
    missing = {
        (schema.domain, schema.name, name)
        for schema in _schemas()
        for name in schema.attributes
        if name != _OUTSIDE
        and not _is_read(name, _read(schema.domain, schema.name))
        and name not in IGNORED.get((schema.domain, schema.name), {})
    }
    assert sorted(missing) == []


def test_attributes_of_onnxruntime_are_read_or_argued() -> None:
    missing = {
        (schema.name, name)
        for schema in onnxruntime_pybind11_state.get_all_operator_schema()
        if schema.domain == "com.microsoft" and (schema.domain, schema.name) in RULES
        for name in schema.attributes
        if name not in READ[schema.domain].get(schema.name, ())
        and name not in IGNORED.get((schema.domain, schema.name), {})
    }
    assert sorted(missing) == []


def test_the_table_holds_what_rules_read() -> None:
    unread = {
        (domain, op_type, name)
        for domain, table in READ.items()
        for op_type, names in table.items()
        for name in names
        if name not in _read(domain, op_type)
    }
    assert sorted(unread) == []
    assert all((domain, op) in RULES for domain, table in READ.items() for op in table)
    assert all(key in RULES for key in IGNORED)


def _model(
    *nodes: onnx.NodeProto, functions: tuple[onnx.FunctionProto, ...] = ()
) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4, 4])
    outputs = [
        helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None) for node in nodes
    ]
    opsets = [
        helper.make_opsetid(*numbers)
        for numbers in (("", 20), ("com.microsoft", 1), ("ai.graphcore", 1), ("my", 1))
    ]
    graph = helper.make_graph(nodes, "g", [x], outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=functions)


def _node(op_type: str, domain: str = "", output: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, ["x"], [output], domain=domain, **attributes)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (_node("Relu", alpha=1.0), ("alpha", "has none")),
        (_node("AveragePool", kernel_shape=[2, 2], stride=[2, 2]), ("'strides'?", "ceil_mode")),
        (_node("QuickGelu", "com.microsoft", alhpa=2.0), ("alhpa", "'alpha'?")),
        (_node("Gelu", "com.microsoft", alpha=2.0), ("alpha", "has none")),
        (_node("Swish", "ai.graphcore", aplha=2.0), ("aplha", "'alpha'?")),
        (
            _node("MatMulNBits", "com.microsoft", weight_prepacked=1),
            ("'weight_prepacked' must be 0",),
        ),
    ],
    ids=lambda value: value.op_type if isinstance(value, onnx.NodeProto) else "",
)
def test_an_attribute_that_nothing_reads(node: onnx.NodeProto, words: tuple[str, ...]) -> None:
    (row,) = find_unsupported(load_model(_model(node)))
    assert all(word in row.reason for word in words)
    with pytest.raises(UnsupportedOpError) as caught:
        popc.compile(_model(node))
    assert any(row.reason in line and node.op_type in line for line in caught.value.details)


def test_all_problems_are_said_at_once() -> None:
    model = _model(
        _node("Relu", alpha=1.0, beta=2.0, name="first"),
        _node("Swish", "ai.graphcore", output="z", gamma=2.0, name="second"),
        _node("Nonsense", output="w", name="third"),
    )
    with pytest.raises(UnsupportedOpError) as caught:
        popc.compile(model)
    text = "\n".join(caught.value.details)
    assert len(caught.value.details) == 4
    assert all(word in text for word in ("alpha", "beta", "gamma", "Nonsense", "first", "second"))


@pytest.mark.parametrize(
    "node",
    [
        _node("Relu", consumed_inputs=[0]),
        _node("Relu", __schedule_priority=1.0),
        _node("GlobalAveragePool"),
        _node("TensorRemap", "ai.graphcore", remap_type=1),
        _node("Cast", to=TensorProto.FLOAT, saturate=0),
    ],
    ids=lambda node: node.op_type,
)
def test_harmless_attributes(node: onnx.NodeProto) -> None:
    assert find_unsupported(load_model(_model(node))) == []
    popc.compile(_model(node))


_FUNCTIONS: Final = """
<ir_version: 10, opset_import: ["" : 20, "my" : 1]>
g (float[3] x) => (float[3] y) { y = my.leaky <CALL> (x) }
<domain: "my", opset_import: ["" : 20]>
leaky <slope, scale: float = 2.0> (x) => (y) {
  a = LeakyRelu <alpha: float = @slope> (x) k = Constant <value_float: float = @scale> ()
  y = Mul (a, k)
}
"""


def test_attributes_of_functions() -> None:
    model = parser.parse_model(_FUNCTIONS.replace("CALL", "slope = 0.5, scale = 4.0"))
    (y,) = run_model(model, {"x": np.array([-1, 0, 2], np.float32)})
    np.testing.assert_array_equal(y, [-2, 0, 8])
    (row,) = find_unsupported(
        load_model(parser.parse_model(_FUNCTIONS.replace("CALL", "slope = 0.5, slop = 4.0")))
    )
    assert "'slop' is unknown (known are scale, slope; did you mean 'slope'?)" in row.reason


def test_losses_that_no_path_fits_may_be_zero() -> None:
    """PopART's zeroInfinity."""
    inputs = [
        np.log(np.full((2, 1, 3), 1 / 3, np.float32)),
        np.array([[1, 1, 1]], np.uint32),
        np.array([2], np.uint32),
        np.array([3], np.uint32),
    ]
    names = [f"x{index}" for index in range(4)]
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs, strict=True)
    ]
    for given, expected in ((1, 0.0), (0, np.inf)):
        node = helper.make_node(
            "Ctc", names, ["y"], domain="ai.graphcore", reduction="Sum", zeroInfinity=given
        )
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.graphcore", 1)]
        graph = helper.make_graph([node], "g", values, [y])
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        (loss,) = run_model(model, dict(zip(names, inputs, strict=True)))
        assert loss == expected
