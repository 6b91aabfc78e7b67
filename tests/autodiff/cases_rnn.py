"""Gradient cases of recurrent layers: W [D, G * H, I], R [D, G * H, H], width 3, hidden size 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from popc_runtime.format import Array
from tests.support.gradients import Case

__all__ = ["CASES"]

_GATES: Final = {"RNN": 1, "GRU": 3, "LSTM": 4}
_WIDTH: Final = 3
_HIDDEN: Final = 2
_LENGTHS: Final = (4, 1, 3)
_OUTPUTS: Final = {"RNN": (0, 1), "GRU": (0, 1), "LSTM": (0, 1, 2)}
# PyTorch's gates in terms of ONNX's
_TORCH_ORDER: Final = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}


def _operands(
    op_type: str,
    *,
    directions: int = 1,
    lengths: Sequence[int] | None = None,
    bare: bool = False,
    peepholes: bool = False,
    steps: int = 4,
    batch: int = 3,
) -> list[Array | None]:
    rng = np.random.default_rng(3)

    def values(*shape: int) -> Array:
        return rng.uniform(-0.8, 0.8, shape)

    rows = _GATES[op_type] * _HIDDEN
    operands: list[Array | None] = [
        values(steps, batch, _WIDTH),
        values(directions, rows, _WIDTH),
        values(directions, rows, _HIDDEN),
    ]
    if not bare:
        operands += [
            values(directions, 2 * rows),
            None if lengths is None else np.array(lengths, np.int32),
            values(directions, batch, _HIDDEN),
        ]
    if not bare and op_type == "LSTM":
        operands.append(values(directions, batch, _HIDDEN))
    if peepholes:
        operands.append(values(directions, 3 * _HIDDEN))
    return operands


def _case(
    op_type: str,
    name: str,
    attributes: dict[str, Any] | None = None,
    *,
    weighted: tuple[int, ...] | None = None,
    has_torch: bool = True,
    frozen: tuple[int, ...] = (),
    **operands: Any,
) -> Case:
    """A case; ``direction`` follows from ``directions`` unless it is given."""
    given = {"hidden_size": _HIDDEN, **(attributes or {})}
    if op_type == "GRU":
        given.setdefault("linear_before_reset", 1)
    bidirectional = operands.get("directions") == 2
    if bidirectional:
        given["direction"] = "bidirectional"
    chosen = _OUTPUTS[op_type] if weighted is None else weighted
    return Case(
        op_type,
        _operands(op_type, **operands),
        given,
        name=name,
        outputs=len(_OUTPUTS[op_type]),
        weighted=chosen,
        frozen=frozen,
        torch=_torch(op_type, chosen, bidirectional=bidirectional) if has_torch else None,
    )


def _torch(op_type: str, weighted: tuple[int, ...], *, bidirectional: bool) -> Any:
    """PyTorch's layer, with ONNX's operands and results."""

    def function(
        x: Any, w: Any, r: Any, b: Any = None, lens: Any = None, h: Any = None, c: Any = None
    ) -> Any:
        import torch
        from torch.nn.utils import rnn

        make = getattr(torch.nn, op_type)
        module = make(
            _WIDTH, _HIDDEN, bias=b is not None, bidirectional=bidirectional, dtype=torch.float64
        )
        parameters: dict[str, Any] = {}
        for index, suffix in enumerate(("", "_reverse")[: 1 + bidirectional]):
            parameters[f"weight_ih_l0{suffix}"] = _reordered(op_type, w[index])
            parameters[f"weight_hh_l0{suffix}"] = _reordered(op_type, r[index])
            if b is not None:
                parameters[f"bias_ih_l0{suffix}"], parameters[f"bias_hh_l0{suffix}"] = (
                    _reordered(op_type, half) for half in b[index].chunk(2)
                )
        given = x
        if lens is not None:
            given = rnn.pack_padded_sequence(x, lens.long(), enforce_sorted=False)
        state = (h, c) if c is not None else h
        y, last = torch.func.functional_call(module, parameters, (given, state))
        if lens is not None:
            y, _ = rnn.pad_packed_sequence(y, total_length=len(x))
        directions = 1 + bidirectional
        y = y.reshape(*x.shape[:2], directions, _HIDDEN).permute(0, 2, 1, 3)
        results = (y, *last) if op_type == "LSTM" else (y, last)
        return tuple(results[index] for index in weighted)

    return function


def _reordered(op_type: str, rows: Any) -> Any:
    """[G * H, ...] with the gates in PyTorch's order."""
    import torch

    gates = rows.chunk(_GATES[op_type])
    return torch.cat([gates[index] for index in _TORCH_ORDER[op_type]])


