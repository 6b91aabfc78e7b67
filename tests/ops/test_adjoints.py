"""Kernels of gradients of linear ops: <op(x), g> is <x, grad(g)>, whatever x and g are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from popc.ir import TensorType
from popc_runtime.errors import ModelError
from popc_runtime.format import Array, DType
from tests.support.oracles import epsilon, run_ir, run_kernel


@dataclass(frozen=True)
class Linear:
    """An op that is linear in operand 0, and its gradient.

    Attributes:
        op_type: The op; the gradient is called the same, with Grad.
        shape: Of operand 0.
        others: The other operands; the gradient takes them after that of the result.
        attributes: Those of the op, and of the gradient but for ``own``.
        own: Further attributes of the gradient.
    """

    op_type: str
    shape: tuple[int, ...]
    others: Sequence[Array] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    own: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def forward(self, x: Array) -> Array:
        """The op."""
        return run_ir(self.op_type, [x, *self.others], self.attributes)[0]

    def backward(self, g: Array, *, constant: bool = False) -> Array:
        """The gradient; with ``constant``, the other operands are known when it is bound."""
        inputs = [g, *self.others]
        types = [TensorType(DType.of(array.dtype), array.shape) for array in inputs]
        known = [False] + [constant] * len(self.others)
        attributes = {**self.attributes, **self.own}
        return run_kernel(f"{self.op_type}Grad", inputs, types, attributes, known)[0]


def _gather(shape: tuple[int, ...], axis: int, *count: int) -> Linear:
    indices = np.random.default_rng(1).integers(-shape[axis], shape[axis], count)
    return Linear("Gather", shape, [indices], {"axis": axis}, {"size": shape[axis]})


def _pad(shape: tuple[int, ...], mode: str, *pads: int) -> Linear:
    return Linear("Pad", shape, [], {"pads": pads, "mode": mode})


def _resize(shape: tuple[int, ...], after: tuple[int, ...], **attributes: Any) -> Linear:
    given = {
        "shape": after,
        "scales": tuple(b / a for a, b in zip(shape, after, strict=True)),
        "coordinate_transformation_mode": "half_pixel",
        "nearest_mode": "floor",
        "exclude_outside": 0,
        "antialias": 0,
        **attributes,
    }
    return Linear("Resize", shape, [], given, {"shape": shape})


def _sample(shape: tuple[int, ...], grid: tuple[int, ...], mode: str) -> Linear:
    positions = np.random.default_rng(2).uniform(-1.5, 1.5, (*grid, len(shape) - 2))
    attributes = {"mode": mode, "padding_mode": "zeros", "align_corners": 0}
    return Linear("GridSample", shape, [positions], attributes, {"shape": shape[2:]})


def _regions(shape: tuple[int, ...], count: int) -> Linear:
    rng = np.random.default_rng(3)
    rois = rng.uniform(-2, 12, (count, 4))
    attributes = {
        "mode": "avg",
        "coordinate_transformation_mode": "half_pixel",
        "output_height": 3,
        "output_width": 2,
        "sampling_ratio": 0,
        "spatial_scale": 0.7,
    }
    batches = rng.integers(0, shape[0], count)
    return Linear("RoiAlign", shape, [rois, batches], attributes, {"shape": shape})


_CASES: Final = {
    "rows": _gather((50, 6), 0, 70),
    "odd rows": _gather((50, 7), 0, 3, 40),
    "few long rows": _gather((3, 70001), 0, 4),
    "many short rows": _gather((9, 2), 0, 20000),
    "elements": _gather((4, 11), 1, 30),
    "inside": _gather((3, 5, 4), 1, 2, 6),
    "no indices": _gather((3, 5), 0, 0),
    "edge": _pad((2, 3, 4), "edge", 0, 1, 2, 1, 3, 0),
    "reflect": _pad((3, 4), "reflect", 2, 7, 1, 3),
    "wrap": _pad((3, 4), "wrap", -1, 5, 2, -1),
    "nearest": _resize((2, 3, 8, 9), (2, 3, 16, 5), mode="nearest"),
    "linear": _resize((4, 8, 33, 20), (4, 8, 66, 50), mode="linear"),
    "cubic": _resize((2, 3, 8, 9), (2, 3, 5, 18), mode="cubic", cubic_coeff_a=-0.75),
    "one axis": _resize((300, 40), (300, 100), mode="linear"),
    "to nothing": _resize((2, 4), (2, 0), mode="nearest"),
    "bilinear": _sample((2, 3, 5, 6), (2, 7, 4), "linear"),
    "many samples": _sample((1, 40, 6, 7), (1, 50, 40), "cubic"),
    "no samples": _sample((1, 2, 3, 3), (1, 0, 2), "linear"),
    "regions": _regions((2, 5, 9, 8), 6),
    "no regions": _regions((2, 5, 9, 8), 0),
}


def _pair(case: Linear, dtype: Any) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(case.shape)
    return x, rng.standard_normal(case.forward(x).shape).astype(dtype)


@pytest.mark.parametrize("constant", [False, True], ids=["at run time", "constant"])
@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES.keys())
def test_adjoint(case: Linear, *, constant: bool) -> None:
    x, g = _pair(case, np.float64)
    grad = case.backward(g, constant=constant)
    assert (grad.shape, grad.dtype) == (case.shape, g.dtype)
    scale = np.abs(x * grad).sum() + 1
    # Positions of samples and taps are computed in float32, but by both in the same way.
    np.testing.assert_allclose((case.forward(x) * g).sum(), (x * grad).sum(), atol=1e-12 * scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES.keys())
def test_precision(case: Linear, dtype: Any) -> None:
    _, g = _pair(case, dtype)
    exact = case.backward(g.astype(np.float64))
    grad = case.backward(g)
    assert grad.dtype == dtype
    magnitude = case.backward(np.abs(g).astype(np.float64))
    error = np.abs(grad - exact) / (np.abs(magnitude) + np.abs(exact) + 1)
    assert error.max(initial=0) < 8 * epsilon(dtype)


@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES.keys())
def test_strided_gradient(case: Linear) -> None:
    _, g = _pair(case, np.float32)
    wide = np.zeros((*g.shape[::-1], 2), np.float32)
    wide[..., 1] = g.T
    np.testing.assert_array_equal(case.backward(wide[..., 1].T), case.backward(g))
    np.testing.assert_array_equal(
        case.backward(np.broadcast_to(np.float32(2), g.shape)), case.backward(np.full_like(g, 2))
    )


@given(st.data())
def test_gathered_from_anywhere(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    count = tuple(data.draw(st.lists(st.integers(0, 5), max_size=2)))
    test_adjoint(_gather(shape, axis, *count), constant=data.draw(st.booleans()))


@given(st.data())
def test_padded_by_anything(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    begins = [data.draw(st.integers(1 - dim, 5)) for dim in shape]
    ends = [
        data.draw(st.integers(1 - dim - min(begin, 0), 5))
        for dim, begin in zip(shape, begins, strict=True)
    ]
    mode = data.draw(st.sampled_from(["edge", "reflect", "wrap"]))
    test_adjoint(_pad(shape, mode, *begins, *ends), constant=False)


def test_index_out_of_range() -> None:
    with pytest.raises(IndexError, match="7 is out of range"):
        run_ir("GatherGrad", [np.ones((1, 2)), np.array([7])], {"axis": 0, "size": 5})


_WRONG: Final[list[tuple[str, list[Array], dict[str, Any], str]]] = [
    ("GatherGrad", [np.ones((3, 2)), np.zeros(4, np.int64)], {"axis": 0, "size": 5}, "gather"),
    ("PadGrad", [np.ones(3)], {"pads": (2, 2), "mode": "edge"}, "padding by"),
    ("PadGrad", [np.ones(3)], {"pads": (1,), "mode": "edge"}, "needs 2 pads"),
    ("PadGrad", [np.ones(3)], {"pads": (1, 1), "mode": "constant"}, "'mode'"),
    (
        "GridSampleGrad",
        [np.ones((1, 2, 3, 3)), np.ones((1, 3, 2, 2))],
        {"mode": "linear", "padding_mode": "zeros", "align_corners": 0, "shape": (4, 4)},
        "is not what",
    ),
    (
        "GridSampleGridGrad",
        [np.ones((1, 2, 3, 3)), np.ones((1, 2, 5, 5)), np.ones((1, 3, 3, 2))],
        {"mode": "nearest", "padding_mode": "zeros", "align_corners": 0},
        "'mode'",
    ),
    (
        "MaxRoiPoolGrad",
        [np.ones((2, 3, 2, 2)), np.ones((1, 5)), np.ones((1, 3, 8, 8))],
        {"pooled_shape": (2, 2), "spatial_scale": 1.0},
        "the gradient of",
    ),
    (
        "RoiAlignGrad",
        [np.ones((1, 3, 3, 2)), np.ones((1, 4)), np.zeros(1, np.int64)],
        {**_regions((2, 3, 8, 8), 1).attributes, "mode": "max", "shape": (2, 3, 8, 8)},
        "X is None",
    ),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "match"), _WRONG)
def test_types_that_do_not_fit(
    op_type: str, inputs: list[Array], attributes: dict[str, Any], match: str
) -> None:
    with pytest.raises(ModelError, match=match):
        run_ir(op_type, inputs, attributes)
