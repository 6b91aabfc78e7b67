"""Networks that are deep enough for recomputation to pay, with named blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from popc.compiler import Planned
from popc.ir import Graph, Op, Recompute
from popc_runtime.format import Array
from tests.support.compiling import planned_model

__all__ = [
    "DEEP",
    "TRAIN",
    "compiled",
    "deep_cnn",
    "deep_mlp",
    "deep_transformer",
    "effects",
    "feeds_of",
    "repetitions",
]

TRAIN: dict[str, Any] = {
    "loss": {"type": "cross_entropy", "input": "logits", "label": "label"},
    "optimizer": {"type": "sgd", "learning_rate": 0.01, "momentum": 0.9},
}
_CLASSES = 10


class _Builder:
    """A graph that grows node by node."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, Array] = {}
        self._rng = np.random.default_rng(0)

    def __call__(self, op_type: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node with one result, whose name is returned."""
        result = name or f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [result], **attributes))
        return result

    def weight(self, *shape: int) -> str:
        """A random weight."""
        fan = int(np.prod(shape[1:] if len(shape) == 4 else shape[:-1]))
        return self.array((fan**-0.5) * self._rng.standard_normal(shape), np.float32)

    def full(self, size: int, value: float = 0.0) -> str:
        """A weight with equal numbers."""
        return self.array(np.full(size, value), np.float32)

    def array(self, values: Any, dtype: Any = np.int64) -> str:
        """A constant or weight."""
        name = f"w{len(self.arrays)}"
        self.arrays[name] = np.asarray(values, dtype)
        return name

    def model(self, *shape: int | str) -> onnx.ModelProto:
        """The model from x to logits."""
        floats = onnx.TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "deep",
            [helper.make_tensor_value_info("x", floats, shape)],
            [helper.make_tensor_value_info("logits", floats, [shape[0], _CLASSES])],
            [numpy_helper.from_array(array, name) for name, array in self.arrays.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def deep_mlp(blocks: int = 14, size: int = 32) -> onnx.ModelProto:
    """x [128, 32]; each block: x + tanh(x) w + b."""
    b = _Builder()
    x = "x"
    for index in range(blocks):
        product = b("MatMul", b("Tanh", x, name=f"tanh{index}"), b.weight(size, size))
        y = b("Add", product, b.full(size))
        x = b("Add", x, y, name=f"block{index}")
    b("MatMul", x, b.weight(size, _CLASSES), name="logits")
    return b.model(128, size)


def deep_cnn(blocks: int = 6, size: int = 8) -> onnx.ModelProto:
    """x [4, 8, 8, 8]; each block: x + Conv(Relu(BatchNormalization(x))) with new statistics."""
    b = _Builder()
    x = "x"
    for index in range(blocks):
        parameters = [b.full(size, value) for value in (1, 0, 0, 1)]
        results = [f"norm{index}", f"mean{index}", f"var{index}"]
        norm = helper.make_node("BatchNormalization", [x, *parameters], results, training_mode=1)
        b.nodes.append(norm)
        y = b("Conv", b("Relu", results[0]), b.weight(size, size, 3, 3), pads=[1] * 4)
        x = b("Add", x, y, name=f"block{index}")
    x = b("Flatten", b("GlobalAveragePool", x))
    b("MatMul", x, b.weight(size, _CLASSES), name="logits")
    return b.model(4, size, 8, 8)


def deep_transformer(blocks: int = 3, size: int = 16, length: int = 8) -> onnx.ModelProto:
    """x [8, 8, 16]; each block: attention of two heads, a hidden layer with Gelu and dropout."""
    b = _Builder()
    apart, together = b.array([0, length, 2, size // 2]), b.array([0, length, size])
    ratio, mode = b.array(0.25, np.float32), b.array(1, np.bool_)

    def norm(x: str) -> str:
        return b("LayerNormalization", x, b.full(size, 1), b.full(size), axis=-1)

    def linear(x: str, inputs: int, outputs: int) -> str:
        return b("Add", b("MatMul", x, b.weight(inputs, outputs)), b.full(outputs))

    def heads(x: str, perm: Sequence[int]) -> str:
        return b("Transpose", b("Reshape", linear(x, size, size), apart), perm=perm)

    x = "x"
    for index in range(blocks):
        y = norm(x)
        scores = b("MatMul", heads(y, [0, 2, 1, 3]), heads(y, [0, 2, 3, 1]))
        mixed = b("MatMul", b("Softmax", scores, axis=-1), heads(y, [0, 2, 1, 3]))
        y = b("Reshape", b("Transpose", mixed, perm=[0, 2, 1, 3]), together)
        x = b("Add", x, linear(y, size, size))
        y = b("Gelu", linear(norm(x), size, 4 * size), name=f"gelu{index}")
        y = b("Dropout", linear(y, 4 * size, size), ratio, mode)
        x = b("Add", x, y, name=f"block{index}")
    x = b("ReduceMean", x, b.array([1]), keepdims=0)
    b("MatMul", x, b.weight(size, _CLASSES), name="logits")
    return b.model(8, length, size)


DEEP = {"cnn": deep_cnn, "mlp": deep_mlp, "transformer": deep_transformer}


def feeds_of(shape: Sequence[int], *lead: int, seed: int = 0) -> dict[str, Array]:
    """Random data and labels for an input of a shape, of ``lead`` batches."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, _CLASSES, (*lead, shape[0])).astype(np.int32)
    return {"x": rng.standard_normal((*lead, *shape)).astype(np.float32), "label": label}


def compiled(model: onnx.ModelProto, train: Mapping[str, Any] = TRAIN, **options: Any) -> Planned:
    """The model planned for training, with all checks."""
    return planned_model(model, options, train=train)


def effects(done: Planned) -> Mapping[str, int]:
    """What the pass of recomputation counts."""
    (report,) = (pass_ for pass_ in done.program.passes if pass_.name == "recomputation")
    return report.effects


def repetitions(graph: Graph) -> list[Op]:
    """The ops that compute something once more, producers first."""
    ops = (op for part in graph.walk() for op in part.topological())
    return [op for op in ops if op.settings.recompute is Recompute.RECOMPUTED]
