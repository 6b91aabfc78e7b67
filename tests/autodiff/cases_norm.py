"""Gradient cases of normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from tests.autodiff.inputs import numbers, pytorch
from tests.support.gradients import Case

__all__ = ["CASES"]

_Shape = tuple[int, ...]


def _positive(*shape: int, seed: int = 0) -> Array:
    return np.abs(numbers(*shape, seed=seed)) + 0.5


def _shifted(*shape: int) -> Array:
    """Numbers whose mean is not small."""
    return numbers(*shape) + 3


# -- BatchNormalization ----------------------------------------------------------------------------


def _batch_operands(*shape: int) -> list[Array]:
    channels = shape[1] if len(shape) > 1 else 1
    vectors = [numbers(channels, seed=seed) for seed in (1, 2, 3)]
    return [_shifted(*shape), *vectors, _positive(channels, seed=4)]


def _batch_norm(x: Any, *parameters: Any) -> Any:
    """By its formula: PyTorch does not differentiate with respect to running statistics."""
    shape = [1, -1, *(1 for _ in x.shape[2:])]
    scale, bias, mean, variance = (parameter.reshape(shape) for parameter in parameters)
    return (x - mean) / (variance + 1e-2) ** 0.5 * scale + bias


def _trained(x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> tuple[Any, Any, Any]:
    """PyTorch's own running variance is another: an estimate from a sample."""
    y = pytorch().nn.functional.batch_norm(x, None, None, scale, bias, training=True, eps=1e-2)
    axes = [axis for axis in range(x.dim()) if axis != 1]
    new_mean, new_variance = x.mean(axes), x.var(axes, correction=0)
    return y, 0.7 * mean + 0.3 * new_mean, 0.7 * variance + 0.3 * new_variance


def _trained_result(*operands: Any) -> Any:
    return _trained(*operands)[0]


_BATCH: Final = [
    *(
        Case("BatchNormalization", _batch_operands(*shape), {"epsilon": 1e-2}, name=name,
             torch=_batch_norm if len(shape) != 1 else None, frozen=frozen)
        for name, shape, frozen in (
            ("known statistics", (3, 4, 5), ()),
            ("known statistics, matrix", (5, 3), ()),
            ("known statistics, vector", (6,), ()),
            ("data only", (2, 3, 2, 2), (1, 2, 3, 4)),
            ("parameters only", (2, 3, 2, 2), (0, 3, 4)),
        )
    ),
    *(
        Case("BatchNormalization", _batch_operands(*shape),
             {"epsilon": 1e-2, "training_mode": 1, "momentum": 0.7}, name=f"training {len(shape)}",
             opset=15, outputs=3, frozen=(3, 4), torch=_trained_result)
        for shape in ((3, 4, 5), (7, 3), (2, 3, 4, 3), (2, 2, 3, 2, 2))
    ),
    Case("BatchNormalization", _batch_operands(3, 4, 5),
         {"epsilon": 1e-2, "training_mode": 1, "momentum": 0.7}, name="training, all outputs",
         opset=15, outputs=3, weighted=(0, 1, 2), torch=_trained),
    Case("BatchNormalization", _batch_operands(3, 4, 5), {"epsilon": 1e-2, "training_mode": 1},
         name="training, one output", opset=15, frozen=(3, 4), torch=_trained_result),
    Case("BatchNormalization", _batch_operands(3, 4, 5), {"epsilon": 1e-2, "training_mode": 1},
         name="training, parameters only", opset=15, frozen=(0, 3, 4)),
    Case("BatchNormalization", _batch_operands(3, 4, 5), {"epsilon": 1e-2, "momentum": 0.7},
         name="training by outputs", opset=9, outputs=5, weighted=(0, 1, 2, 3, 4)),
]  # fmt: skip


# -- LayerNormalization, RMSNormalization ----------------------------------------------------------


def _layer_norm(axis: int) -> Callable[..., Any]:
    def function(x: Any, scale: Any, bias: Any = None) -> Any:
        row = tuple(x.shape[axis:])
        y = pytorch().nn.functional.layer_norm(x, row, eps=1e-2) * scale
        return y if bias is None else y + bias

    return function


def _layer_norm_and_statistics(x: Any, scale: Any, bias: Any) -> tuple[Any, Any, Any]:
    deviation = (x.var(-1, correction=0, keepdim=True) + 1e-2) ** 0.5
    return _layer_norm(-1)(x, scale, bias), x.mean(-1, keepdim=True), 1 / deviation


def _rms_norm(axis: int) -> Callable[..., Any]:
    def function(x: Any, scale: Any) -> Any:
        return pytorch().nn.functional.rms_norm(x, tuple(x.shape[axis:]), eps=1e-2) * scale

    return function


_DOUBLE: Final = 11  # TensorProto.DOUBLE: statistics in float64, so that differences are exact

