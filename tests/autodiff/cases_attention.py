"""Gradient cases of attention and rotary embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from tests.support.gradients import Case

__all__ = ["CASES"]

_RNG: Final = np.random.default_rng(9)


def _normal(*shape: int) -> Array:
    return _RNG.normal(size=shape)


def _operands(
    *, rows: int = 3, keys: int = 4, heads: int = 4, kv_heads: int = 4, depth: int = 2
) -> list[Array | None]:
    return [
        _normal(2, heads, rows, depth),
        _normal(2, kv_heads, keys, depth),
        _normal(2, kv_heads, keys, depth + 1),
    ]


def _torch(**options: Any) -> Callable[..., Any]:
    def function(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        import torch

        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, **options)

    return function


def _with_past(q: Any, k: Any, v: Any, mask: Any, past_k: Any, past_v: Any) -> tuple[Any, Any, Any]:
    import torch

    k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask), k, v


def _capped(cap: float, scale: float) -> Callable[..., Any]:
    def function(q: Any, k: Any, v: Any, mask: Any) -> Any:
        import torch

        scores = cap * torch.tanh(scale * (q @ k.transpose(2, 3)) / cap) + mask
        return torch.softmax(scores, 3) @ v

    return function


def _flat(heads: int) -> Callable[..., Any]:
    def function(q: Any, k: Any, v: Any) -> Any:
        import torch

        parts = [x.reshape(*x.shape[:2], heads, -1).transpose(1, 2) for x in (q, k, v)]
        y = torch.nn.functional.scaled_dot_product_attention(*parts)
        return y.transpose(1, 2).reshape(*q.shape[:2], -1)

    return function


def _rotated(*, interleaved: bool) -> Callable[..., Any]:
    def function(x: Any, cosine: Any, sine: Any) -> Any:
        import torch

        if interleaved:
            a, b = x[..., 0:4:2], x[..., 1:4:2]
        else:
            a, b = x[..., :2], x[..., 2:4]
        rotated = torch.stack([a * cosine - b * sine, a * sine + b * cosine])
        order = rotated.movedim(0, -1) if interleaved else rotated.movedim(0, -2)
        return torch.cat([order.flatten(-2), x[..., 4:]], -1)

    return function


def _case(name: str, inputs: list[Array | None], *, opset: int = 24, **more: Any) -> Case:
    return Case("Attention", inputs, name=name, opset=opset, **more)


def _masked(*shape: int) -> Array:
    """A float mask that hides some keys, and from one query all of them."""
    mask = _normal(*shape)
    mask[..., 0, 1] = -np.inf
    mask[..., -1, :] = -np.inf
    return mask


_BOOL: Final = np.array([[True, False, True, True], [False] * 4, [True] * 4])
_ANGLES: Final = _RNG.uniform(-1, 1, (2, 1, 5, 2))

CASES: Final[list[Case]] = [
    _case("plain", _operands(), torch=_torch()),
    _case("scaled", _operands(), attributes={"scale": 0.3}, torch=_torch(scale=0.3)),
    _case(
        "causal",
        _operands(keys=3),
        attributes={"is_causal": 1},
        torch=_torch(is_causal=True),
    ),
    _case("groups", _operands(kv_heads=2), torch=_torch(enable_gqa=True)),
    *(
        _case(f"mask-{'x'.join(map(str, shape))}", [*_operands(), _normal(*shape)], torch=_torch())
        for shape in ((3, 4), (2, 1, 3, 4), (1, 4, 3, 4), (4, 1, 4), (2, 4, 3, 4))
    ),
    _case(
        "mask-groups",
        [*_operands(kv_heads=2), _normal(1, 4, 3, 4)],
        torch=_torch(enable_gqa=True),
    ),
    _case("hidden", [*_operands(), _BOOL]),
    _case("hidden-float", [*_operands(), _masked(3, 4)], frozen=(3,)),
    _case("narrow-mask", [*_operands(), _normal(3, 2)]),
    _case(
        "capped",
        [*_operands(), _normal(3, 4)],
        attributes={"softcap": 1.5, "scale": 0.8},
        torch=_capped(1.5, 0.8),
    ),
    _case(
        "past",
        [*_operands(keys=3), _normal(3, 5), _normal(2, 4, 2, 2), _normal(2, 4, 2, 3)],
        outputs=3,
        weighted=(0, 1, 2),
        torch=_with_past,
    ),
    _case(
        "past-causal",
        [*_operands(keys=3), None, _normal(2, 4, 2, 2), _normal(2, 4, 2, 3)],
        attributes={"is_causal": 1},
        outputs=3,
    ),
    _case("lengths", [*_operands(), None, None, None, np.array([4, 2])]),
    _case(
        "flat",
        [_normal(2, 3, 8), _normal(2, 3, 8), _normal(2, 3, 4)],
        attributes={"q_num_heads": 2, "kv_num_heads": 2},
        torch=_flat(2),
    ),
    # So many scores that they are cut by rows: keys get their gradients from several blocks.
    _case(
        "long",
        [_normal(1, 2, 400, 2), _normal(1, 1, 400, 2), _normal(1, 1, 400, 2), _normal(1, 400)],
        attributes={"is_causal": 1},
    ),
    *(
        Case(
            "RotaryEmbedding",
            [_normal(2, 3, 5, 6), np.cos(_ANGLES), np.sin(_ANGLES)],
            {"interleaved": interleaved},
            name="interleaved" if interleaved else "halves",
            ir=True,
            torch=_rotated(interleaved=bool(interleaved)),
        )
        for interleaved in (0, 1)
    ),
    Case(
        "RotaryEmbedding",
        [_normal(2, 3, 5, 4), np.cos(_ANGLES[0]), np.sin(_ANGLES[0])],
        {"interleaved": 0},
        name="shared",
        ir=True,
    ),
]
