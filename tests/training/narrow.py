"""Models in float16 and bfloat16, and small programs to train in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

import popc
import popc_runtime
from popc_runtime import TensorSpec
from popc_runtime.format import Array, DType
from popc_runtime.kernels.core.stored import floats_of
from tests.support.compiling import CHECKED

__all__ = ["BATCH", "KINDS", "batches", "in_type", "losses", "scaled_input", "trained", "weights"]

BATCH: Final = 16
KINDS: Final[dict[str, Any]] = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
}
_OPSET: Final = 22  # the first whose Conv takes bfloat16


def in_type(model: onnx.ModelProto, dtype: str) -> onnx.ModelProto:
    """``model`` with all its float32 inputs, outputs and weights in another type."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(KINDS[dtype]))
    narrow = onnx.ModelProto()
    narrow.CopyFrom(model)
    narrow.opset_import[0].version = _OPSET
    for tensor in narrow.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            raw = numpy_helper.to_array(tensor).astype(KINDS[dtype]).tobytes()
            tensor.CopyFrom(helper.make_tensor(tensor.name, kind, tensor.dims, raw, raw=True))
    for value in [*narrow.graph.input, *narrow.graph.output]:
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = kind
    return narrow


def trained(
    folder: Path,
    model: onnx.ModelProto,
    optimizer: Mapping[str, Any],
    *,
    seed: int = 0,
    loss: Mapping[str, Any] | None = None,
    **options: Any,
) -> popc_runtime.Executable:
    """A program that trains ``model``, which gives logits unless a loss is given."""
    archive = popc.compile(
        model,
        dims={"batch": BATCH} if "batch" in str(model.graph.input) else None,
        loss=loss or {"type": "cross_entropy", "input": "logits", "label": "label"},
        optimizer=optimizer,
        options={**CHECKED, **options},
    )
    path = archive.save(folder / "train.popx", force=True)
    return popc_runtime.load(path, seed=seed)


def batches(spec: TensorSpec, steps: int) -> Iterator[dict[str, Array]]:
    """Images, of the type that ``spec`` says, and labels of digits that look like something."""
    rng = np.random.default_rng(7)
    pictures = rng.random((10, *spec.shape[1:]))
    for _ in range(steps):
        label = rng.integers(0, 10, BATCH).astype(np.int32)
        image = pictures[label] + 0.3 * rng.standard_normal(spec.shape)
        yield {"image": _stored(image, spec.dtype), "label": label}


def losses(executable: popc_runtime.Executable, steps: int) -> Array:
    """The losses of steps on `batches`."""
    return np.array([_loss(executable, feeds) for feeds in batches(executable.inputs[0], steps)])


def _stored(values: Array, dtype: DType) -> Array:
    return values.astype(KINDS[dtype.value]).view(dtype.storage)


def _loss(executable: popc_runtime.Executable, feeds: Mapping[str, Array]) -> float:
    results = executable.run(feeds)
    spec = executable.outputs[0]
    return float(floats_of(results[spec.name], spec.dtype).reshape(()))


def weights(executable: popc_runtime.Executable) -> dict[str, Array]:
    """The values of all weights."""
    read = executable.state.read(popc_runtime.VariableRole.WEIGHT)
    types = {spec.name: spec.dtype for spec in executable.state.specs}
    return {name: floats_of(array, types[name]) for name, array in read.items()}


def scaled_input(count: int = 1000, dtype: str = "float16") -> onnx.ModelProto:
    """x [count] -> loss = sum x w, whose gradient in w, which starts at 1, is x."""
    body = f"""<ir_version: 10, opset_import: ["" : 22]>
        m ({dtype}[{count}] x) => ({dtype} loss) {{
            product = Mul(x, w)  loss = ReduceSum <keepdims = 0> (product)
        }}"""
    model = parser.parse_model(body)
    ones = np.ones(count, KINDS[dtype])
    kind = helper.np_dtype_to_tensor_dtype(ones.dtype)
    model.graph.initializer.append(
        helper.make_tensor("w", kind, ones.shape, ones.tobytes(), raw=True)
    )
    return model
