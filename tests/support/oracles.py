"""Run a model of one node through popc, and through onnxruntime as the oracle."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from popc.frontend.load import load_model
from popc.frontend.model import Bindings, import_model
from popc.frontend.unsigned_weights import with_unsigned_weights
from popc.ir import Graph, Op, Tensor, TensorType
from popc.ops.build import infer_types
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import (
    KERNELS,
    Binding,
    RandomState,
    Scratch,
    prepare,
)
from popc_runtime.kernels.core.stored import from_bfloat16

__all__ = [
    "assert_matches_onnxruntime",
    "changed_variables",
    "epsilon",
    "hidden_operands",
    "import_graph",
    "known_values",
    "one_node_model",
    "run_graph",
    "run_ir",
    "run_kernel",
    "run_model",
    "run_one",
    "run_onnxruntime",
    "run_op",
    "smallest",
]

_IR_VERSION = 10


def epsilon(dtype: Any) -> float:
    """The spacing of the numbers of a float type (bfloat16 too) at 1."""
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]


def smallest(dtype: Any) -> float:
    """The least positive number of a float type (bfloat16 too)."""
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).smallest_subnormal)  # type: ignore[no-untyped-call]


def one_node_model(
    op_type: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    opset: int = 22,
    outputs: int = 1,
    constants: Collection[int] = (),
    domain: str = "",
) -> onnx.ModelProto:
    """A model of one node over inputs ``x0``, ``x1``, ... with outputs ``y0``, ``y1``, ...

    Inputs whose number is in ``constants`` are initializers; ``None`` is an absent input.
    """
    names = ["" if array is None else f"x{i}" for i, array in enumerate(inputs)]
    node = helper.make_node(
        op_type, names, [f"y{i}" for i in range(outputs)], domain=domain, **(attributes or {})
    )
    given = [(i, array) for i, array in enumerate(inputs) if array is not None]
    graph = helper.make_graph(
        [node],
        "one_node",
        [
            helper.make_tensor_value_info(
                names[i], helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for i, array in given
            if i not in constants
        ],
        [onnx.ValueInfoProto(name=name) for name in node.output],
        [numpy_helper.from_array(array, names[i]) for i, array in given if i in constants],
    )
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


def run_kernel(
    op_type: str,
    inputs: Sequence[Array | None],
    types: Sequence[TensorType | None],
    attributes: Mapping[str, Attribute],
    constant: Sequence[bool],
) -> list[Array]:
    """The outputs of one IR op, by its kernel, on arrays stored as `DType.storage` says."""
    output_types = infer_types(op_type, types, attributes)
    outputs = tuple(np.empty(type_.shape, type_.dtype.storage) for type_ in output_types)
    binding = Binding(
        inputs=tuple(inputs),
        outputs=outputs,
        input_dtypes=tuple(None if type_ is None else type_.dtype for type_ in types),
        output_dtypes=tuple(type_.dtype for type_ in output_types),
        attributes=attributes,
        constant=tuple(constant),
        scratch=Scratch(),
        random=RandomState(),
    )
    with np.errstate(all="ignore"):
        with hidden_operands(binding):
            calls = prepare(KERNELS[op_type], binding)
        for _ in range(2):  # a second run must repeat the first, whatever others leave in scratch
            binding.scratch.reset()
            binding.scratch.take((1 << 16,), np.uint8).fill(0xFF)
            for call in calls:
                call()
    return list(outputs)


@contextmanager
def hidden_operands(binding: Binding) -> Iterator[None]:
    """Meanwhile operands that are not constant are zeros.

    So a kernel that keeps what it read when it was bound gives wrong results.
    """
    hidden = [
        array
        for array, constant in zip(binding.inputs, binding.constant, strict=True)
        if array is not None and not constant and array.flags.writeable
    ]
    contents = [array.copy() for array in hidden]
    for array in hidden:
        array[...] = np.zeros((), array.dtype)
    try:
        yield
    finally:
        for array, content in zip(hidden, contents, strict=True):
            array[...] = content


def run_ir(
    op_type: str, inputs: Sequence[Array | None], attributes: Mapping[str, Attribute]
) -> list[Array]:
    """The outputs of one IR op on arrays that may be strided views."""
    types = [None if a is None else TensorType(DType.of(a.dtype), a.shape) for a in inputs]
    return run_kernel(op_type, inputs, types, attributes, [False] * len(inputs))


def run_graph(
    graph: Graph,
    feeds: Mapping[str, Array],
    variables: MutableMapping[str, Array] | None = None,
) -> list[Array]:
    """The outputs of ``graph``, op by op; bfloat16 ones as float32.

    Variables have the values in ``variables``, as they are stored, or else their initial ones.
    What the graph makes of them is left in ``variables``.
    """
    values = {tensor: _stored(feeds[tensor.name], tensor.type) for tensor in graph.inputs}
    values |= known_values(graph, variables or {})
    for op in graph.topological():
        values |= dict(zip(op.outputs, run_one(op, values), strict=True))
    if variables is not None:
        variables.update(changed_variables(graph, values))
    return [_shown(values[tensor], tensor.type) for tensor in graph.outputs]


def known_values(graph: Graph, variables: Mapping[str, Array]) -> dict[Tensor, Array]:
    """The values of constants and variables, as they are stored."""
    values = {t: t.data for t in graph.tensors.values() if t.data is not None}
    for tensor in graph.variables:
        zeros = np.zeros(tensor.type.shape, tensor.type.dtype.storage)
        initial = zeros if tensor.initial is None else tensor.initial
        values[tensor] = variables.get(tensor.name, initial)
    return values


def changed_variables(graph: Graph, values: Mapping[Tensor, Array]) -> dict[str, Array]:
    """The next values of variables, by name."""
    copies = [op for op in graph.ops if op.op_type == "CopyVarUpdate"]
    return {op.operand(0).name: values[op.operand(1)] for op in copies}


def run_one(op: Op, values: Mapping[Tensor, Array]) -> list[Array]:
    """The results of one op; a CopyVarUpdate has none."""
    if op.op_type == "CopyVarUpdate":
        return []
    return run_kernel(
        op.op_type,
        [None if tensor is None else values[tensor] for tensor in op.inputs],
        [None if tensor is None else tensor.type for tensor in op.inputs],
        op.attributes,
        [tensor is not None and tensor.is_constant for tensor in op.inputs],
    )


def _stored(array: Array, type_: TensorType) -> Array:
    assert array.shape == type_.shape
    return array if type_.dtype is type_.dtype.stored else array.view(type_.dtype.storage)


def _shown(array: Array, type_: TensorType) -> Array:
    return from_bfloat16(array) if type_.dtype is DType.BFLOAT16 else array


def import_graph(model: onnx.ModelProto, bindings: Bindings | None = None) -> Graph:
    """The graph of ``model`` as popc imports it."""
    return import_model(load_model(model), bindings).graph


def run_model(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of ``model`` as popc imports and computes it."""
    shapes = {name: array.shape for name, array in feeds.items()}
    return run_graph(import_model(load_model(model), Bindings(shapes=shapes)).graph, feeds)


