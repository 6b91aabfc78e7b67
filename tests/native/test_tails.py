"""What is left of a vector is rounded as vectors are: results depend on no division of the work."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array, DType
from popc_runtime.kernels.parts.fused_steps import STEP_OPCODES, FusedStep, written
from popc_runtime.native import Library
from tests.native.bindings import native_results, steady_results

_OF_TWO: Final = frozenset(
    (
        *(
            "Add",
            "Atan2",
            "Div",
            "Max",
            "Min",
            "Mod",
            "Mul",
            "PRelu",
            "Pow",
            "ScaledAdd",
            "Sub",
            "Sum",
        ),
        *(opcode for opcode in STEP_OPCODES if opcode.endswith("Grad")),
    )
)
_NOT_OF_FLOATS: Final = frozenset(
    (
        *("And", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast"),
        *("Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Not", "Or"),
        *("Where", "Xor"),
    )
)
_ATTRIBUTES: Final[dict[str, dict[str, Any]]] = {
    "Celu": {"alpha": 1.5},
    "CeluGrad": {"alpha": 1.5},
    "Clip": {"min": -0.5, "max": 0.75},
    "ClipGrad": {"min": -0.5, "max": 0.75},
    "Elu": {"alpha": 1.5},
    "EluGrad": {"alpha": 1.5},
    "FakeQuantize": {"scale": 0.1, "low": -5.0, "high": 7.0},
    "FakeQuantizeGrad": {"scale": 0.1, "low": -5.0, "high": 7.0},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "HardSigmoidGrad": {"alpha": 0.3, "beta": 0.4},
    "LeakyRelu": {"alpha": 0.1},
    "LeakyReluGrad": {"alpha": 0.1},
    "Mod": {"fmod": 1},
    "ScaledAdd": {"scale0": 0.3, "scale1": -1.7},
    "Swish": {"alpha": 1.2},
    "SwishGrad": {"alpha": 1.2},
    "ThresholdedRelu": {"alpha": 0.7},
    "ThresholdedReluGrad": {"alpha": 0.7},
}
_PART: Final = 7  # elements: no whole vector on any processor


def _operands(opcode: str) -> list[Array]:
    random = np.random.default_rng(0)
    scales = np.repeat([0.1, 1, 10, 100], 350)
    count = 2 if opcode in _OF_TWO else 1
    return [(random.standard_normal(1400) * scales).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("opcode", sorted(STEP_OPCODES - _NOT_OF_FLOATS))
def test_few_elements_are_rounded_as_many_are(library: Library, opcode: str) -> None:
    operands, attributes = _operands(opcode), _ATTRIBUTES.get(opcode, {})
    (whole,) = steady_results(library, opcode, operands, [np.empty_like(operands[0])], attributes)
    parts: list[Array] = []
    for start in range(0, whole.size, _PART):
        some = [array[start : start + _PART].copy() for array in operands]
        found = native_results(library, opcode, some, [np.empty_like(some[0])], attributes)
        assert found is not None
        parts += found
    assert np.concatenate(parts).tobytes() == whole.tobytes()


@pytest.mark.parametrize(
    ("shape", "other"),
    [((40, 1500), (1500,)), ((40, 1500), (40, 1)), ((9, 4111), (9, 1)), ((60001,), (1,))],
    ids=str,
)
def test_rows_of_any_length_in_chains(
    library: Library, shape: tuple[int, ...], other: tuple[int, ...]
) -> None:
    random, dtype = np.random.default_rng(0), DType.FLOAT32
    x, y = (random.standard_normal(item).astype(np.float32) for item in (shape, other))
    out, plain = [np.empty(shape, np.float32)], {"approximate": "none"}
    steps = (
        FusedStep("Add", (0, 1), dtype, {}),
        FusedStep("MishGrad", (2, 0), dtype, {}),
        FusedStep("GeluGrad", (3, 0), dtype, plain),
    )
    (together,) = steady_results(library, "FusedElementwise", [x, y], out, written(steps))
    (alone,) = steady_results(library, "Add", [x, y], out, {})
    for opcode, attributes in (("MishGrad", {}), ("GeluGrad", plain)):
        (alone,) = steady_results(library, opcode, [alone, x], out, attributes)
    assert together.tobytes() == alone.tobytes()