_ACTIVATIONS: Final = {
    "affine": ("Affine", [0.7], [0.4]),
    "elu": ("Elu", [0.7], []),
    "hard_sigmoid": ("HardSigmoid", [0.3], [0.4]),
    "leaky_relu": ("LeakyRelu", [0.3], []),
    "relu": ("Relu", [], []),
    "scaled_tanh": ("ScaledTanh", [0.7], [0.4]),
    "softplus": ("Softplus", [], []),
    "softsign": ("Softsign", [], []),
    "thresholded_relu": ("ThresholdedRelu", [0.2], []),
}


def _with_activation(name: str) -> list[Case]:
    function, alpha, beta = _ACTIVATIONS[name]
    parameters = {"activation_alpha": alpha, "activation_beta": beta}
    given: dict[str, Any] = {key: values for key, values in parameters.items() if values}
    return [
        _case(op_type, f"{name}_{index}", {"activations": functions, **given}, has_torch=False)
        for op_type, functions in (
            ("RNN", [function]),
            ("GRU", ["Sigmoid", function]),
            ("LSTM", [function, "Tanh", "Sigmoid"]),
            ("LSTM", ["Sigmoid", function, function]),
        )
        for index in [functions.index(function)]
    ]


def _graphcore(op_type: str, name: str, *, biases: int = 1, **attributes: Any) -> Case:
    """A layer of ai.graphcore with all operands."""
    rng = np.random.default_rng(5)
    gates, steps, batch = 4 if op_type == "LSTM" else 3, 4, 3
    state = (2, batch, _HIDDEN) if op_type == "LSTM" else (batch, _HIDDEN)
    operands: list[Array | None] = [
        rng.uniform(-0.8, 0.8, shape)
        for shape in (
            (steps, batch, _WIDTH),
            (gates, _WIDTH + _HIDDEN, _HIDDEN),
            (gates, _HIDDEN) if biases == 1 else (gates, 2, _HIDDEN),
            state,
        )
    ]
    operands.append(np.array(_LENGTHS, np.int32))
    if op_type == "AUGRU":
        operands.append(rng.uniform(0.1, 0.9, (batch, steps)))
    outputs = len(_OUTPUTS[op_type]) if op_type in _OUTPUTS else 2
    is_last = attributes.get("output_full_sequence") == 0  # LSTM's third output is the first then
    is_plain = not attributes.keys() - {"reset_after"}
    in_torch = is_plain and (op_type == "LSTM" or (op_type == "GRU" and biases == 2))
    return Case(
        op_type,
        operands,
        attributes,
        name=f"graphcore_{name}",
        domain="ai.graphcore",
        outputs=outputs,
        weighted=(0, 1) if is_last else tuple(range(outputs)),
        torch=_graphcore_torch(op_type) if in_torch else None,
    )


def _graphcore_torch(op_type: str) -> Any:
    order = (1, 3, 0, 2) if op_type == "LSTM" else (0, 1, 2)  # ONNX's gates in PopART's terms
    layer = _torch(op_type, _OUTPUTS[op_type], bidirectional=False)

    def function(x: Any, weights: Any, biases: Any, initial: Any, lengths: Any) -> Any:
        import torch

        turned = weights[list(order)].transpose(1, 2).flatten(0, 1)
        both = biases[list(order)].reshape(len(order), -1, _HIDDEN).transpose(0, 1).flatten()
        missing = torch.zeros(2 * len(turned) - len(both), dtype=torch.float64)
        operands = [
            x,
            turned[None, :, :_WIDTH],
            turned[None, :, _WIDTH:],
            torch.cat([both, missing])[None],
            lengths,
        ]
        states = initial.chunk(2) if op_type == "LSTM" else [initial[None]]
        y, h, *c = layer(*operands, *states)
        return (y[:, 0], c[0][0], h[0]) if c else (y[:, 0], h[0])

    return function


