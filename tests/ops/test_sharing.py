"""The heavy kernels give the same bits however many threads share their work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from popc.ir import TensorType
from popc.ops.build import infer_types
from popc_runtime.format import Array, Attribute, DType
from popc_runtime.kernels import KERNELS, Binding, RandomState, Scratch, prepare
from popc_runtime.kernels.core.sharing import even_slices, share_count

_RNG = np.random.default_rng(15)


def _random(*shape: int) -> Array:
    return _RNG.standard_normal(shape).astype(np.float32)


def _run(
    op_type: str, inputs: Sequence[Array], attributes: Mapping[str, Attribute], threads: int
) -> tuple[Array, int]:
    """The output, and the number of calls that compute it."""
    types = [TensorType(DType.of(array.dtype), array.shape) for array in inputs]
    (result,) = infer_types(op_type, types, attributes)
    out = np.empty(result.shape, result.dtype.storage)
    binding = Binding(
        inputs=tuple(inputs),
        outputs=(out,),
        input_dtypes=tuple(type_.dtype for type_ in types),
        output_dtypes=(result.dtype,),
        attributes=attributes,
        constant=(False,) * len(inputs),
        scratch=Scratch(threads),
        random=RandomState(),
    )
    with np.errstate(all="ignore"):  # as programs run
        calls = prepare(KERNELS[op_type], binding)
        for call in calls * 2:
            call()
    return out, len(calls)


_PAIR = (1, 1, 1, 1)
_TWICE: dict[str, Attribute] = {
    "mode": "linear",
    "scales": (1.0, 1.0, 2.0, 2.0),
    "coordinate_transformation_mode": "half_pixel",
}
_CASES: list[tuple[str, list[Array], dict[str, Attribute]]] = [
    ("Conv", [_random(1, 64, 64, 64), _random(64, 64, 3, 3)], {"pads": _PAIR}),
    (
        "Conv",
        [_random(1, 256, 8, 8), _random(512, 256, 3, 3)],
        {"pads": _PAIR, "activation": "Relu"},
    ),
    (
        "Conv",
        [_random(1, 256, 60, 60), _random(64, 256, 1, 1), _random(64)],
        {"activation": "Gelu"},
    ),
    ("Conv", [_random(6, 64, 20, 20), _random(64, 64, 3, 3)], {"pads": _PAIR}),
    ("Conv", [_random(1, 64, 40, 40), _random(256, 16, 3, 3)], {"group": 4, "pads": _PAIR}),
    ("Conv", [_random(1, 128, 70, 70), _random(128, 1, 3, 3)], {"group": 128, "pads": _PAIR}),
    ("Conv", [_random(4, 512, 14, 14), _random(512, 1, 3, 3)], {"group": 512, "pads": _PAIR}),
    ("Conv", [_random(1, 16, 12, 30, 30), _random(16, 16, 3, 3, 3)], {}),
    ("ConvTranspose", [_random(1, 64, 40, 40), _random(64, 32, 4, 4)], {"strides": (2, 2)}),
    ("ConvTranspose", [_random(6, 256, 60, 60), _random(256, 1, 2, 2)], {"strides": (2, 2)}),
    ("MatMul", [_random(2000, 256), _random(256, 128)], {"activation": "Relu"}),
    ("MatMul", [_random(100, 768), _random(768, 1000), _random(1000)], {}),
    ("MatMul", [_random(2, 12, 128, 64), _random(2, 12, 64, 128)], {}),
    ("MatMul", [_random(1, 12, 512, 64), _random(64, 128)], {"activation": "Tanh"}),
    ("Gemm", [_random(300, 768), _random(768, 768), _random(300, 1)], {}),
    ("MaxPool", [_random(2, 64, 60, 60)], {"kernel_shape": (3, 3), "pads": _PAIR}),
    ("AveragePool", [_random(1, 64, 112, 112)], {"kernel_shape": (3, 3), "strides": (2, 2)}),
    ("LpPool", [_random(1, 64, 112, 112)], {"kernel_shape": (3, 3), "p": 3}),
    ("Resize", [_random(2, 32, 40, 40)], {**_TWICE, "shape": (2, 32, 80, 80)}),
    ("ResizeGrad", [_random(2, 32, 80, 80)], {**_TWICE, "shape": (2, 32, 40, 40)}),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), _CASES)
def test_results_do_not_depend_on_threads(
    op_type: str, inputs: list[Array], attributes: dict[str, Attribute]
) -> None:
    alone, calls = _run(op_type, inputs, attributes, 1)
    for threads in (2, 3):
        shared, fewer_calls = _run(op_type, inputs, attributes, threads)
        assert fewer_calls < calls
        np.testing.assert_array_equal(shared, alone)


def test_even_slices() -> None:
    assert even_slices(7, 3) == [slice(0, 2), slice(2, 4), slice(4, 7)]
    assert even_slices(2, 4) == [slice(0, 1), slice(1, 2)]
    assert even_slices(0, 3) == []


def test_short_work_is_not_shared() -> None:
    assert share_count(multiplications=1000) == 1
    assert share_count(elements=1e9) > 1
    assert share_count(elements=1e9, most=2) == 2
