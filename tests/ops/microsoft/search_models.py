"""Decoders for searches, small ones with random weights: like GPT-2, and behind an encoder."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

from popc_runtime.format import Array

__all__ = ["VOCABULARY", "gpt", "translator"]

VOCABULARY: Final = 24
_WIDTH, _HEADS, _LAYERS, _POSITIONS = 16, 2, 2, 64
_DEPTH: Final = _WIDTH // _HEADS
_INT32, _FLOAT = onnx.TensorProto.INT32, onnx.TensorProto.FLOAT


class _Weights:
    """Random weights by name, and constants that all decoders need."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._arrays: dict[str, Array] = {
            "split": np.array([0, 0, _HEADS, _DEPTH]),
            "merge": np.array([0, 0, _WIDTH]),
            "scale": np.float32(_DEPTH**-0.5),  # type: ignore[dict-item]
            "one": np.float32(1),  # type: ignore[dict-item]
            "low": np.float32(-1e4),  # type: ignore[dict-item]
            "zeroth": np.array([0]),
            "first": np.array([1]),
            "middle": np.array([1, 2]),
            "number0": np.int64(0),  # type: ignore[dict-item]
            "number1": np.int64(1),  # type: ignore[dict-item]
        }

    def add(self, name: str, *shape: int, size: float = 1.0) -> str:
        """A weight of normal numbers of that size."""
        drawn = self._random.normal(size=shape) * size
        self._arrays[name] = drawn.astype(np.float32)
        return name

    def graph(self, text: str, inputs: list[Any], outputs: list[Any]) -> onnx.GraphProto:
        """A graph of nodes that are written as ``text``."""
        nodes = parser.parse_graph(f"g () => () {{ {text} }}").node
        used = {name for node in nodes for name in node.input}
        kept = [
            numpy_helper.from_array(np.asarray(array), name)
            for name, array in self._arrays.items()
            if name in used
        ]
        return helper.make_graph(nodes, "graph", inputs, outputs, kept)


def _info(name: str, *shape: int | str, type_: int = _FLOAT) -> Any:
    return helper.make_tensor_value_info(name, type_, shape)


def _heads(x: str, weight: str, name: str) -> str:
    """Lines: a product, with heads in front of rows."""
    return f"""
        {name}_flat = MatMul ({x}, {weight})
        {name}_split = Reshape ({name}_flat, split)
        {name} = Transpose <perm = [0, 2, 1, 3]> ({name}_split)
    """


def _attended(q: str, k: str, v: str, bias: str, name: str) -> str:
    """Lines: what attention gives, with heads behind rows."""
    return f"""
        {name}_turned = Transpose <perm = [0, 1, 3, 2]> ({k})
        {name}_products = MatMul ({q}, {name}_turned)
        {name}_scaled = Mul ({name}_products, scale)
        {name}_scores = Add ({name}_scaled, {bias})
        {name}_shares = Softmax <axis = -1> ({name}_scores)
        {name}_mixed = MatMul ({name}_shares, {v})
        {name}_rows = Transpose <perm = [0, 2, 1, 3]> ({name}_mixed)
        {name} = Reshape ({name}_rows, merge)
    """


def _hidden(mask: str, name: str) -> str:
    """Lines: what is added to scores, of a mask [N, keys] of int32."""
    return f"""
        {name}_floats = Cast <to = 1> ({mask})
        {name}_rest = Sub (one, {name}_floats)
        {name}_low = Mul ({name}_rest, low)
        {name} = Unsqueeze ({name}_low, middle)
    """


def gpt(seed: int, *, is_fused: bool = False) -> onnx.GraphProto:
    """Two layers of attention on (tokens, positions, mask, caches), as GPT-2 is exported.

    ``is_fused``: each layer is an operator of onnxruntime, as its optimiser has it.
    """
    weights = _Weights(seed)
    weights.add("words", VOCABULARY, _WIDTH)
    weights.add("places", _POSITIONS, _WIDTH)
    weights.add("head", _WIDTH, VOCABULARY)
    text = f"""
        word = Gather (words, input_ids)
        place = Gather (places, position_ids)
        hidden0 = Add (word, place)
        {_hidden("attention_mask", "hidden")}
        past_shape = Shape <start = 3, end = 4> (past_0)
        rows_shape = Shape <start = 1, end = 2> (input_ids)
        past = Squeeze (past_shape)
        rows = Squeeze (rows_shape)
        total = Add (past, rows)
        queries = Range (past, total, number1)
        keys = Range (number0, total, number1)
        column = Unsqueeze (queries, first)
        later = Greater (keys, column)
        later_floats = Cast <to = 1> (later)
        later_low = Mul (later_floats, low)
        bias = Add (hidden, later_low)
    """
    for layer in range(_LAYERS):
        text += (_fused_layer if is_fused else _layer)(weights, layer)
    text += f"logits = MatMul (hidden{_LAYERS}, head)"
    caches = range(_LAYERS)
    inputs = [
        *(_info(name, "N", "T", type_=_INT32) for name in ("input_ids", "position_ids")),
        _info("attention_mask", "N", "A", type_=_INT32),
        *(_info(f"past_{layer}", 2, "N", _HEADS, "P", _DEPTH) for layer in caches),
    ]
    outputs = [
        _info("logits", "N", "T", VOCABULARY),
        *(_info(f"present_{layer}", 2, "N", _HEADS, "A", _DEPTH) for layer in caches),
    ]
    return weights.graph(text, inputs, outputs)


