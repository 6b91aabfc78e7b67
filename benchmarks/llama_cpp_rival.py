"""The Llama of `samples.generate` in llama.cpp: its file, and its steps.

Caches are of float32, and so are weights, but for those of products in four bits.  llama.cpp turns
neighbouring columns of queries and keys where ONNX turns those of both halves: the rows of both
products change places.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.four_bits import BLOCK, blocks_of
from popc_runtime.format import Array
from samples.generate import Sizes, Step

__all__ = ["llama_cpp_model", "llama_cpp_steps", "write_gguf"]

_NAMES = {
    "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "norm": "attn_norm",
    "inner": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
}  # fmt: skip
_WORDS = "token_embd.weight"

# Must outlive all calls of llama.cpp.
_SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)


def write_gguf(model: onnx.ModelProto, sizes: Sizes, path: Path, *, four_bits: bool) -> None:
    """Write the weights of ``model``, which has ``sizes``, as llama.cpp reads them."""
    from gguf import GGMLQuantizationType, GGUFWriter

    writer = GGUFWriter(str(path), "llama")
    writer.add_context_length(sizes.longest)
    writer.add_embedding_length(sizes.width)
    writer.add_block_count(sizes.layers)
    writer.add_feed_forward_length(sizes.inner)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.key_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(sizes.depth)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(sizes.words)
    writer.add_tokenizer_model("no_vocab")
    for name, array in _tensors(model, sizes):
        if four_bits and array.ndim == 2 and name != _WORDS:
            packed = _packed(array)
            writer.add_tensor(name, packed, raw_dtype=GGMLQuantizationType.Q4_0)
        else:
            writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(model: onnx.ModelProto, sizes: Sizes) -> Iterator[tuple[str, Array]]:
    """Names and elements of weights; a product's are [results, operands]."""
    weights = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    yield _WORDS, weights["words"]
    yield "output_norm.weight", weights["norm"]
    yield "output.weight", weights["head"].T
    for layer in range(sizes.layers):
        for ours, theirs in _NAMES.items():
            array = weights[f"{ours}.{layer}"].T
            if ours in ("q", "k"):
                halves = array.reshape(-1, 2, sizes.depth // 2, sizes.width)
                array = halves.swapaxes(1, 2).reshape(array.shape)
            yield f"blk.{layer}.{theirs}.weight", array


def _packed(weights: Array) -> Array:
    """Weights [N, K] in Q4_0: a factor of two bytes, then numbers j and j + 16 in one byte."""
    numbers, factors = blocks_of(weights.T)
    half = BLOCK // 2
    pairs = numbers[..., :half] | numbers[..., half:] << 4
    heads = factors.astype(np.float16)[..., None].view(np.uint8)
    return np.concatenate([heads, pairs], axis=-1).reshape(len(weights), -1)


def llama_cpp_model(path: Path) -> Any:
    """The model of a file, which several contexts may use.

    Raises:
        ImportError: llama-cpp-python is not installed.
        RuntimeError: llama.cpp does not take the file.
    """
    import llama_cpp

    llama_cpp.llama_log_set(_SILENT, None)
    llama_cpp.llama_backend_init()
    settings = llama_cpp.llama_model_default_params()
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), settings)
    if model is None:
        raise RuntimeError(f"llama.cpp does not take {path}")
    return model


def llama_cpp_steps(model: Any, sizes: Sizes, threads: int) -> Step:
    """Steps of a new context, which keeps keys and values in float32.

    Raises:
        RuntimeError: llama.cpp cannot make a context, or run a step.
    """
    import llama_cpp

    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = sizes.longest
    settings.n_threads = settings.n_threads_batch = threads
    settings.type_k = settings.type_v = llama_cpp.GGML_TYPE_F32
    context = llama_cpp.llama_init_from_model(model, settings)
    if context is None:
        raise RuntimeError("llama.cpp makes no context")

    def step(tokens: Array) -> Array:
        count = tokens.shape[1]
        given = (llama_cpp.llama_token * count)(*tokens[0].tolist())
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(given, count)):
            raise RuntimeError("llama.cpp does not run a step")
        logits = llama_cpp.llama_get_logits_ith(context, -1)
        return np.ctypeslib.as_array(logits, (1, 1, sizes.words))

    return step
