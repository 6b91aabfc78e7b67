"""Generate text with a decoder whose program keeps its caches, beside onnxruntime.

    python samples/generate.py [MODEL.onnx] [--tokens 64] [--prompt 32]

MODEL is a decoder that transformers or Optimum has exported (past_key_values in, present out).
Without one, this makes a small Llama with random weights. Both generate the same tokens from a
random prompt: popc.load keeps keys and values in the program, onnxruntime is given them in every
call. What is printed is the time of the prompt, and tokens per second behind it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import popc


@dataclass(frozen=True)
class Sizes:
    """Sizes of a Llama: ``depth`` of a head, ``inner`` of what lies between its layers."""

    words: int = 4096
    width: int = 256
    heads: int = 8
    key_heads: int = 4
    depth: int = 32
    inner: int = 704
    layers: int = 4
    longest: int = 1024


def main() -> int:
    """Generate with both, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    model = small_llama() if given.model is None else onnx.load(given.model)
    caches = [each for each in model.graph.input if each.name.startswith("past_key_values.")]
    if not caches:
        parser.error("the model has no inputs past_key_values.*: export it with its caches")
    words = _words(model)
    prompt = np.random.default_rng(0).integers(0, words, (1, given.prompt))
    runners: dict[str, Callable[[], Step]] = {
        "popc": lambda: popc_steps(model, caches, given.prompt + given.tokens, given),
        "onnxruntime": lambda: onnxruntime_steps(model, caches, given.threads),
    }
    found: dict[str, list[int]] = {}
    for name, made in runners.items():
        try:
            step = made()
        except ImportError:
            print(f"{name}: not installed")
            continue
        times = [time.perf_counter()]
        found[name] = []
        for token in greedy(step, prompt, given.tokens):
            found[name].append(token)
            times.append(time.perf_counter())
        rate = (given.tokens - 1) / (times[-1] - times[1]) if given.tokens > 1 else 0.0
        first = 1000 * (times[1] - times[0])
        print(f"{name}: prompt of {given.prompt} in {first:.1f} ms, then {rate:.1f} tokens/s")
    same = all(tokens == found["popc"] for tokens in found.values())
    print("the tokens are the same" if same else "the tokens differ")
    return 0 if same else 1


# Gives the logits [1, S, words] of new tokens [1, S], behind all that it was given before.
Step = Callable[[Any], Any]


def greedy(step: Step, prompt: Any, count: int) -> Iterator[int]:
    """The likeliest token behind all others, again and again."""
    tokens = prompt
    for _ in range(count):
        best = int(step(tokens)[0, -1].argmax())
        yield best
        tokens = np.array([[best]])


def popc_steps(model: onnx.ModelProto, caches: list[Any], most: int, given: Any) -> Step:
    """Steps of one program for the prompt and one for single tokens, on the same caches."""
    batch, length = (dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim)
    program = popc.load(
        model,
        dims={batch: 1, length: sorted({1, given.prompt})},
        options={"bounds": {caches[0].name: most}},
        threads=given.threads,
    )
    program.warmup()
    names = {spec.name for spec in program.inputs}
    before = 0

    def step(tokens: Any) -> Any:
        nonlocal before
        count = tokens.shape[1]
        feeds = {
            "input_ids": tokens,
            "attention_mask": np.ones((1, count), np.int64),  # of new tokens alone
            "position_ids": np.arange(before, before + count)[None],
        }
        before += count
        return program.run({name: each for name, each in feeds.items() if name in names})["logits"]

    return step


