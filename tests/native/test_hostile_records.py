"""Records whose shapes do not fit together are refused rather than run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.format import Array
from popc_runtime.native import Library, NativeFailure, NativeProgram, Record
from popc_runtime.native.contiguous import move_record
from popc_runtime.native.record import activation_words, tensor_words
from popc_runtime.native.views import as_view
from tests.native.bindings import bound, encode, native_results, numpy_results


def _floats(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _words(arrays: Sequence[Array | None], *numbers: int) -> tuple[int, ...]:
    views = (None if array is None else as_view(array) for array in arrays)
    return (*(word for view in views for word in tensor_words(view)), *numbers)


_Changes = Mapping[str, Any]
_NOTHING: Final = activation_words(0, ())


def _conv(kernel: str, changes: _Changes) -> tuple[Record, Sequence[Array | None]]:
    """A convolution 3 x 3 of 16 channels, but for what is changed."""
    groups = 16 if kernel.startswith("Depthwise") else 1
    shapes: dict[str, Any] = {"x": (2, 16, 8, 8), "w": (16, 16 // groups, 3, 3)}
    shapes |= {"y": (2, 16, 6, 6), "bias": (16,), "residual": (2, 16, 6, 6)}
    numbers = {"groups": groups, "stride": 1, "dilation": 1, **changes}
    shapes |= {name: shape for name, shape in changes.items() if name in shapes}
    arrays = [_floats(*shape) for shape in shapes.values()]
    geometry = (numbers["groups"], *(numbers["stride"], numbers["dilation"], 0) * 2)
    words = _words(arrays, *((1, 0, 1, 0) if kernel == "WinogradConv_f32" else geometry), *_NOTHING)
    return Record(kernel, words), arrays


def _weights(kernel: str, changes: _Changes) -> tuple[Record, Sequence[Array | None]]:
    """The gradient of the weights of such a convolution by Winograd's algorithm."""
    shapes = {"x": (2, 16, 8, 8), "w": (16, 16, 3, 3), "y": (2, 16, 6, 6), **changes}
    arrays = [_floats(*shape) for shape in shapes.values()]
    return Record(kernel, _words(arrays, 0, 0)), arrays


def _product(kernel: str, changes: _Changes) -> tuple[Record, Sequence[Array | None]]:
    """[2, 3, 4] by [2, 4, 5], but for what is changed."""
    shapes: dict[str, Any] = {"left": (2, 3, 4), "right": (2, 4, 5), "out": (2, 3, 5)}
    shapes |= {"bias": (5,), "residual": (2, 3, 5)} | dict(changes)
    halves = shapes.pop("halves", False)
    arrays = [_floats(*shape) for shape in shapes.values()]
    if halves:  # that may still change
        arrays[1] = arrays[1].astype(np.float16)
    return Record(kernel, _words(arrays, *_NOTHING)), arrays


def _move(kernel: str, changes: _Changes) -> tuple[Record, Sequence[Array | None]]:
    arrays = [_floats(*changes.get(name, (3, 4))) for name in ("source", "target")]
    if changes.get("halves"):
        arrays[0] = arrays[0].astype(np.float16)
    return Record(kernel, _words(arrays)), arrays