def run_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of ``model`` as onnxruntime computes it without optimisations.

    These would make products of bytes of dequantised ones, which saturate on some processors.
    """
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        with_unsigned_weights(model).SerializeToString(),
        settings,
        providers=["CPUExecutionProvider"],
    )
    return [np.asarray(result) for result in session.run(None, dict(feeds))]


def _feeds(inputs: Sequence[Array | None], constants: Collection[int]) -> dict[str, Array]:
    return {
        f"x{i}": array for i, array in enumerate(inputs) if array is not None and i not in constants
    }


def run_op(
    op_type: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    opset: int = 22,
    outputs: int = 1,
    constants: Collection[int] = (),
    domain: str = "",
) -> list[Array]:
    """The outputs of one ONNX node through popc's importer and kernels."""
    model = one_node_model(
        op_type,
        inputs,
        attributes,
        opset=opset,
        outputs=outputs,
        constants=constants,
        domain=domain,
    )
    return run_model(model, _feeds(inputs, constants))


def assert_matches_onnxruntime(
    op_type: str,
    inputs: Sequence[Array | None],
    attributes: Mapping[str, Any] | None = None,
    *,
    opset: int = 22,
    outputs: int = 1,
    constants: Collection[int] = (),
    domain: str = "",
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> None:
    """popc and onnxruntime give the same types, shapes and (nearly) values for one node."""
    model = one_node_model(
        op_type,
        inputs,
        attributes,
        opset=opset,
        outputs=outputs,
        constants=constants,
        domain=domain,
    )
    feeds = _feeds(inputs, constants)
    expected = run_onnxruntime(model, feeds)
    for actual, wanted in zip(run_model(model, feeds), expected, strict=True):
        assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(actual, wanted, rtol=rtol, atol=atol)
