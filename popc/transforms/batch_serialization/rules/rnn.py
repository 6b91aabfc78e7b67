"""Recurrent layers."""

from __future__ import annotations

from typing import Final

from popc.transforms.batch_serialization.cut import NOT_BATCH, Case, Combination, Cut, Place, Rule

__all__ = ["RULES"]

# The batch axes of a layer's operands, where they have any: X, lengths, initial states.
_LAYER: Final = {0: 1, 4: 0, 5: 1}
_SEVENTH: Final = {"GRU": {6: 1}, "LSTM": {6: 1}, "RNN": {}}


def _layer(kind: str) -> Rule:
    operands: dict[int, int | None] = {**_LAYER, **_SEVENTH[kind]}
    results = (2, 1, 1) if kind == "LSTM" else (2, 1)

    def rule(case: Case) -> Cut | str:
        if not any(case.axis(index) == axis for index, axis in operands.items()):
            return NOT_BATCH
        return case.cut(operands, (*results, 3, 3))

    return rule


def _layer_grad(kind: str) -> Rule:
    """The layer's eight operands, states, gates, the gradients of its results."""
    own: dict[int, int | None] = {**_LAYER, **_SEVENTH[kind]}
    rest: dict[int, int | None] = {8: 3, 9: 3, 10: 2, 11: 1, 12: 1}

    def rule(case: Case) -> Cut | str:
        operands = own | rest
        if not any(case.axis(index) == axis for index, axis in operands.items()):
            return NOT_BATCH
        places: list[Place] = []
        for wanted in case.integers("wanted"):
            axis = own.get(wanted)
            places.append(Combination.SUM if axis is None else axis)
        return case.cut(operands, places)

    return rule


def _linear_attention(case: Case) -> Cut | str:
    """A state, and tokens of five operands."""
    operands: dict[int, int | None] = {0: 0, **dict.fromkeys(range(1, 6), 1)}
    if not any(case.axis(index) == axis for index, axis in operands.items()):
        return NOT_BATCH
    return case.cut(operands, (1, 0))


def _linear_attention_grad(case: Case) -> Cut | str:
    """The same, and the gradients of the answers and of the last state."""
    operands: dict[int, int | None] = {0: 0, **dict.fromkeys(range(1, 7), 1), 7: 0}
    if not any(case.axis(index) == axis for index, axis in operands.items()):
        return NOT_BATCH
    return case.cut(operands, [min(index, 1) for index in case.integers("wanted")])


RULES: Final[dict[str, Rule]] = {
    **{f"{kind}Grad": _layer_grad(kind) for kind in _SEVENTH},
    **{kind: _layer(kind) for kind in _SEVENTH},
    "DynamicQuantizeLSTM": _layer("LSTM"),
    "LinearAttention": _linear_attention,
    "LinearAttentionGrad": _linear_attention_grad,
}
