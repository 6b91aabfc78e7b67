"""Write small exports for the tests, with what onnxruntime or ONNX's reference computes.

    python -m tools.network_exports.recording tests/recorded/exports.npz

It needs what `pip install --group networks` installs.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import torch
from torch import nn

from tools.network_exports.networks import written

_SMALL: Final = (
    *("mlp.static", "mlp.dynamic", "mlp.halves", "graph_attention.script"),
    *("graph_attention.dynamo", "elman.optimised", "separator.optimised", "windows.dynamo"),
    *("neighbours.script", "einsums.dynamo", "keywords.static", "softsort.dynamo"),
)
_LARGEST: Final = 30_000  # bytes of a model, packed
_LAYERS, _HEADS, _KEY_HEADS, _DEPTH = 1, 2, 1, 8


def main() -> None:
    """Export, run and write all of them."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        for name in _SMALL:
            network, _, form = name.partition(".")
            _record(found, name, path, [written(network, form, path)])
        for form in ("script", "dynamo"):
            _record(found, f"decoder.{form}", path, _decoder(path, dynamo=form == "dynamo"))
    np.savez_compressed(sys.argv[1], allow_pickle=False, **found)
    print(f"{len(found)} arrays, {Path(sys.argv[1]).stat().st_size:,} bytes")


def _record(found: dict[str, Any], name: str, path: Path, runs: Sequence[dict[str, Any]]) -> None:
    """Add the model, and inputs and results of each run, which goes on with the caches before."""
    model = path.read_bytes()
    size = len(zlib.compress(model))
    assert size <= _LARGEST, (name, size)
    found[f"{name}/model"] = np.frombuffer(model, np.uint8)
    session = _session(name, model)
    graph = onnx.load_from_string(model).graph
    names = [each.name for each in graph.output]
    past: dict[str, Any] = {}
    for number, inputs in enumerate(runs):
        results = dict(zip(names, session.run(names, {**inputs, **past}), strict=True))
        past = {
            each.name: results.pop(each.name.replace("past_key_values", "present"))
            for each in graph.input
            if each.name.startswith("past_key_values")
        }
        found |= {f"{name}/{number}/inputs/{key}": value for key, value in inputs.items()}
        found |= {f"{name}/{number}/results/{key}": value for key, value in results.items()}
    print(f"{name}: {size:,} bytes", flush=True)


def _session(name: str, model: bytes) -> Any:
    """Computes a model exactly: onnxruntime's products of bytes lose sums on some processors.

    Of a model with scales it computes floats if it must not rewrite anything; where bytes are
    multiplied as bytes, ONNX's own definition of the operators computes.
    """
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    if name.endswith(".dynamic"):
        return ReferenceEvaluator(model)
    options = onnxruntime.SessionOptions()
    if name.endswith(".static"):
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


# -- a decoder with its caches ---------------------------------------------------------------------


class _Cached(nn.Module):
    """A decoder whose caches are tensors."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        self.model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=23,
                hidden_size=_HEADS * _DEPTH,
                intermediate_size=24,
                num_hidden_layers=_LAYERS,
                num_attention_heads=_HEADS,
                num_key_value_heads=_KEY_HEADS,
                max_position_embeddings=32,
            )
        )

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, *past: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer in range(_LAYERS):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        found = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache
        )
        layers = found.past_key_values.layers[:_LAYERS]
        return (found.logits, *(part for each in layers for part in (each.keys, each.values)))


def _decoder(path: Path, *, dynamo: bool) -> list[dict[str, Any]]:
    """Write it as Optimum does; three runs of two samples, of which one begins later."""
    torch.manual_seed(0)
    caches = [f"{layer}.{part}" for layer in range(_LAYERS) for part in ("key", "value")]
    past = [f"past_key_values.{name}" for name in caches]
    present = [f"present.{name}" for name in caches]
    new = {0: "batch_size", 1: "sequence_length"}
    whole = {0: "batch_size", 1: "past_sequence_length + sequence_length"}
    axes: dict[str, dict[int, str]] = {"input_ids": new, "attention_mask": whole}
    axes |= {"position_ids": new, "logits": new}
    axes |= {name: {0: "batch_size", 2: "past_sequence_length"} for name in past}
    axes |= {name: {0: "batch_size", 2: whole[1]} for name in present}
    rows = [torch.randn(2, _KEY_HEADS, 3, _DEPTH) for _ in past]
    example = (torch.ones(2, 2).long(), torch.ones(2, 5).long(), torch.ones(2, 2).long(), *rows)
    settings: dict[str, Any] = {
        "input_names": ["input_ids", "attention_mask", "position_ids", *past],
        "output_names": ["logits", *present],
    }
    if dynamo:
        any_ = torch.export.Dim.DYNAMIC
        shapes = ({0: any_, 1: any_},) * 3
        settings["dynamic_shapes"] = (*shapes, tuple({0: any_, 2: any_} for _ in past))
        settings |= {"external_data": False, "verbose": False}
    else:
        settings |= {"dynamic_axes": axes, "opset_version": 17}
    with torch.no_grad():
        torch.onnx.export(_Cached().eval(), example, path, dynamo=dynamo, **settings)
    return _runs(past)


def _runs(past: Sequence[str]) -> list[dict[str, Any]]:
    draw = np.random.default_rng(0)
    mask = np.array([[0, 1, 1], [1, 1, 1]])
    runs = []
    for start, count in ((0, 3), (3, 1), (4, 1)):
        whole = np.concatenate([mask, np.ones((2, start + count - 3), np.int64)], axis=1)
        places = np.maximum(whole.cumsum(1) - 1, 0)[:, start:]
        inputs = {"input_ids": draw.integers(0, 23, (2, count)), "attention_mask": whole}
        runs.append({**inputs, "position_ids": places})
    empty = np.zeros((2, _KEY_HEADS, 0, _DEPTH), np.float32)
    runs[0] |= dict.fromkeys(past, empty)
    return runs


if __name__ == "__main__":
    main()
