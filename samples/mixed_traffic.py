"""One archive for the shapes that traffic brings: five batch sizes and three lengths.

Compiles a small text encoder for all fifteen shapes, answers requests of mixed shapes, and compares
every answer with that of an archive for its shape alone.  Batches in between (3, 7, 11) are run in
parts, and texts of lengths in between (20, 50, 100) are filled up under the mask; the compiler has
proven that neither changes a result.  Filled up, sums have more terms, which are zeros, so answers
may be rounded otherwise.  Exit code 1 if an answer differs by more.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper, parser

import popc
import popc_runtime

BATCHES = (1, 2, 4, 8, 16)
LENGTHS = (32, 64, 128)
OTHER_BATCHES = (3, 7, 11)
OTHER_LENGTHS = (20, 50, 100)
REQUESTS = 120
WORDS, WIDTH, CLASSES = 2000, 128, 10

ENCODER = """<ir_version: 9, opset_import: ["" : 17]>
encoder (int64[batch, length] ids, float[batch, length] mask) => (float[batch, 10] logits) {
    x = Gather (words, ids)
    q = MatMul (x, wq)
    k = MatMul (x, wk)
    v = MatMul (x, wv)
    kt = Transpose <perm = [0, 2, 1]> (k)
    s = MatMul (q, kt)
    scaled = Mul (s, scale)
    out = Sub (one, mask)
    lower = Mul (out, low)
    keys = Unsqueeze (lower, middle)
    masked = Add (scaled, keys)
    p = Softmax <axis = -1> (masked)
    a = MatMul (p, v)
    r = Add (x, a)
    n = LayerNormalization <axis = -1> (r, gamma, beta)
    h = MatMul (n, w1)
    g = Relu (h)
    o = MatMul (g, w2)
    shown = Unsqueeze (mask, last)
    counted = Mul (o, shown)
    sum = ReduceSum <keepdims = 0> (counted, middle)
    words_of = ReduceSum <keepdims = 1> (mask, middle)
    m = Div (sum, words_of)
    logits = MatMul (m, wc)
}"""


_AXES = {"middle": np.array([1]), "last": np.array([2])}


def encoder() -> onnx.ModelProto:
    """The model, with random weights."""
    model = parser.parse_model(ENCODER)
    draw = np.random.default_rng(0)
    shapes = {
        "words": (WORDS, WIDTH),
        **dict.fromkeys(("wq", "wk", "wv"), (WIDTH, WIDTH)),
        "w1": (WIDTH, 4 * WIDTH),
        "w2": (4 * WIDTH, WIDTH),
        "wc": (WIDTH, CLASSES),
    }
    weights = {
        name: draw.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(shape[0]))
        for name, shape in shapes.items()
    }
    weights |= {
        "gamma": np.ones(WIDTH, np.float32),
        "beta": np.zeros(WIDTH, np.float32),
        "scale": np.asarray(WIDTH**-0.5, np.float32),
        "one": np.asarray(1, np.float32),
        "low": np.asarray(-1e9, np.float32),
    }
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in {**weights, **_AXES}.items()
    )
    return model


def single_archives(
    model: onnx.ModelProto,
) -> tuple[Mapping[tuple[int, int], popc_runtime.Executable], int]:
    """An executable for each shape alone, and the bytes of the largest archive."""
    found: dict[tuple[int, int], popc_runtime.Executable] = {}
    largest = 0
    for batch in (*BATCHES, *OTHER_BATCHES):
        for length in (*LENGTHS, *OTHER_LENGTHS):
            archive = popc.compile(model, dims={"batch": batch, "length": length})
            largest = max(largest, len(archive.to_bytes()))
            found[batch, length] = archive.load()
    return found, largest


def main() -> int:
    """Compile, answer, compare."""
    model = encoder()
    together = popc.compile(
        model,
        dims={"batch": BATCHES, "length": LENGTHS},
        split=["batch"],
        pad={"length": {"mask": 0}},
    )
    alone, largest = single_archives(model)
    size = len(together.to_bytes())
    print(f"compiled  {len(together.manifest.variants) + 1} programs into {size:,} bytes")
    print(f"          {size / largest:.3f} times the archive of one shape ({largest:,} bytes)")
    memory = together.manifest.memory
    print(f"memory    arena {memory['arena_bytes']:,} bytes, that of the largest program")
    executable = together.load()
    draw = np.random.default_rng(1)
    counts: Counter[str] = Counter()
    differing = 0
    rounded = 0.0
    for _ in range(REQUESTS):
        batch = int(draw.choice((*BATCHES, *OTHER_BATCHES)))
        length = int(draw.choice((*LENGTHS, *OTHER_LENGTHS)))
        ids, mask = draw.integers(0, WORDS, (batch, length)), np.ones((batch, length), np.float32)
        answer: NDArray[np.float32] = executable(ids, mask)["logits"]
        expected = alone[batch, length](ids, mask)["logits"]
        if length in OTHER_LENGTHS:
            rounded = max(rounded, float(np.abs(answer - expected).max()))
            differing += not np.allclose(answer, expected, rtol=1e-4, atol=1e-5)
        else:
            differing += not np.array_equal(answer, expected)
        ways = ["in parts"] * (batch in OTHER_BATCHES) + ["filled up"] * (length in OTHER_LENGTHS)
        counts[" and ".join(ways) or "as they are"] += 1
    told = ", ".join(f"{count} {how}" for how, count in sorted(counts.items()))
    print(f"answered  {REQUESTS} requests of mixed shapes: {told}")
    print(f"compared  {differing} of {REQUESTS} answers differ from those of single-shape archives")
    print(f"          all but those filled up are equal to the bit; these differ by {rounded:.1e}")
    try:
        executable(np.zeros((2, 200), np.int64), np.ones((2, 200), np.float32))
    except popc.PopcError as error:
        print(f"refused   {error.message}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
