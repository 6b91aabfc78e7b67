"""Gradient cases of ai.graphcore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from tests.support.gradients import Case

__all__ = ["CASES"]

_DOMAIN: Final = "ai.graphcore"


def _numbers(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape)


def _distinct(*shape: int, seed: int = 0) -> Array:
    """Numbers that keep their order under small changes."""
    size = int(np.prod(shape))
    return np.random.default_rng(seed).permutation(size).reshape(shape) / 3 - size / 7


def _case(
    op_type: str, inputs: list[Any], attributes: Mapping[str, Any] | None = None, **more: Any
) -> Case:
    return Case(op_type, inputs, attributes or {}, domain=_DOMAIN, **more)


def _torch(name: str) -> Any:
    def function(*operands: Any) -> Any:
        import torch

        return getattr(torch, name)(*operands)

    return function


# -- elementwise and moves -------------------------------------------------------------------------


def _gelu(approximate: str) -> Any:
    def function(x: Any) -> Any:
        import torch

        return torch.nn.functional.gelu(x, approximate=approximate)

    return function


def _activation(name: str) -> Any:
    def function(x: Any) -> Any:
        import torch

        return getattr(torch.nn.functional, name)(x)

    return function


def _pixel_shuffle(x: Any) -> Any:
    import torch

    return torch.nn.functional.pixel_shuffle(x, 2)


_X: Final = _numbers(2, 3, 4)

_ELEMENTWISE: Final = [
    _case("Atan2", [_numbers(2, 3), _numbers(3, seed=1)], torch=_torch("atan2")),
    _case("Detach", [_X], torch=lambda x: x.detach() + 0 * x, smooth=False),
    _case("Expm1", [_X], torch=_torch("expm1")),
    _case("Fmod", [_numbers(2, 3), np.array([0.7, -1.1, 1.3])], torch=_torch("fmod")),
    _case("Gelu", [_X], torch=_gelu("tanh")),
    _case("GeluErf", [_X], torch=_gelu("none")),
    _case("HardSigmoid", [_X], torch=lambda x: (0.2 * x + 0.5).clamp(0, 1)),
    _case("IncrementMod", [_X], {"increment": 0.25, "modulus": 0.75}),
    _case("Log1p", [_numbers(2, 3, low=-0.5)], torch=_torch("log1p")),
    _case("NearbyInt", [_X], torch=_torch("round")),
    _case("Nop", [_X]),
    _case("PrintTensor", [_X[0]], {"print_gradient": 0}),
    _case("Remainder", [_numbers(2, 3), np.array([0.7, -1.1, 1.3])], torch=_torch("remainder")),
    _case("ReplicatedAllReduce", [_X]),
    _case("ReplicatedReduceScatter", [_X]),
    _case("Reshape", [_X], {"shape": [4, 6]}),
    _case("Reverse", [_X], {"dimensions": [0, 2]}, torch=lambda x: x.flip(0, 2)),
    _case("Round", [_X]),
    _case("Scale", [_X], {"scale": -1.5}),
    _case("ScaledAdd", [_X, _numbers(2, 3, 4, seed=1)], {"scale0": 0.5, "scale1": -2.0}),
    _case(
        "ScaledAdd",
        [_X, _numbers(2, 3, 4, seed=1), np.array(0.5), np.array([-2.0])],
        name="operands",
        torch=lambda x, y, a, b: a * x + b * y,
    ),
    _case(
        "SerializedMatMul",
        [_numbers(2, 4, 3), _numbers(2, 4, 2, seed=1)],
        {"serialization_dimension": "a_columns", "serialization_factor": 3, "transpose_a": 1},
        torch=lambda a, b: a.mT @ b,
    ),
    _case("Slice", [_X], {"starts": [1, 0], "ends": [2, -1], "axes": [0, 2]}),
    _case("Square", [_X], torch=_torch("square")),
    _case("Subsample", [_X], {"strides": [1, 2, 3]}, torch=lambda x: x[:, ::2, ::3]),
    _case("Swish", [_X], torch=_activation("silu")),
    _case(
        "DepthToSpace",
        [_numbers(1, 4, 2, 3)],
        {"blocksize": 2, "mode": "CRD"},
        torch=_pixel_shuffle,
    ),
]


# -- slices and sequences --------------------------------------------------------------------------

_WINDOW: Final = {"axes": [0, 2], "sizes": [1, 3]}
_OFFSETS: Final = np.array([1, 1], np.int32)
_SLICE: Final = _numbers(1, 3, 3, seed=2)
_RUNS: Final = [
    np.array([2, 0, 2], np.int32),
    np.array([2, 5, 1], np.int32),
    np.array([0, 3, 4], np.int32),
]

_SLICES: Final = [
    *(
        _case(name, [_X, _OFFSETS, *more], _WINDOW, name=kind, constants=constants)
        for name, more in (
            ("DynamicAdd", [_SLICE]),
            ("DynamicSlice", []),
            ("DynamicUpdate", [_SLICE]),
            ("DynamicZero", []),
        )
        for kind, constants in (("run-time", ()), ("known", (1,)))
    ),
    *(
        _case(
            "SequenceSlice",
            [_numbers(6, 3), _numbers(6, 3, seed=1), *_RUNS],
            {"zeroUnused": zero},
            name=f"zero{zero}",
        )
        for zero in (0, 1)
    ),
    _case("SequenceSlicePack", [_numbers(4, 3), _numbers(6, 3, seed=1), _RUNS[0], _RUNS[2]]),
    _case("SequenceSliceUnpack", [_numbers(6, 3), _RUNS[0], _RUNS[1]], {"totalElements": 5}),
]

# -- indices ---------------------------------------------------------------------------------------

_INDEX: Final = np.array([0, 2, 0, 3, 2])


def _scatter(reduction: str) -> Any:
    def function(x: Any, index: Any, initial: Any = None) -> Any:
        import torch

        wide = index.reshape(-1, *[1] * (x.dim() - 1)).expand_as(x)
        name = {"max": "amax", "min": "amin", "mul": "prod", "sum": "sum"}[reduction]
        fixed = initial is not None
        start = initial if fixed else torch.zeros(4, *x.shape[1:], dtype=x.dtype)
        return start.scatter_reduce(0, wide, x, name, include_self=fixed)

    return function


def _with_zeros() -> Array:
    x = _numbers(5, 2)
    x[0, 0] = x[1, 1] = x[4, 1] = x[3, 0] = 0
    return x


_TIES: Final = np.array([[1.0, 2.0], [3.0, 1.0], [1.0, 0.5], [2.0, 2.0], [3.0, 4.0]])

_INDICES: Final = [
    *(
        _case(
            "ScatterReduce",
            [_distinct(5, 2), _INDEX, *([_distinct(4, 2, seed=4) + 0.1] if initial else [])],
            {"axis": 0, "axis_size": 4, "reduction": reduction},
            name=f"{reduction}-{'from' if initial else 'alone'}",
            torch=_scatter(reduction) if reduction != "mul" or initial else None,
        )
        for reduction in ("max", "min", "mul", "sum")
        for initial in (False, True)
    ),
    _case(
        "ScatterReduce",
        [_with_zeros(), _INDEX, _numbers(4, 2, seed=1)],
        {"axis": 0, "axis_size": 4, "reduction": "mul"},
        name="zero factors",
        torch=_scatter("mul"),
    ),
    _case(
        "ScatterReduce",
        [_TIES, _INDEX],
        {"axis": 0, "axis_size": 4, "reduction": "max"},
        name="ties",
        smooth=False,
        torch=_scatter("max"),
    ),
    _case(
        "ScatterReduce",
        [_numbers(5, 2), np.array([3, 1, 0, 5, 2]), _numbers(6, 2, seed=1)],
        {"axis": 0, "axis_size": 6, "reduction": "none"},
        name="none",
    ),
    _case(
        "ScatterReduce",
        [_distinct(2, 5, 3), np.stack([_INDEX, _INDEX[::-1]])],
        {"axis": 1, "axis_size": 4, "reduction": "max", "group_size": 2},
        name="groups",
    ),
    _case(
        "ScatterReduce",
        [_numbers(2, 3), np.array([[0, 1, 0], [1, 1, 0]])],
        {"axis": 0, "axis_size": 2},
        name="elements",
    ),
    _case("GroupedGather", [_X, np.array([[2, 0], [1, 1]])], {"axis": 1, "group_size": 2}),
    _case("EmbeddingLookup", [_numbers(5, 3), np.array([[4, 0], [4, 2]])]),
    _case(
        "EmbeddingLookup",
        [_numbers(6, 3), np.array([[4, 0], [4, -1]])],
        {"serialization_factor": 3},
        name="parts",
    ),
    _case("Sort", [_distinct(3, 5)], {"descending": 1}, outputs=2),
    *(
        _case(
            "ReduceMedian",
            [_distinct(3, 4, 5)],
            {"axes": axes, "keepdims": len(axes) % 2},
            name="".join(map(str, axes)),
            outputs=2,
            torch=(lambda x, axis=axes[0]: x.median(axis, keepdim=True).values)
            if len(axes) == 1
            else None,
        )
        for axes in ([1], [2], [0, 2], [0, 1, 2])
    ),
]

# -- normalisation, convolutions, splines ----------------------------------------------------------

_IMAGE: Final = _numbers(2, 4, 3, 2, seed=3)
_CHANNELS: Final = [_numbers(4, low=0.5), _numbers(4, seed=1)]


def _group_norm(groups: int) -> Any:
    def function(x: Any, scale: Any, bias: Any) -> Any:
        import torch

        return torch.nn.functional.group_norm(x, groups, scale, bias)

    return function


def _batch_norm(x: Any, scale: Any, bias: Any, *running: Any) -> Any:
    import torch

    del running
    return torch.nn.functional.batch_norm(x, None, None, scale, bias, training=True)


def _weighted(x: Any, weights: Any, basis: Any, kernels: Any) -> Any:
    import torch

    return torch.einsum("es,ei,esio->eo", basis, x, weights[kernels.long()])


_LAYERS: Final = [
    _case(
        "BatchNormalization",
        [_IMAGE, *_CHANNELS, _numbers(4, seed=5), _numbers(4, seed=6, low=0.5)],
        outputs=5,
        frozen=(3, 4),
        torch=_batch_norm,
    ),
    _case(
        "GroupNormalization",
        [_IMAGE, *_CHANNELS],
        {"num_groups": 2},
        outputs=3,
        torch=_group_norm(2),
    ),
    _case(
        "GroupNormalization",
        [_IMAGE, *_CHANNELS],
        {"num_groups": 2, "strided_channel_grouping": 1},
        name="strided",
        outputs=3,
        weighted=(0, 1, 2),
    ),
    _case("InstanceNormalization", [np.moveaxis(_IMAGE, 1, -1), *_CHANNELS]),
    _case("LayerNormalization", [_IMAGE], {"channels_axis": 1}),
    _case(
        "MultiConv",
        [
            _numbers(1, 4, 5),
            _numbers(2, 2, 3, seed=1),
            None,
            _IMAGE,
            _numbers(3, 4, 2, 1, seed=2),
            _numbers(3),
        ],
        {"numConvs": 2, "inDilations": [1, 2, 1], "outPads": [0, 0, 1, 0, 0, 1]},
        outputs=2,
        weighted=(0, 1),
    ),
    _case("NormalizeImage", [_numbers(2, 2, 3), _numbers(3, seed=1), _numbers(3, seed=2)]),
    *(
        _case(
            "SplineBasis",
            [
                np.array([[0.13, 0.81], [0.55, 0.37], [0.02, 0.93]]),
                np.array([5, 4], np.int32),
                np.array([1, 0], np.uint8),
            ],
            {"degree": degree},
            name=str(degree),
            outputs=2,
        )
        for degree in range(4)
    ),
    _case(
        "SplineWeighting",
        [
            _numbers(3, 2),
            _numbers(4, 2, 3, seed=1),
            _numbers(3, 2, seed=2),
            np.array([[0, 3], [1, 1], [2, 0]], np.int32),
        ],
        torch=_weighted,
    ),
]


CASES: Final[list[Case]] = [*_ELEMENTWISE, *_SLICES, *_INDICES, *_LAYERS]
