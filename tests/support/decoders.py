"""Decoders of one layer with caches of keys and values, in the forms in which they are exported."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
import onnx
from onnx import numpy_helper, parser

from popc_runtime.format import Array

__all__ = ["FORMS", "Tokens", "decoder"]

_DEPTH: Final = 16

_MODEL: Final = """<ir_version: 10, opset_import: ["": 23, "com.microsoft": 1]>
decoder (int64[B, S] input_ids, int64[B, T] attention_mask,
         float[B, 2, P, 16] past_0_key, float[B, 2, P, 16] past_0_value)
     => (float[B, S, 20] logits,
         float[B, 2, T, 16] present_0_key, float[B, 2, T, 16] present_0_value)
<int64[4] to_heads = {0, 0, -1, 16}, int64[3] to_rows = {0, 0, 64}, int64[1] first = {1},
 int64[1] second = {2}, int64[2] inner = {1, 2}, int64[1] one = {1}, int64 zero = {0},
 int64 step = {1}, float shown = {0}, float hidden = {-1e9}, float scale = {0.25}>
{
    x = Gather(words, input_ids)
    q = MatMul(x, wq)
    k = MatMul(x, wk)
    v = MatMul(x, wv)
    BODY
    logits = MatMul(y, wo)
}
"""

# Keys and values may lie in one cache.
_ONE_CACHE: Final = {
    f"float[B, 2, {rows}, 16] {name}_0_key, float[B, 2, {rows}, 16] {name}_0_value": (
        f"float[2, B, 4, {rows}, 16] {name}_0"
    )
    for name, rows in (("past", "P"), ("present", "T"))
}

# What each query may see: bool [B, 1, S, T].
_VISIBLE: Final = """
    all = Shape<start = 1, end = 2>(attention_mask)
    past = Shape<start = 2, end = 3>(past_0_key)
    keys = Squeeze(all)
    begin = Squeeze(past)
    places = Range(zero, keys, step)
    rows = Range(begin, keys, step)
    column = Unsqueeze(rows, first)
    earlier = LessOrEqual(places, column)
    flags = Cast<to = 9>(attention_mask)
    counted = Unsqueeze(flags, inner)
    visible = And(earlier, counted)
"""

FORMS: Final = {
    "written out": _VISIBLE
    + """
    q4 = Reshape(q, to_heads)
    k4 = Reshape(k, to_heads)
    v4 = Reshape(v, to_heads)
    qt = Transpose<perm = [0, 2, 1, 3]>(q4)
    kt = Transpose<perm = [0, 2, 1, 3]>(k4)
    vt = Transpose<perm = [0, 2, 1, 3]>(v4)
    present_0_key = Concat<axis = 2>(past_0_key, kt)
    present_0_value = Concat<axis = -2>(past_0_value, vt)
    k5 = Unsqueeze(present_0_key, second)
    v5 = Unsqueeze(present_0_value, second)
    batch = Shape<end = 1>(input_ids)
    two = Add(one, one)
    four = Add(two, two)
    depth = Mul(four, four)
    shape = Concat<axis = 0>(batch, two, two, all, depth)
    ks = Expand(k5, shape)
    vs = Expand(v5, shape)
    heads = Concat<axis = 0>(batch, four, all, depth)
    kr = Reshape(ks, heads)
    vr = Reshape(vs, heads)
    turned = Transpose<perm = [0, 1, 3, 2]>(kr)
    products = MatMul(qt, turned)
    scores = Mul(products, scale)
    bias = Where(visible, shown, hidden)
    biased = Add(scores, bias)
    weights = Softmax(biased)
    none = IsNaN(weights)
    safe = Where(none, shown, weights)
    read = MatMul(safe, vr)
    joined = Transpose<perm = [0, 2, 1, 3]>(read)
    y = Reshape(joined, to_rows)
""",
    "operator": _VISIBLE
    + """
    y, present_0_key, present_0_value =
        Attention<q_num_heads = 4, kv_num_heads = 2>(q, k, v, visible, past_0_key, past_0_value)
""",
    "heads of onnxruntime": """
    keys4 = Reshape(k, to_heads)
    values4 = Reshape(v, to_heads)
    keyst = Transpose<perm = [0, 2, 1, 3]>(keys4)
    valuest = Transpose<perm = [0, 2, 1, 3]>(values4)
    q2, rest = Split<axis = -1, num_outputs = 2>(q)
    flags = Cast<to = 6>(attention_mask)
    half, present_0_key, present_0_value =
        com.microsoft.MultiHeadAttention<num_heads = 2, unidirectional = 1>
            (q2, keyst, valuest, , flags, , past_0_key, past_0_value)
    y = Concat<axis = -1>(half, half)
""",
    "packed": """
    flags = Cast<to = 6>(attention_mask)
    y, present_0 =
        com.microsoft.Attention<num_heads = 4, unidirectional = 1>(x, wqkv, bqkv, flags, past_0)
""",
    "group query": """
    sums = ReduceSum<keepdims = 0>(attention_mask, first)
    last = Sub(sums, one)
    lengths = Cast<to = 6>(last)
    whole = Shape<start = 1, end = 2>(attention_mask)
    total = Cast<to = 6>(whole)
    y, present_0_key, present_0_value =
        com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2, do_rotary = 1>
            (q, k, v, past_0_key, past_0_value, lengths, total, cosines, sines)
""",
}


@cache
def _weights() -> dict[str, Array]:
    rng = np.random.default_rng(3)
    shapes = {
        "wqkv": (64, 192),
        "bqkv": (192,),
        "words": (20, 64),
        "wq": (64, 64),
        "wk": (64, 32),
        "wv": (64, 32),
        "wo": (64, 20),
    }
    found = {name: rng.standard_normal(shape) / 8 for name, shape in shapes.items()}
    angles = np.arange(32)[:, None] * 10.0 ** -np.arange(_DEPTH // 2)
    found |= {"cosines": np.cos(angles), "sines": np.sin(angles)}
    return {name: array.astype(np.float32) for name, array in found.items()}


def decoder(form: str) -> onnx.ModelProto:
    """A decoder of two key heads for four heads of queries; dimensions B, S, P and T are open."""
    text = _MODEL.replace("BODY", FORMS[form])
    for old, new in _ONE_CACHE.items() if form == "packed" else ():
        text = text.replace(old, new)
    model = parser.parse_model(text)
    read = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in _weights().items() if name in read
    )
    return model


class Tokens:
    """A sequence of tokens that onnxruntime and popc go through, step by step."""

    def __init__(self, model: onnx.ModelProto, batch: int) -> None:
        import onnxruntime

        self._session = onnxruntime.InferenceSession(model.SerializeToString())
        self._rng = np.random.default_rng(7)
        sizes = {"B": batch, "P": 0}
        self._past = {
            each.name: np.zeros([sizes.get(dim, dim) for dim in each.shape], np.float32)
            for each in self._session.get_inputs()
            if each.name.startswith("past")
        }
        self._mask = np.zeros((batch, 0), np.int64)

    def step(self, counted: Array) -> tuple[dict[str, Array], Array]:
        """New inputs, of which ``counted`` [B, S] tells the real ones, and onnxruntime's logits."""
        ids = self._rng.integers(0, 20, counted.shape)
        self._mask = np.concatenate([self._mask, counted], axis=1)
        feeds = {"input_ids": ids, "attention_mask": self._mask, **self._past}
        logits, *present = self._session.run(None, feeds)
        self._past = dict(zip(self._past, present, strict=True))
        return {"input_ids": ids, "attention_mask": counted}, logits
