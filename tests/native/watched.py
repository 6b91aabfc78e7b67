"""Some native kernels, without pytest: valgrind takes minutes to import that.

python -m tests.native.watched
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from popc_runtime.native import find_library
from tests.native.bindings import native_results, numpy_results

_RANDOM: Final = np.random.default_rng(0)


def _numbers(*shape: int) -> Array:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def _problems() -> Sequence[tuple[str, list[Array | None], tuple[int, ...], dict[str, Any]]]:
    """Opcode, operands, shape of the result, attributes."""
    x, windows = _numbers(1, 19, 13, 11), {"strides": (1, 1), "dilations": (1, 1)}
    pool = {"kernel_shape": (3, 3), "pads": (1,) * 4, **windows}
    conv = {"pads": (1,) * 4, "group": 1, **windows}
    last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    weights, image = _numbers(21, 19, 3, 3), _numbers(1, 64, 21, 22)
    return (
        ("MatMul", [_numbers(37, 65), _numbers(65, 33), None, None], (37, 33), {}),
        ("MatMul", [_numbers(1, 65), _numbers(65, 33), None, None], (1, 33), {}),
        ("Conv", [x, weights, _numbers(21), None], (1, 21, 13, 11), {**conv, "winograd": 0}),
        ("Conv", [last, weights, None, None], (1, 21, 13, 11), {**conv, "winograd": 0}),
        ("Conv", [x, _numbers(19, 1, 3, 3), None, None], x.shape, {**conv, "group": 19}),
        ("Conv", [last, _numbers(19, 1, 3, 3), None, None], x.shape, {**conv, "group": 19}),
        ("Conv", [image, _numbers(64, 64, 3, 3), None, None], image.shape, conv),
        ("MaxPool", [x], x.shape, pool),
        ("AveragePool", [last], x.shape, pool),
        ("Softmax", [_numbers(7, 37)], (7, 37), {"axis": 1, "epsilon": 1e-5}),
        (
            "LayerNormalization",
            [_numbers(7, 37), _numbers(37), None],
            (7, 37),
            {"axis": 1, "epsilon": 1e-5},
        ),
        ("ReduceSum", [x], (1, 1, 13, 11), {"axes": (1,), "keepdims": 1}),
        ("Gelu", [x[:, ::2]], (1, 10, 13, 11), {}),
        ("Gather", [_numbers(5, 7), np.array([4, 0, -1])], (3, 7), {"axis": 0}),
        ("TopK", [_numbers(3, 50)], (3, 50), {"axis": 1, "k": 50, "largest": 1}),
    )


def main() -> int:
    """Compare some of each family with numpy; how many differ."""
    library = find_library("x86-64-v3")
    assert library is not None
    wrong = 0
    for opcode, inputs, shape, attributes in _problems():
        outputs = [np.empty(shape, np.float32)]
        if opcode == "TopK":
            outputs.append(np.empty(shape, np.int64))
        for constant in ((), (1, 2)):
            arguments = (opcode, inputs, outputs, attributes, constant)
            found, expected = native_results(library, *arguments), numpy_results(*arguments)
            same = found is not None and np.allclose(found[0], expected[0], rtol=1e-4, atol=1e-4)
            wrong += not same
            sys.stdout.write(f"{opcode} {shape} {'agrees' if same else 'DIFFERS'}\n")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
