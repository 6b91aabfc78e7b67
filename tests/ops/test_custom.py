"""Operators that users register, from the model to the archive, against numpy and ONNX's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc import custom
from popc_runtime.custom import ArrayType
from popc_runtime.errors import (
    DeviceError,
    ModelError,
    UnregisteredOperatorError,
    UnsupportedOpError,
    UsageError,
)
from popc_runtime.format import ArchiveFile
from tests.support.oracles import one_node_model

_DOMAIN = "com.example"
_X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def _power(inputs: Sequence[Any], attributes: Any) -> Any:
    return inputs[0] ** attributes.get("exponent", 3)


def _power_gradient(
    inputs: Sequence[Any], outputs: Sequence[Any], gradients: Sequence[Any], attributes: Any
) -> list[Any]:
    del outputs
    exponent = attributes.get("exponent", 3)
    return [exponent * inputs[0] ** (exponent - 1) * gradients[0]]


def _split_sums(inputs: Sequence[Any], attributes: Any) -> tuple[Any, Any]:
    """Sums over an axis, and how many were added; a second operand is a factor."""
    x, factor = inputs
    axes = tuple(attributes["axes"])
    scaled = x if factor is None else x * factor
    count = int(np.prod([x.shape[axis] for axis in axes]))
    return scaled.sum(axes), np.full((), count, np.int32)


def _sum_types(inputs: Sequence[ArrayType | None], attributes: Any) -> list[Any]:
    x = inputs[0]
    assert x is not None
    kept = [dim for axis, dim in enumerate(x.shape) if axis not in attributes["axes"]]
    return [ArrayType(x.dtype, tuple(kept)), (np.int32, ())]


@pytest.fixture(autouse=True)
def operators() -> Iterator[None]:
    """Two operators that are forgotten when a test is over."""
    custom.register(
        _DOMAIN, "Power", types=custom.like_first, compute=_power, gradient=_power_gradient
    )
    custom.register(_DOMAIN, "SplitSums", types=_sum_types, compute=_split_sums)
    yield
    for operator in custom.registered():
        custom.unregister(operator.domain, operator.name, version=operator.version)


def _run(model: onnx.ModelProto, inputs: dict[str, Any], engine: str = "auto") -> dict[str, Any]:
    archive = popc.compile(model, options={"verify_ir": True}).to_bytes()
    return popc_runtime.load(archive, engine=engine).run(inputs)


@pytest.mark.parametrize("engine", ["native", "numpy"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_runs_on_every_engine(engine: str, dtype: Any) -> None:
    x = np.arange(-6, 6, dtype=dtype).reshape(3, 4)
    model = one_node_model("Power", [x], {"exponent": 2}, domain=_DOMAIN)
    found = _run(model, {"x0": x}, engine)["y0"]
    np.testing.assert_array_equal(found, x**2)
    assert found.dtype == dtype


@pytest.mark.parametrize("factor", [None, np.float32(2.5)])
def test_absent_operands_lists_and_several_results(factor: np.float32 | None) -> None:
    given = None if factor is None else np.asarray(factor)
    model = one_node_model("SplitSums", [_X, given], {"axes": [1]}, outputs=2, domain=_DOMAIN)
    found = _run(model, {"x0": _X} | ({} if given is None else {"x1": given}))
    np.testing.assert_allclose(found["y0"], (_X * (1 if factor is None else factor)).sum(1))
    assert found["y1"] == 4


def _network(op: onnx.NodeProto) -> onnx.ModelProto:
    """h = x w, then ``op`` of h."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), op]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", 1, [3, 4])],
        [helper.make_tensor_value_info("y", 1, [3, 2])],
        [numpy_helper.from_array(np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2), "w")],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("options", [{}, {"replicated_graph_count": 2}, {"accumulation_factor": 2}])
def test_trains_as_the_standard_operator_does(options: dict[str, Any]) -> None:
    """x^2 by a custom operator, and by Mul."""
    nodes = (
        helper.make_node("Power", ["h"], ["y"], domain=_DOMAIN, exponent=2),
        helper.make_node("Mul", ["h", "h"], ["y"]),
    )
    factor = 1 if not options else 2
    x = np.random.default_rng(3).standard_normal((factor, 3, 4)).astype(np.float32)
    trained: list[Any] = []
    for node in nodes:
        program = popc_runtime.load(
            popc.compile(
                _network(node),
                loss={"type": "identity", "input": "y"},
                optimizer={"type": "sgd", "learning_rate": 0.01},
                options=options,
            )
        )
        for _ in range(3):
            program.run({"x": x.reshape(3, 4) if factor == 1 else x})
        trained.append(program.state.read()["w"])
    np.testing.assert_allclose(trained[0], trained[1], rtol=1e-5)


def test_without_a_gradient_nothing_is_trained_through_it() -> None:
    custom.register(_DOMAIN, "Stuck", types=custom.like_first, compute=_power)
    model = _network(helper.make_node("Stuck", ["h"], ["y"], domain=_DOMAIN))
    with pytest.raises(ModelError, match=r"com\.example\.Stuck:1 is registered without a gradient"):
        popc.compile(model, loss={"type": "identity", "input": "y"}, optimizer={"type": "sgd"})