_SPOILT_CONVS: Final[tuple[_Changes, ...]] = (
    {"x": (1, 16, 8, 8)},
    {"x": (2, 15, 8, 8)},
    {"w": (15, 16, 3, 3)},
    {"w": (16, 17, 3, 3)},
    {"w": (16, 0, 3, 3)},
    {"y": (2, 17, 6, 6)},
    {"y": (0, 16, 6, 6)},
    {"bias": (15,)},
    {"residual": (2, 16, 6, 5)},
    {"residual": (2, 16, 36)},
)
_NARROW: Final = {"w": (16, 16, 3, 2)}
_SPOILT_WINDOWS: Final[tuple[_Changes, ...]] = (
    {"groups": 0},
    {"groups": 3},
    {"stride": 0},
    {"stride": -1},
    {"dilation": 0},
)
_SPOILT_PRODUCTS: Final[tuple[_Changes, ...]] = (
    {"left": (2, 2, 4)},
    {"halves": True},
    {"left": (2, 3, 5)},
    {"left": (3, 3, 4)},
    {"right": (2, 3, 5)},
    {"right": (2, 4, 4)},
    {"right": (3, 4, 5)},
    {"out": (0, 3, 5)},
    {"bias": (4,)},
    {"residual": (2, 3, 4)},
    {"residual": (3, 5)},
)
_SPOILT_MOVES: Final[tuple[_Changes, ...]] = (
    {"source": (3, 3)},
    {"source": (12,)},
    {"target": (4, 4)},
    {"halves": True},
)
_CONVS: Final = ("Conv_f32", "ConvDirect_f32", "ConvLines_f32", "ConvWeights_f32")
_Make = Callable[[str, _Changes], tuple[Record, Sequence[Any]]]
_SPOILT: Final[list[tuple[str, _Make, _Changes]]] = [
    *((name, _conv, conv) for name in _CONVS for conv in (*_SPOILT_CONVS, *_SPOILT_WINDOWS)),
    *(("WinogradConv_f32", _conv, conv) for conv in (*_SPOILT_CONVS, _NARROW)),
    *(("WinogradConvWeights_f32", _weights, conv) for conv in (*_SPOILT_CONVS[:7], _NARROW)),
    *(("Product_f32", _product, product) for product in _SPOILT_PRODUCTS),
    *(("Move", _move, move) for move in _SPOILT_MOVES),
]


@pytest.mark.parametrize(("kernel", "make", "changes"), _SPOILT)
def test_shapes_that_do_not_fit(
    library: Library, kernel: str, make: _Make, changes: _Changes
) -> None:
    record, arrays = make(kernel, {})
    NativeProgram(library, [record], arrays, 1).run()
    record, arrays = make(kernel, changes)
    with pytest.raises(NativeFailure, match="not supported"):
        NativeProgram(library, [record], arrays, 1)


def test_copies_between_shapes() -> None:
    with pytest.raises(ValueError, match="cannot be copied"):
        move_record(as_view(_floats(3, 4)), as_view(_floats(3, 5)))


def _slice(x: Array, out: Array, axes: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
    inputs = [x, np.zeros(len(axes), np.int32)]
    return "DynamicSlice", inputs, out, {"axes": axes, "sizes": sizes}


def _one_hot(depth: int, values: int, count: int) -> Any:
    inputs = [np.zeros(count, np.int64), _floats(values)]
    return "OneHot", inputs, _floats(3, 4), {"axis": -1, "depth": depth}


@pytest.mark.parametrize("case", [
    _slice(_floats(5, 4), _floats(4, 4), (0,), (-1,)),
    _slice(_floats(5, 4), _floats(3, 4), (0,), (2,)),
    _slice(_floats(5, 4), _floats(2, 4), (0, 0), (2, 2)),
    _slice(_floats(5, 4), _floats(5, 4), (0,), (6,)),
    _one_hot(5, 2, 3),
    _one_hot(4, 1, 3),
    _one_hot(4, 2, 2),
])  # fmt: skip
def test_attributes_that_do_not_fit(library: Library, case: Any) -> None:
    opcode, inputs, out, attributes = case
    assert encode(opcode, bound(inputs, [out], attributes), library.numbers) is None


def test_depthwise_windows_of_a_padded_first_axis(library: Library) -> None:
    x = np.moveaxis(np.ascontiguousarray(np.moveaxis(_floats(1, 16, 1, 8, 8), 1, -1)), -1, 1)
    w = _floats(16, 1, 1, 3, 3)
    attributes = {
        "strides": (2, 1, 1),
        "dilations": (1, 1, 1),
        "pads": (1, 1, 1, 0, 1, 1),
        "group": 16,
        "kernel_shape": (1, 3, 3),
    }
    out = np.empty((1, 1, 8, 8, 16), np.float32).transpose(0, 4, 1, 2, 3)
    (expected,) = numpy_results("Conv", [x, w], [out], attributes)
    results = native_results(library, "Conv", [x, w], [out], attributes)
    assert results is not None
    np.testing.assert_allclose(results[0], expected, rtol=1e-5, atol=1e-5)
