"""Tokens per second beside onnxruntime and llama.cpp, on the same weights.

    python -m benchmarks.generation [--tokens N] [--rounds N] [--threads N] [--json FILE]

Llamas of three sizes with random weights (`samples.generate`) continue a prompt, with products in
float32 and with products of weights in four bits.  Of the latter, activations are float32, or the
model permits 8 bits (`accuracy_level`), which is what llama.cpp always takes.

popc keeps keys and values in its program, onnxruntime is given them with every call.  The engines
take turns.  popc and onnxruntime must choose the same tokens, unless activations are rounded: what
lies between two bytes becomes the other one for the last bit of a sum, and onnxruntime departs as
far from itself if its inputs change by a millionth.  llama.cpp, which computes parts in half
precision, chooses another token at times.  It takes part where llama-cpp-python and gguf are
installed: `pip install --group generation`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks.four_bits import in_four_bits
from benchmarks.llama_cpp_rival import llama_cpp_model, llama_cpp_steps, write_gguf
from benchmarks.rivals import THREADS
from popc.cli.report import format_table
from samples.generate import Sizes, Step, greedy, onnxruntime_steps, popc_steps, small_llama

_PROMPT: Final = 32
_IN_HALVES: Final = "llama.cpp"  # which computes parts in half precision
_REST: Final = 0.05  # seconds, until the threads of the engine before sleep

# What products are made of, and the accuracy level of those in four bits.
_PRODUCTS: Final = {
    "float32": None,
    "4 bits": 0,
    "4 bits, activations of 8": 4,
}
_SIZES: Final = (
    Sizes(),
    Sizes(words=8192, width=512, heads=8, key_heads=4, depth=64, inner=1408, layers=6),
    Sizes(words=16384, width=768, heads=12, key_heads=4, depth=64, inner=2048, layers=12),
)


def main() -> None:
    """Measure, and print a row for each size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generation")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    given = parser.parse_args()
    rows = [_row(sizes, given, products) for sizes in _SIZES for products in _PRODUCTS]
    print(format_table([list(rows[0]), *(list(map(str, row.values())) for row in rows)]))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2))


def _row(sizes: Sizes, given: argparse.Namespace, products: str) -> dict[str, Any]:
    """Tokens per second of each engine, medians of all rounds."""
    with tempfile.TemporaryDirectory() as folder:
        engines, weights = _engines(sizes, given, Path(folder), _PRODUCTS[products])
        prompt = np.random.default_rng(0).integers(0, sizes.words, (1, _PROMPT))
        rates: dict[str, list[float]] = {name: [] for name in engines}
        chosen: list[list[int]] = []
        for _ in range(given.rounds):
            for name, make in engines.items():
                tokens, rate = _generated(make(), prompt, given.tokens)
                rates[name].append(rate)
                if name != _IN_HALVES:
                    chosen.append(tokens)
    return {
        "weights": f"{weights / 1e6:.0f} M",
        "of products": products,
        **{name: round(median(found)) for name, found in rates.items()},
        "tokens": "the same" if chosen.count(chosen[0]) == len(chosen) else "differ",
    }


def _engines(
    sizes: Sizes, given: argparse.Namespace, folder: Path, accuracy: int | None
) -> tuple[dict[str, Callable[[], Step]], int]:
    """Functions that begin to generate, by engine; and the number of weights."""
    model = small_llama(sizes)
    weights = sum(int(np.prod(item.dims)) for item in model.graph.initializer)
    served = model if accuracy is None else in_four_bits(model, accuracy)
    caches = [item for item in model.graph.input if item.name.startswith("past_key_values.")]
    settings = argparse.Namespace(prompt=_PROMPT, threads=given.threads)
    engines: dict[str, Callable[[], Step]] = {
        "popc": partial(popc_steps, served, caches, _PROMPT + given.tokens, settings),
        "onnxruntime": partial(onnxruntime_steps, served, caches, given.threads),
    }
    if find_spec("llama_cpp") and find_spec("gguf"):
        file = folder / "llama.gguf"
        write_gguf(model, sizes, file, four_bits=accuracy is not None)
        engines[_IN_HALVES] = partial(llama_cpp_steps, llama_cpp_model(file), sizes, given.threads)
    return engines, weights


def _generated(step: Step, prompt: Any, count: int) -> tuple[list[int], float]:
    """The tokens behind a prompt, and how many there were per second behind the first."""
    time.sleep(_REST)
    steps = greedy(step, prompt, count)
    tokens = [next(steps)]
    start = time.perf_counter()
    tokens.extend(steps)
    return tokens, (count - 1) / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