_LAYER_SHAPES: Final[dict[str, tuple[_Shape, int, _Shape, _Shape | None]]] = {
    "last": ((2, 3, 5), -1, (5,), (5,)),
    "no bias": ((4, 5), -1, (5,), None),
    "two axes": ((3, 2, 4), -2, (2, 4), (2, 4)),
    "all axes": ((3, 4), 0, (3, 4), (3, 4)),
    "part of a row": ((3, 2, 4), 1, (4,), (2, 1)),
    "scalar scale": ((3, 4), 1, (), (1,)),
    "leading ones": ((3, 4), 1, (1, 4), (1, 4)),
    "each row its own": ((2, 3, 4), 2, (3, 4), (2, 1, 1)),
    "own bias": ((3, 4), 1, (4,), (3, 1)),
}


def _vector(shape: _Shape, seed: int) -> Array:
    return np.asarray(numbers(*shape, seed=seed))


_ROWS: Final = [
    *(
        Case("LayerNormalization",
             [_shifted(*x), _vector(scale, 1), *([] if bias is None else [_vector(bias, 2)])],
             {"axis": axis, "epsilon": 1e-2, "stash_type": stash}, name=f"{name}, {stash}",
             torch=_layer_norm(axis))
        for name, (x, axis, scale, bias) in _LAYER_SHAPES.items()
        for stash in (1, _DOUBLE)
    ),
    *(
        Case("RMSNormalization", [_shifted(*x), _vector(scale, 1)],
             {"axis": axis, "epsilon": 1e-2}, name=name, opset=23, torch=_rms_norm(axis))
        for name, (x, axis, scale, bias) in _LAYER_SHAPES.items() if name != "own bias"
    ),
    Case("LayerNormalization", [numbers(3, 4), numbers(4, seed=1), numbers(4, seed=2)],
         {"epsilon": 1e-2, "stash_type": _DOUBLE}, name="statistics", outputs=3,
         weighted=(0, 1, 2), torch=_layer_norm_and_statistics),
    Case("LayerNormalization", [numbers(3, 4), numbers(4, seed=1)], name="data only", frozen=(1,)),
    Case("LayerNormalization", [numbers(3, 4), numbers(4), numbers(4)], name="scale", frozen=(0,)),
    Case("RMSNormalization", [numbers(3, 4), numbers(4)], name="scale", opset=23, frozen=(0,)),
]  # fmt: skip


# -- the others ------------------------------------------------------------------------------------


def _group_norm(groups: int) -> Callable[..., Any]:
    def function(x: Any, scale: Any, bias: Any) -> Any:
        return pytorch().nn.functional.group_norm(x, groups, scale, bias, eps=1e-2)

    return function


def _instance_norm(x: Any, scale: Any, bias: Any) -> Any:
    return pytorch().nn.functional.instance_norm(x, weight=scale, bias=bias, eps=1e-2)


def _lrn(size: int, beta: float) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        return pytorch().nn.functional.local_response_norm(x, size, 0.7, beta, 1.5)

    return function


def _channels(*shape: int) -> list[Array]:
    return [_shifted(*shape), numbers(shape[1], seed=1), numbers(shape[1], seed=2)]


_CHANNELS: Final = [
    *(
        Case("GroupNormalization", _channels(*shape), {"num_groups": groups, "epsilon": 1e-2},
             name=f"{groups} groups of {list(shape)}", torch=_group_norm(groups))
        for groups, shape in ((2, (3, 4, 5)), (1, (2, 3, 2, 2)), (3, (2, 6, 2, 3)), (2, (3, 6)))
    ),
    Case("GroupNormalization", [_shifted(2, 4, 3), numbers(2, seed=1), numbers(2, seed=2)],
         {"num_groups": 2, "epsilon": 1e-2}, name="old form", opset=18),
    *(
        Case("InstanceNormalization", _channels(*shape), {"epsilon": 1e-2}, name=f"{list(shape)}",
             torch=_instance_norm)
        for shape in ((2, 3, 5), (2, 3, 4, 3))
    ),
    Case("InstanceNormalization", _channels(2, 3, 5), name="data only", frozen=(1, 2)),
    *(
        Case("LRN", [numbers(2, 6, 3, 2)],
             {"size": size, "alpha": 0.7, "beta": beta, "bias": 1.5}, name=f"{size}, {beta}",
             torch=_lrn(size, beta) if size % 2 else None)
        for size, beta in ((3, 0.75), (5, 0.6), (4, 0.75), (1, 0.75), (13, 1.0))
    ),
    Case("LpNormalization", [numbers(3, 4)], {"axis": 1, "p": 2}, opset=22),
]  # fmt: skip

CASES: Final[list[Case]] = [*_BATCH, *_ROWS, *_CHANNELS]