def translator(
    seed: int, *, starts: bool, takes_sound: bool = False
) -> tuple[onnx.GraphProto, onnx.GraphProto]:
    """An encoder and a decoder, as T5 is exported.

    Args:
        seed: Of the weights.
        starts: Whether the encoder runs the first step of the decoder.
        takes_sound: Whether it takes features [N, 16, S] and no mask, as that of Whisper does.
    """
    weights = _Weights(seed)
    weights.add("nothing", 1, size=0.0)
    for name in ("words", "answers"):
        weights.add(name, VOCABULARY, _WIDTH)
    for name in ("wq", "wk", "wv", "wc", "wck", "wcv"):
        weights.add(name, _WIDTH, _WIDTH, size=0.5)
    weights.add("head", _WIDTH, VOCABULARY)
    tokens, state = _feeds(takes_sound=takes_sound)
    own, cross = _caches("self", "A"), _caches("cross", "S")
    scores = _info("logits", "N", 1, VOCABULARY)
    read = "Transpose <perm = [0, 2, 1]>" if takes_sound else "Gather"
    operands = "encoder_input_ids" if takes_sound else "words, encoder_input_ids"
    encoder = f"""
        encoder_hidden_states = {read} ({operands})
        {_heads("encoder_hidden_states", "wck", "present_key_cross_0")}
        {_heads("encoder_hidden_states", "wcv", "present_value_cross_0")}
    """
    encoded = cross
    if starts:
        encoder += _step("decoder_input_ids", _ALONE, "present", has_mask=not takes_sound)
        tokens = [*tokens, _info("decoder_input_ids", "N", 1, type_=_INT32)]
        encoded = [scores, state, *own, *cross]
    feeds = [_info("input_ids", "N", 1, type_=_INT32), *([] if takes_sound else tokens[1:2])]
    pasts = [*_caches("self", "P", "past"), *_caches("cross", "S", "past")]
    decoder = weights.graph(
        _step("input_ids", _JOINED, "past", has_mask=not takes_sound),
        [*feeds, *([state] if starts and not takes_sound else []), *pasts],
        [scores, *own],
    )
    return weights.graph(encoder, tokens, encoded), decoder


def _layer(weights: _Weights, layer: int) -> str:
    """Lines: attention on a cache."""
    text = ""
    for part in "qkv":
        weights.add(f"w{part}{layer}", _WIDTH, _WIDTH, size=0.5)
        text += _heads(f"hidden{layer}", f"w{part}{layer}", f"{part}{layer}")
    for part, place in (("k", 0), ("v", 1)):
        text += f"""
            past_{part}{layer} = Gather <axis = 0> (past_{layer}, number{place})
            all_{part}{layer} = Concat <axis = 2> (past_{part}{layer}, {part}{layer})
            kept_{part}{layer} = Unsqueeze (all_{part}{layer}, zeroth)
        """
    attended = _attended(f"q{layer}", f"all_k{layer}", f"all_v{layer}", "bias", f"a{layer}")
    return f"""
        {text}
        present_{layer} = Concat <axis = 0> (kept_k{layer}, kept_v{layer})
        {attended}
        hidden{layer + 1} = Add (hidden{layer}, a{layer})
    """


def _fused_layer(weights: _Weights, layer: int) -> str:
    """Lines: the same as one operator."""
    weights.add(f"w{layer}", _WIDTH, 3 * _WIDTH, size=0.5)
    weights.add(f"b{layer}", 3 * _WIDTH)
    operands = f"hidden{layer}, w{layer}, b{layer}, attention_mask, past_{layer}"
    attributes = f"num_heads = {_HEADS}, unidirectional = 1"
    return f"""
        a{layer}, present_{layer} = com.microsoft.Attention <{attributes}> ({operands})
        hidden{layer + 1} = Add (hidden{layer}, a{layer})
    """


def _feeds(*, takes_sound: bool) -> tuple[list[Any], Any]:
    """What an encoder takes, and its states."""
    state = _info("encoder_hidden_states", "N", "S", _WIDTH)
    if takes_sound:
        return [_info("encoder_input_ids", "N", _WIDTH, "S")], state
    names = ("encoder_input_ids", "encoder_attention_mask")
    return [_info(name, "N", "S", type_=_INT32) for name in names], state


def _caches(kind: str, rows: str, time: str = "present") -> list[Any]:
    return [
        _info(f"{time}_{part}_{kind}_0", "N", _HEADS, rows, _DEPTH) for part in ("key", "value")
    ]


_ALONE: Final = """
    present_key_self_0 = Identity (k)
    present_value_self_0 = Identity (v)
"""
_JOINED: Final = """
    present_key_self_0 = Concat <axis = 2> (past_key_self_0, k)
    present_value_self_0 = Concat <axis = 2> (past_value_self_0, v)
"""


def _step(ids: str, join: str, time: str, *, has_mask: bool) -> str:
    """Lines: a layer of a decoder on tokens, with what the encoder gave."""
    mask = (
        _hidden("encoder_attention_mask", "hidden") if has_mask else "hidden = Identity (nothing)"
    )
    return f"""
        x = Gather (answers, {ids})
        {_heads("x", "wq", "q")}
        {_heads("x", "wk", "k")}
        {_heads("x", "wv", "v")}
        {join}
        {_attended("q", "present_key_self_0", "present_value_self_0", "nothing", "a")}
        y = Add (x, a)
        {_heads("y", "wc", "c")}
        {mask}
        {_attended("c", f"{time}_key_cross_0", f"{time}_value_cross_0", "hidden", "b")}
        z = Add (y, b)
        logits = MatMul (z, head)
    """
