"""Attention and recurrent layers."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import Case, Combination, Cut, Place, Rule

__all__ = ["RULES"]

_SUM: Final = Combination.SUM
_NOT_BATCH: Final = "its operands are cut along another axis than their batch"
_MASK: Final = 3


def _mask_axis(case: Case) -> int | None:
    """The batch axis of the mask, which broadcasts to [B, H, S, T]."""
    if not case.has(_MASK) or len(case.shape(_MASK)) < 4 or case.shape(_MASK)[0] == 1:
        return None
    return 0


def _attention(case: Case) -> Cut | str:
    """q, k, v, mask, lengths."""
    if all(case.axis(index) != 0 for index in range(3)):
        return _NOT_BATCH
    return case.cut({0: 0, 1: 0, 2: 0, _MASK: _mask_axis(case), 4: 0}, (0, 0))


def _attention_grad(case: Case) -> Cut | str:
    """The operands of the attention, the gradient of its result, the result."""
    if all(case.axis(index) != 0 for index in (0, 1, 2, 5, 6)):
        return _NOT_BATCH
    mask = _mask_axis(case)
    operands = {0: 0, 1: 0, 2: 0, _MASK: mask, 4: 0, 5: 0, 6: 0}
    return case.cut(operands, (0, 0, 0, _SUM if mask is None else mask))


# The batch axes of a layer's operands, where they have any: X, lengths, initial states.
_LAYER: Final = {0: 1, 4: 0, 5: 1}
_SEVENTH: Final = {"GRU": {6: 1}, "LSTM": {6: 1}, "RNN": {}}


def _layer(kind: str) -> Rule:
    operands: dict[int, int | None] = {**_LAYER, **_SEVENTH[kind]}
    results = (2, 1, 1) if kind == "LSTM" else (2, 1)

    def rule(case: Case) -> Cut | str:
        if not any(case.axis(index) == axis for index, axis in operands.items()):
            return _NOT_BATCH
        return case.cut(operands, (*results, 3, 3))

    return rule


def _layer_grad(kind: str) -> Rule:
    """The layer's eight operands, states, gates, the gradients of its results."""
    own: dict[int, int | None] = {**_LAYER, **_SEVENTH[kind]}
    rest: dict[int, int | None] = {8: 3, 9: 3, 10: 2, 11: 1, 12: 1}

    def rule(case: Case) -> Cut | str:
        operands = own | rest
        if not any(case.axis(index) == axis for index, axis in operands.items()):
            return _NOT_BATCH
        places: list[Place] = []
        for wanted in case.integers("wanted"):
            axis = own.get(wanted)
            places.append(_SUM if axis is None else axis)
        return case.cut(operands, places)

    return rule


RULES: Final[dict[str, Rule]] = {
    "Attention": _attention,
    "AttentionGrad": _attention_grad,
    **{kind: _layer(kind) for kind in _SEVENTH},
    **{f"{kind}Grad": _layer_grad(kind) for kind in _SEVENTH},
}