def _linear(name: str, *, decays: int, beta: bool, weighted: tuple[int, ...] = (0, 1)) -> Case:
    """Linear attention of 3 tokens, 2 samples and heads, 2 queries of a head, keys of 3 numbers."""
    rng = np.random.default_rng(5)
    outer = 3, 2, 2
    operands: list[Array | None] = [
        rng.uniform(-1, 1, shape)
        for shape in ((2, 2, 3, 4), (*outer, 2, 3), (*outer, 1, 3), (*outer, 1, 4))
    ]
    operands += [
        rng.uniform(0.2, 0.9, (*outer, decays, 1)) if decays else None,
        rng.uniform(0.2, 0.9, (*outer, 1, 1)) if beta else None,
    ]
    while operands[-1] is None:
        operands.pop()
    return Case("LinearAttention", operands, name=name, ir=True, outputs=2, weighted=weighted)


CASES: Final[list[Case]] = [
    *(
        case
        for op_type in _GATES
        for case in (
            _case(op_type, "full"),
            _case(op_type, "bare", bare=True),
            _case(op_type, "lengths", lengths=_LENGTHS),
            _case(op_type, "reverse", {"direction": "reverse"}, has_torch=False),
            _case(
                op_type,
                "reverse_lengths",
                {"direction": "reverse"},
                lengths=_LENGTHS,
                has_torch=False,
            ),
            _case(op_type, "both", directions=2),
            _case(op_type, "both_lengths", directions=2, lengths=_LENGTHS),
            _case(op_type, "result", weighted=(0,)),
            _case(op_type, "state", weighted=(1,)),
            _case(op_type, "sample", batch=1),
            _case(op_type, "clip", {"clip": 0.4}, has_torch=False),
            _case(op_type, "weights", frozen=(0, 3, 5, 6)),
            _case(op_type, "input", frozen=(1, 2, 3, 5, 6), directions=2),
        )
    ),
    _case("GRU", "early", {"linear_before_reset": 0}, has_torch=False),
    _case(
        "GRU",
        "early_lengths",
        {"linear_before_reset": 0},
        lengths=_LENGTHS,
        directions=2,
        has_torch=False,
    ),
    _case("LSTM", "cell", weighted=(2,)),
    _case("LSTM", "peepholes", peepholes=True, has_torch=False),
    _case("LSTM", "peepholes_clip", {"clip": 0.4}, peepholes=True, has_torch=False),
    _case(
        "LSTM",
        "peepholes_lengths",
        peepholes=True,
        lengths=_LENGTHS,
        directions=2,
        has_torch=False,
    ),
    _case("LSTM", "input_forget", {"input_forget": 1}, peepholes=True, has_torch=False),
    _case(
        "GRU",
        "functions",
        {"activations": ["HardSigmoid", "Softsign", "Sigmoid", "Elu"]},
        directions=2,
        lengths=_LENGTHS,
        has_torch=False,
    ),
    *(case for name in _ACTIVATIONS for case in _with_activation(name)),
    _linear("plain", decays=0, beta=False),
    _linear("gated", decays=1, beta=False, weighted=(0,)),
    _linear("delta", decays=0, beta=True),
    _linear("gated_delta", decays=1, beta=True),
    _linear("by_key", decays=3, beta=True, weighted=(1,)),
    _graphcore("LSTM", "plain"),
    _graphcore("LSTM", "two_biases", biases=2),
    _graphcore("LSTM", "last", output_full_sequence=0),
    _graphcore("LSTM", "softmax", activation="softmax", recurrent_activation="hard_sigmoid"),
    _graphcore("GRU", "before"),
    _graphcore("GRU", "after", biases=2, reset_after=1),
    _graphcore("GRU", "softmax", activation="linear", recurrent_activation="softmax"),
    _graphcore("DynamicGRU", "after", reset_after=1),
    _graphcore("AUGRU", "before"),
    _graphcore("AUGRU", "after", biases=2, reset_after=1),
]