def test_archives_say_what_they_need() -> None:
    archive = popc.compile(one_node_model("Power", [_X], domain=_DOMAIN)).to_bytes()
    with ArchiveFile.open(archive) as opened:
        assert opened.manifest.operators == ("com.example.Power:1",)
        assert opened.header.oldest_reader == 4
    custom.unregister(_DOMAIN, "Power")
    with pytest.raises(UnregisteredOperatorError) as caught:
        popc_runtime.load(archive)
    assert caught.value.details == ("com.example.Power:1",)
    assert "popc_runtime.custom.register" in caught.value.hint


def test_archives_without_any_say_nothing() -> None:
    with ArchiveFile.open(popc.compile(one_node_model("Relu", [_X])).to_bytes()) as opened:
        assert opened.manifest.operators == ()
        assert opened.header.oldest_reader < 4


def test_the_compiler_computes_none() -> None:
    """An archive holds no results of what the user may write anew."""
    calls: list[int] = []

    def counted(inputs: Sequence[Any], attributes: Any) -> Any:
        calls.append(1)
        return _power(inputs, attributes)

    custom.register(_DOMAIN, "Counted", types=custom.like_first, compute=counted)
    model = one_node_model("Counted", [_X], constants=(0,), domain=_DOMAIN)
    archive = popc.compile(model).to_bytes()
    assert not calls
    np.testing.assert_array_equal(popc_runtime.load(archive).run({})["y0"], _X**3)


@pytest.mark.parametrize(("opset", "version"), [(1, 1), (2, 1), (3, 3), (9, 3)])
def test_the_opset_chooses_the_version(opset: int, version: int) -> None:
    custom.register(_DOMAIN, "Power", version=3, types=custom.like_first, compute=_power)
    model = one_node_model("Power", [_X], domain=_DOMAIN)
    model.opset_import[1].version = opset
    with ArchiveFile.open(popc.compile(model).to_bytes()) as opened:
        assert opened.manifest.operators == (f"com.example.Power:{version}",)


def _raises(*_: Any) -> Any:
    raise KeyError("nothing")


@pytest.mark.parametrize(
    ("functions", "text"),
    [
        ({"compute": lambda inputs, _: inputs[0][:1]}, r"shape \[1, 4\], but .* \[3, 4\]"),
        ({"compute": lambda inputs, _: inputs[0] > 0}, None),
        ({"compute": lambda inputs, _: inputs[0] * 1j}, "complex64, but its type says float32"),
        ({"compute": lambda inputs, _: [inputs[0]] * 2}, "gave 2 results"),
        ({"compute": _raises}, "compute raised KeyError"),
        ({"compute": lambda inputs, _: inputs[0].fill(1)}, "read-only"),
    ],
)
def test_what_functions_give_is_looked_at(functions: dict[str, Any], text: str | None) -> None:
    custom.register(_DOMAIN, "Wrong", types=custom.like_first, **functions)
    model = one_node_model("Wrong", [_X], domain=_DOMAIN)
    if text is None:
        assert _run(model, {"x0": _X})["y0"].dtype == np.float32
    else:
        with pytest.raises(DeviceError, match=text):
            _run(model, {"x0": _X})


@pytest.mark.parametrize(
    ("types", "text"),
    [
        (_raises, "the type rule of com.example.Odd:1 raised KeyError"),
        (lambda *_: [("float", (2,))], r"float\[2\], which is no type"),
        (lambda *_: [(np.float32, (-1,))], "no type of an array"),
        (lambda *_: [], "has 0 results, but the model names 1"),
    ],
)
def test_type_rules_that_are_wrong(types: Any, text: str) -> None:
    custom.register(_DOMAIN, "Odd", types=types, compute=_power)
    with pytest.raises(ModelError, match=text):
        popc.compile(one_node_model("Odd", [_X], domain=_DOMAIN))


def test_what_cannot_be_registered() -> None:
    for domain, name, version, text in (
        ("", "Relu", 1, "in the domain of ONNX"),
        (_DOMAIN, "Power", 1, "is registered already"),
        (_DOMAIN, "", 1, "it has no name"),
        (_DOMAIN, "New", 0, "version 0"),
    ):
        with pytest.raises(UsageError, match=text):
            custom.register(domain, name, types=custom.like_first, compute=_power, version=version)
    with pytest.raises(UsageError, match=r"no operator com\.example\.New:1 is registered"):
        custom.unregister(_DOMAIN, "New")


def test_unregistered_nodes_and_tensors_in_attributes_are_refused() -> None:
    model = one_node_model("Unheard", [_X], domain=_DOMAIN)
    with pytest.raises(UnsupportedOpError, match="Unheard"):
        popc.compile(model)
    tensor = numpy_helper.from_array(_X, "t")
    with pytest.raises(ModelError, match="make it an operand"):
        popc.compile(one_node_model("Power", [_X], {"table": tensor}, domain=_DOMAIN))
