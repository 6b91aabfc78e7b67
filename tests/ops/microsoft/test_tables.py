"""Weights that are looked up: parts of packed tables, and codes of four bits."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.ops.microsoft.programs import Compare, floats
from tests.support.oracles import run_model, run_onnxruntime, run_op

_DOMAIN: Final = "com.microsoft"
_RANGES: Final[dict[int, tuple[int, int]]] = {
    TensorProto.INT4: (-8, 8),
    TensorProto.UINT4: (0, 16),
    TensorProto.UINT8: (0, 256),
}


def _stored(name: str, kind: int, shape: tuple[int, ...]) -> onnx.TensorProto:
    numbers = np.random.default_rng([kind, *shape]).integers(*_RANGES[kind], shape)
    if kind == TensorProto.UINT8:
        return numpy_helper.from_array(numbers.astype(np.uint8), name)
    return helper.make_tensor(name, kind, shape, numbers.reshape(-1).tolist())


def _gather(
    kind: int,
    shape: tuple[int, ...],
    axes: tuple[int, int],
    index: Array,
    *,
    bits: int = 4,
    zeros: bool = True,
    dtype: npt.DTypeLike = np.float32,
) -> onnx.ModelProto:
    """A model of one GatherBlockQuantized, in blocks of 16; ``axes``: gathered, quantised."""
    scales = list(shape)
    is_packed = kind == TensorProto.UINT8
    if is_packed:
        scales[-1] = shape[-1] * 8 // bits
    scales[axes[1]] = -(-scales[axes[1]] // 16)
    points = list(scales)
    if is_packed:
        points[-1] = -(-scales[-1] * bits // 8)
    scale = (np.abs(floats(*scales)) + 0.1).astype(dtype)
    weights = [_stored("table", kind, shape), numpy_helper.from_array(scale, "scale")]
    if zeros:
        weights.append(_stored("zero", kind, tuple(points)))
    attributes: dict[str, Any] = {"gather_axis": axes[0], "quantize_axis": axes[1]}
    if is_packed:
        attributes["bits"] = bits
    node = helper.make_node(
        "GatherBlockQuantized",
        ["table", "index", "scale", *["zero"] * zeros],
        ["y"],
        domain=_DOMAIN,
        block_size=16,
        **attributes,
    )
    element = helper.np_dtype_to_tensor_dtype(index.dtype)
    graph = helper.make_graph(
        [node],
        "table",
        [helper.make_tensor_value_info("index", element, index.shape)],
        [onnx.ValueInfoProto(name="y")],
        weights,
    )
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid(_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _compare(model: onnx.ModelProto, index: Array) -> None:
    (actual,), (wanted,) = (run(model, {"index": index}) for run in (run_model, run_onnxruntime))
    assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_array_equal(actual, wanted)


_INDICES: Final = [
    pytest.param(np.array([[0, 2], [1, -1]]), id="inside"),
    pytest.param(np.array(1, np.int32), id="one"),
    pytest.param(np.array([0, 99, -99]), id="outside"),  # gives zeros
]


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((6, 40), (0, 1)),
        ((6, 40), (1, 0)),
        ((6, 40), (1, 1)),
        ((6, 40), (0, 0)),
        ((3, 6, 32), (1, 2)),
        ((3, 32, 6), (2, 1)),
        ((3, 6, 32), (-2, -3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("index", _INDICES)
@pytest.mark.parametrize("zeros", [False, True])
def test_parts_of_tables_of_four_bits(
    kind: int,
    shape: tuple[int, ...],
    axes: tuple[int, int],
    index: Array,
    zeros: bool,  # noqa: FBT001
) -> None:
    _compare(_gather(kind, shape, axes, index, zeros=zeros), index)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("shape", [(6, 32), (6, 3, 32)], ids=str)
@pytest.mark.parametrize("index", _INDICES)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_rows_of_tables_of_bytes(
    bits: int, shape: tuple[int, ...], index: Array, dtype: npt.DTypeLike
) -> None:
    axes = (0, len(shape) - 1)
    _compare(_gather(TensorProto.UINT8, shape, axes, index, bits=bits, dtype=dtype), index)


def test_columns_of_tables_of_bytes() -> None:
    index = np.array([0])
    with pytest.raises(ModelError, match="of uint8 by rows"):
        run_model(_gather(TensorProto.UINT8, (6, 32), (1, 1), index), {"index": index})


# -- codes of four bits ----------------------------------------------------------------------------

_SIZES: Final = [(6, 32, 16), (5, 7, 16), (8, 64, 32)]


def _codes(rows: int, columns: int, block: int) -> tuple[Array, Array]:
    count = rows * columns
    packed = np.random.default_rng(count).integers(0, 256, -(-count // 2), np.uint8)
    return packed, np.abs(floats(-(-count // block)))


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("rows", "columns", "block"), _SIZES)
@pytest.mark.parametrize("constants", [(), (1, 2)])
def test_codes(
    compare: Compare, kind: int, rows: int, columns: int, block: int, constants: tuple[int, ...]
) -> None:
    operands = [floats(3, 2, columns), *_codes(rows, columns, block)]
    attributes = {"N": rows, "K": columns, "block_size": block, "quant_type": kind}
    compare("MatMulBnb4", operands, attributes, constants=constants)


@pytest.mark.parametrize("kind", [0, 1])
def test_codes_the_other_way_round(kind: int) -> None:
    """The same weights as rows, where onnxruntime multiplies what it has not written."""
    packed, largest = _codes(6, 32, 16)
    attributes = {"N": 6, "K": 32, "block_size": 16, "quant_type": kind}

    def product(a: Array, **more: int) -> Array:
        (y,) = run_op("MatMulBnb4", [a, packed, largest], {**attributes, **more}, domain=_DOMAIN)
        return y

    np.testing.assert_array_equal(
        product(np.eye(6, dtype=np.float32), transB=0), product(np.eye(32, dtype=np.float32)).T
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"quant_type": 2}, "codes of type 2"),
        ({"block_size": 64}, "in 12 blocks of 64"),
        ({"N": 7, "block_size": 19}, "does not hold 224 codes"),
    ],
)
def test_codes_that_do_not_fit(changed: dict[str, int], message: str) -> None:
    packed, largest = _codes(6, 32, 16)
    attributes = {"N": 6, "K": 32, "block_size": 16, "quant_type": 1, **changed}
    with pytest.raises(ModelError, match=message):
        run_op("MatMulBnb4", [floats(3, 32), packed, largest], attributes, domain=_DOMAIN)
