"""Check gradients of ONNX nodes against finite differences, and against PyTorch.

A case is one node on float64 inputs.  The loss is the inner product of the node's outputs with
fixed random numbers, so that every element of every output counts differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx
import pytest

from popc.autodiff import differentiate
from popc.ir import Graph, Tensor, TensorType
from popc.ops import OPS
from popc.ops.build import build
from popc_runtime.format import Array, DType
from tests.support.oracles import import_graph, known_values, one_node_model, run_graph, run_one
from tests.support.recorded import Answers

__all__ = [
    "Case",
    "check_against_differences",
    "check_against_torch",
    "check_in_float32",
    "check_strided",
    "torch_gradients",
]

_STEP: Final = 1e-6
_AXES: Final = 6  # of a space that is small
_DIRECTIONS: Final = 3  # of a large one: what none of three random ones shows is next to nothing


@dataclass(frozen=True)
class Case:
    """One node and where to differentiate it.

    Attributes:
        op_type: The ONNX operator.
        inputs: Its inputs, floating-point ones as float64, at points where it is smooth.
        attributes: Its attributes.
        name: Tells cases of one operator apart.
        constants: Numbers of the inputs that are initializers.
        outputs: How many outputs the node has; ``weighted`` are those that the loss depends on.
        frozen: Numbers of float inputs without a gradient.
        ir: Whether ``op_type`` and ``attributes`` are those of an IR op that no ONNX node gives.
        smooth: False at kinks, where differences tell nothing and PyTorch's choice is ours.
        torch: The same function in PyTorch: tensors of the inputs to one output or several.
        tolerance: Of the comparison with finite differences, relative to the largest slope.
    """

    op_type: str
    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    name: str = ""
    opset: int = 22
    domain: str = ""
    constants: tuple[int, ...] = ()
    outputs: int = 1
    weighted: tuple[int, ...] = (0,)
    frozen: tuple[int, ...] = ()
    ir: bool = False
    smooth: bool = True
    torch: Callable[..., Any] | None = None
    tolerance: float = 1e-6

    def __str__(self) -> str:
        return f"{self.op_type}-{self.name}" if self.name else self.op_type

    @property
    def differentiated(self) -> list[int]:
        """Numbers of the inputs whose gradients are checked."""
        return [
            index
            for index, array in enumerate(self.inputs)
            if array is not None
            and array.dtype.kind == "f"
            and index not in self.constants
            and index not in self.frozen
        ]

    def graph(self, dtype: Any = np.float64) -> Graph:
        """A graph of the node."""
        return _ir_graph(self, dtype) if self.ir else import_graph(self.model(dtype))

    def model(self, dtype: Any = np.float64) -> onnx.ModelProto:
        """The model of the node."""
        return one_node_model(
            self.op_type,
            _as(self.inputs, dtype),
            self.attributes,
            opset=self.opset,
            outputs=self.outputs,
            constants=self.constants,
            domain=self.domain,
        )

    def feeds(self, dtype: Any = np.float64) -> dict[str, Array]:
        """The inputs by name."""
        return {
            f"x{index}": array
            for index, array in enumerate(_as(self.inputs, dtype))
            if array is not None and index not in self.constants
        }


def _ir_graph(case: Case, dtype: Any) -> Graph:
    graph = Graph(case.op_type)
    operands: list[Tensor | None] = []
    for index, array in enumerate(_as(case.inputs, dtype)):
        if array is None:
            operands.append(None)
            continue
        type_ = TensorType(DType.of(array.dtype), array.shape)
        if index in case.constants:
            operands.append(graph.add_constant(f"x{index}", type_, array))
        else:
            operands.append(graph.add_input(f"x{index}", type_))
    results = build(graph, case.op_type, operands, dict(case.attributes)).outputs
    for index, tensor in enumerate(results[: case.outputs]):
        graph.add_output(f"y{index}", tensor)
    return graph


def _as(arrays: Sequence[Array | None], dtype: Any) -> list[Array | None]:
    return [
        array.astype(dtype) if array is not None and array.dtype == np.float64 else array
        for array in arrays
    ]


def _weights(case: Case, graph: Graph) -> dict[Tensor, Array]:
    rng = np.random.default_rng(11)
    return {
        graph.outputs[index]: np.asarray(
            rng.uniform(0.5, 1.5, graph.outputs[index].type.shape)
            * rng.choice([-1.0, 1.0], graph.outputs[index].type.shape)
        )
        for index in case.weighted
    }


def _gradients(case: Case, dtype: Any = np.float64) -> dict[int, Array]:
    """The gradients that popc computes, by number of the input."""
    graph, wanted, found = _differentiated(case, dtype)
    results = iter(run_graph(graph, case.feeds(dtype)))
    return {
        index: next(results) if tensor in found else np.zeros(tensor.type.shape)
        for index, tensor in wanted.items()
    }


def _differentiated(
    case: Case, dtype: Any
) -> tuple[Graph, dict[int, Tensor], dict[Tensor, Tensor]]:
    """A graph whose outputs are the gradients, the inputs by number, and their gradients."""
    graph = case.graph(dtype)
    seeds = {
        tensor: graph.add_constant("seed", tensor.type, weight.astype(tensor.type.dtype.storage))
        for tensor, weight in _weights(case, graph).items()
    }
    wanted = {index: graph.tensors[f"x{index}"] for index in case.differentiated}
    found = differentiate(graph, seeds, wanted.values())
    graph.outputs = [found[tensor] for tensor in wanted.values() if tensor in found]
    return graph, wanted, found


def check_strided(case: Case) -> None:
    """Every op gives the same results for operands that lie in memory another way.

    A kernel that copies a strided operand when it is bound would compute with what lay there then.
    """
    graph, _, _ = _differentiated(case, np.float32)
    feeds = case.feeds(np.float32)
    values = {tensor: feeds[tensor.name] for tensor in graph.inputs} | known_values(graph, {})
    for op in graph.topological():
        results = run_one(op, values)
        if OPS[op.op_type].strided_input and not OPS[op.op_type].random:
            strided = {t: _restrided(values[t]) for t in op.present_inputs}
            for ours, expected in zip(run_one(op, strided), results, strict=True):
                np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5, err_msg=str(op))
        values |= dict(zip(op.outputs, results, strict=True))


def _restrided(array: Array) -> Array:
    """The same values with the axes in memory in reverse, two elements apart."""
    if array.ndim == 0:
        return array
    wide = np.zeros((*array.shape[::-1], 2), array.dtype)
    view: Array = wide[..., 0].T
    view[...] = array
    return view


def check_against_differences(case: Case) -> None:
    """The slope along random directions is what central differences of the forward pass say."""
    graph = case.graph()
    weights = list(_weights(case, graph).values())
    feeds = case.feeds()

    def loss(changed: Mapping[str, Array]) -> float:
        outputs = run_graph(graph, {**feeds, **changed})
        chosen = [outputs[index] for index in case.weighted]
        return sum(float((y * w).sum()) for y, w in zip(chosen, weights, strict=True))

    rng = np.random.default_rng(5)
    for index, gradient in _gradients(case).items():
        x = feeds[f"x{index}"]
        assert gradient.shape == x.shape
        assert gradient.dtype == x.dtype
        for direction in _directions(rng, x.shape):
            step = _STEP * direction
            slope = (loss({f"x{index}": x + step}) - loss({f"x{index}": x - step})) / (2 * _STEP)
            scale = max(float(np.abs(gradient * direction).sum()), 1e-3)
            assert float((gradient * direction).sum()) == pytest.approx(
                slope, abs=case.tolerance * scale
            ), f"gradient of input {index}"


def _directions(rng: np.random.Generator, shape: tuple[int, ...]) -> list[Array]:
    """Every axis of a small space, some random directions of a large one."""
    size = int(np.prod(shape))
    if size <= _AXES:
        return [row.reshape(shape) for row in np.eye(size)]
    return [rng.standard_normal(shape) for _ in range(_DIRECTIONS)]


def check_in_float32(case: Case) -> None:
    """The float32 gradients are near those in float64."""
    exact = _gradients(case)
    for index, gradient in _gradients(case, np.float32).items():
        assert gradient.dtype in (np.float32, np.float64)  # zeros where there is no path
        sizes = np.abs(exact[index])
        scale = max(1.0, float(sizes.max(initial=0, where=np.isfinite(sizes))))
        np.testing.assert_allclose(gradient, exact[index], rtol=0, atol=2e-4 * scale)


def check_against_torch(case: Case, answers: Answers) -> None:
    """The gradients are those of PyTorch, by number of the input (`torch_gradients`)."""
    for index, gradient in _gradients(case).items():
        np.testing.assert_allclose(gradient, answers[str(index)], rtol=1e-6, atol=1e-8)


def torch_gradients(case: Case) -> Answers:
    """The gradients that PyTorch's autograd computes, by number of the input."""
    import torch

    assert case.torch is not None
    operands = [None if a is None else torch.from_numpy(np.array(a)) for a in case.inputs]
    wanted = {str(index): _present(operands[index]) for index in case.differentiated}
    for operand in wanted.values():
        operand.requires_grad_()
    result = case.torch(*operands)
    results = result if isinstance(result, tuple) else (result,)
    total: Any = sum(
        (y * torch.from_numpy(w)).sum()
        for y, w in zip(results, _weights(case, case.graph()).values(), strict=True)
    )
    total.backward()
    return {
        index: np.zeros(operand.shape) if operand.grad is None else operand.grad.numpy()
        for index, operand in wanted.items()
    }


def _present(operand: Any) -> Any:
    assert operand is not None
    return operand
