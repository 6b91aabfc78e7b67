"""Random small models: the program is the same function with and without the optional passes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from onnx import helper, numpy_helper

import popc
import popc_runtime
from popc.transforms import optional_passes
from popc_runtime.format import Array
from tests.support.oracles import run_onnxruntime

# What the formulas that passes look for are made of
_SCALARS = (0.0, 1.0, 0.5, 2.0, 3.0, 6.0, 1 / 6, 2**0.5)
_UNARY = ("Relu", "Sigmoid", "Erf", "Neg", "HardSigmoid", "Tanh", "Identity")
_BINARY = ("Add", "Sub", "Mul", "Div")
_SHAPE = (1, 4, 3, 3)


@dataclass
class _Model:
    """Nodes over tensors that all have the shape `_SHAPE`."""

    draw: DrawFn
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    constants: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])
    pool: list[str] = field(default_factory=lambda: ["x"])

    def pick(self) -> str:
        return self.draw(st.sampled_from([*self.pool[-2:], *self.pool]))

    def constant(self, *shapes: tuple[int, ...]) -> str:
        shape = self.draw(st.sampled_from(shapes))
        array = np.random.default_rng(self.draw(st.integers(0, 2))).uniform(0.5, 2, shape)
        return self.store(array.astype(np.float32))

    def scalar(self) -> str:
        return self.store(np.asarray(self.draw(st.sampled_from(_SCALARS)), np.float32))

    def store(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def unary(self) -> str:
        return self.add(self.draw(st.sampled_from(_UNARY)), self.pick())

    def binary(self) -> str:
        other = self.draw(st.sampled_from([self.pick, self.scalar, self.per_channel]))()
        op_type = self.draw(st.sampled_from(_BINARY))
        if op_type == "Div":  # by what is not near 0
            other = self.constant((), (4, 1, 1))
        pair = [self.pick(), other]
        return self.add(op_type, *(pair if op_type == "Div" else self.draw(st.permutations(pair))))

    def per_channel(self) -> str:
        return self.constant((4, 1, 1), (1, 4, 1, 1), (3,), _SHAPE)

    def clip(self) -> str:
        return self.add(
            "Clip",
            self.pick(),
            self.store(np.asarray(0, np.float32)),
            self.store(np.asarray(6, np.float32)),
        )

    def conv(self) -> str:
        return self.add("Conv", self.pick(), self.constant((4, 4, 1, 1)))

    def matmul(self) -> str:
        return self.add("MatMul", self.pick(), self.constant((3, 3)))

    def transpose(self) -> str:
        perm = self.draw(st.sampled_from([(0, 1, 3, 2), (0, 1, 2, 3)]))
        return self.add("Transpose", self.pick(), perm=perm)

    def gated(self) -> str:
        """x * sigmoid(x): long formulas seldom come about by chance."""
        x = self.pick()
        return self.add("Mul", x, self.add("Sigmoid", x))

    def normalised(self) -> str:
        x = self.pick()
        axes = self.store(np.array([3]))
        centred = self.add("Sub", x, self.add("ReduceMean", x, axes))
        variance = self.add("ReduceMean", self.add("Mul", centred, centred), axes)
        root = self.add("Sqrt", self.add("Add", variance, self.store(np.asarray(0.01, np.float32))))
        return self.add("Div", centred, root)


@st.composite
def _models(draw: DrawFn) -> onnx.ModelProto:
    model = _Model(draw)
    kinds = [
        model.unary, model.unary, model.binary, model.binary, model.binary, model.clip, model.conv,
        model.matmul, model.transpose, model.gated, model.normalised,
    ]  # fmt: skip
    for _ in range(draw(st.integers(1, 9))):
        model.pool.append(draw(st.sampled_from(kinds))())
    outputs = {model.pool[-1], draw(st.sampled_from(model.pool[1:]))}
    graph = helper.make_graph(
        model.nodes,
        "random",
        [helper.make_tensor_value_info("x", 1, _SHAPE)],
        [helper.make_tensor_value_info(name, 1, None) for name in sorted(outputs)],
        model.constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


_OPTIONS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"disabled_passes": ["dead_code"]},
    {"disabled_passes": list(optional_passes())},
    {"patterns": "minimal"},
    {"patterns": "all", "combine_matmuls": True, "combine_embedding_lookups": True},
)


def _run(model: onnx.ModelProto, x: Array, given: dict[str, Any]) -> list[Array]:
    options = {**given, "verify_ir": True}
    with tempfile.TemporaryDirectory() as folder:
        path = popc.compile(model, options=options).save(Path(folder) / "m.popx")
        return list(popc_runtime.load(path).run({"x": x}).values())


@settings(deadline=None, max_examples=25)
@given(model=_models())
def test_passes_keep_the_results(model: onnx.ModelProto) -> None:
    x = np.random.default_rng(0).uniform(-3, 3, _SHAPE).astype(np.float32)
    expected = run_onnxruntime(model, {"x": x})
    for options in _OPTIONS:
        for ours, theirs in zip(_run(model, x, options), expected, strict=True):
            bound = 1e-4 * float(np.abs(theirs).max(initial=1e-3))
            np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=bound)