def onnxruntime_steps(model: onnx.ModelProto, caches: list[Any], threads: int) -> Step:
    """Steps that take the present of the step before as their past."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    inputs = [each.name for each in session.get_inputs()]
    shapes = ([each.dim_value for each in c.type.tensor_type.shape.dim] for c in caches)
    past = {
        each.name: np.zeros((1, heads, 0, depth), np.float32)
        for each, (_, heads, _, depth) in zip(caches, shapes, strict=True)
    }
    wanted = ["logits", *(name.replace("past_key_values", "present") for name in past)]
    before = 0

    def step(tokens: Any) -> Any:
        nonlocal before
        count = tokens.shape[1]
        feeds = {
            "input_ids": tokens,
            "attention_mask": np.ones((1, before + count), np.int64),
            "position_ids": np.arange(before, before + count)[None],
            **past,
        }
        before += count
        chosen = {name: each for name, each in feeds.items() if name in inputs}
        logits, *present = session.run(wanted, chosen)
        past.update(zip(past, present, strict=True))
        return logits

    return step


def _words(model: onnx.ModelProto) -> int:
    """The number of words that a model knows."""
    logits = next(each for each in model.graph.output if each.name == "logits")
    return logits.type.tensor_type.shape.dim[-1].dim_value or Sizes().words


# -- a model ---------------------------------------------------------------------------------------


class _Builder:
    """Nodes and weights of a model, as they are added."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Any] = {}
        self._rng = np.random.default_rng(1)

    def add(self, op: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        name = out or f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def product(self, x: str, name: str, rows: int, columns: int, out: str = "") -> str:
        return self.add("MatMul", x, self.weight(name, rows, columns), out=out)

    def weight(self, name: str, rows: int, columns: int) -> str:
        drawn = self._rng.standard_normal((rows, columns)) / np.sqrt(rows)
        self.weights[name] = drawn.astype(np.float32)
        return name

    def norm(self, x: str, name: str) -> str:
        self.weights[name] = np.ones(self.sizes.width, np.float32)
        return self.add("RMSNormalization", x, name, axis=-1)


def small_llama(sizes: Sizes | None = None) -> onnx.ModelProto:
    """A Llama with random weights, with the names that transformers gives."""
    sizes = sizes or Sizes()
    made = _Builder(sizes)
    half = sizes.depth // 2
    angles = np.arange(sizes.longest)[:, None] * 10000.0 ** (-np.arange(half) / half)
    for name, function in (("cos", np.cos), ("sin", np.sin)):
        made.weights[name] = function(angles).astype(np.float32)
    visible = _visible(made)
    x = made.add("Gather", made.weight("words", sizes.words, sizes.width), "input_ids")
    for layer in range(sizes.layers):
        x = made.add("Add", x, _attention(made, made.norm(x, f"norm.{layer}"), visible, layer))
        x = made.add("Add", x, _inner(made, made.norm(x, f"inner.{layer}"), layer))
    made.product(made.norm(x, "norm"), "head", sizes.width, sizes.words, out="logits")
    return _model(made)


def _attention(made: _Builder, x: str, visible: str, layer: int) -> str:
    sizes = made.sizes
    q, k, v = (
        made.product(x, f"{name}.{layer}", sizes.width, heads * sizes.depth)
        for name, heads in (("q", sizes.heads), ("k", sizes.key_heads), ("v", sizes.key_heads))
    )
    q, k = (
        made.add("RotaryEmbedding", each, "cos", "sin", "position_ids", num_heads=heads)
        for each, heads in ((q, sizes.heads), (k, sizes.key_heads))
    )
    parts = (f"{layer}.key", f"{layer}.value")
    past = [f"past_key_values.{part}" for part in parts]
    outputs = [f"read.{layer}", *(f"present.{part}" for part in parts)]
    node = helper.make_node("Attention", [q, k, v, visible, *past], outputs)
    for name, heads in (("q_num_heads", sizes.heads), ("kv_num_heads", sizes.key_heads)):
        node.attribute.append(helper.make_attribute(name, heads))
    made.nodes.append(node)
    return made.product(outputs[0], f"o.{layer}", sizes.heads * sizes.depth, sizes.width)


def _inner(made: _Builder, x: str, layer: int) -> str:
    width, inner = made.sizes.width, made.sizes.inner
    gate = made.product(x, f"gate.{layer}", width, inner)
    gate = made.add("Mul", gate, made.add("Sigmoid", gate))
    both = made.add("Mul", gate, made.product(x, f"up.{layer}", width, inner))
    return made.product(both, f"down.{layer}", inner, width)


def _visible(made: _Builder) -> str:
    """Whether a query sees a key, [B, 1, S, T]: it counts, and is not behind the query."""
    made.weights |= {"zero": np.array(0), "step": np.array(1)}
    made.weights |= {"one": np.array([1]), "inner": np.array([1, 2])}
    add = made.add
    keys = add("Squeeze", add("Shape", "attention_mask", start=1, end=2))
    begin = add("Squeeze", add("Shape", "past_key_values.0.key", start=2, end=3))
    rows = add("Unsqueeze", add("Range", begin, keys, "step"), "one")
    earlier = add("LessOrEqual", add("Range", "zero", keys, "step"), rows)
    counted = add("Unsqueeze", add("Cast", "attention_mask", to=TensorProto.BOOL), "inner")
    return add("And", earlier, counted)


def _model(made: _Builder) -> onnx.ModelProto:
    sizes = made.sizes
    new, total = "sequence_length", "past_sequence_length + sequence_length"

    def tensors(when: str, length: str) -> list[onnx.ValueInfoProto]:
        shape: list[str | int | None] = ["batch_size", sizes.key_heads, length, sizes.depth]
        return [
            helper.make_tensor_value_info(f"{when}.{layer}.{part}", TensorProto.FLOAT, shape)
            for layer in range(sizes.layers)
            for part in ("key", "value")
        ]

    whole = {"input_ids": new, "attention_mask": total, "position_ids": new}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch_size", length])
        for name, length in whole.items()
    ]
    logits = helper.make_tensor_value_info(
        "logits", TensorProto.FLOAT, ["batch_size", new, sizes.words]
    )
    graph = helper.make_graph(
        made.nodes,
        "llama",
        [*inputs, *tensors("past_key_values", "past_sequence_length")],
        [logits, *tensors("present", total)],
        [numpy_helper.from_array(array, name) for name, array in made.weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


if __name__ == "__main__":
    raise SystemExit(main())
