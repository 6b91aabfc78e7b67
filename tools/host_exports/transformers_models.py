"""A small BERT of transformers as an ONNX model, with the losses of two steps in PyTorch.

    PYTHON -m tools.host_exports.transformers_models tests/recorded/hosts_transformers.npz

PYTHON is the interpreter of an environment with `torch`, `transformers` and `onnx`.
"""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification

_STEPS, _MICRO_BATCHES, _REPLICAS, _BATCH, _LENGTH = 2, 4, 2, 2, 8
_CONFIG: Final = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
    "num_labels": 3,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "attn_implementation": "eager",
}
_RATE: Final = 0.1


def main(path: Path) -> None:
    """Write the model and the losses into one file."""
    torch.manual_seed(0)
    model: Any = BertForSequenceClassification(BertConfig(**_CONFIG)).train()
    rng = np.random.default_rng(0)
    rows = (_STEPS, _MICRO_BATCHES, _REPLICAS, _BATCH)
    words = rng.integers(0, 40, (*rows, _LENGTH))
    mask = (np.arange(_LENGTH) < rng.integers(3, _LENGTH + 1, (*rows, 1))).astype(np.int64)
    labels = rng.integers(0, 3, rows)
    buffer = BytesIO()
    torch.onnx.export(
        model,
        (torch.from_numpy(words[0, 0, 0]), torch.from_numpy(mask[0, 0, 0])),
        buffer,
        dynamo=False,
        do_constant_folding=False,
        training=torch.onnx.TrainingMode.TRAINING,
        opset_version=17,
        input_names=["input_ids", "attention_mask"],
        output_names=["logits"],
    )
    np.savez_compressed(
        path,
        model=np.frombuffer(buffer.getvalue(), np.uint8),
        input_ids=words,
        attention_mask=mask,
        labels=labels,
        losses=_losses(model, words, mask, labels),
    )


def _losses(model: Any, words: Any, mask: Any, labels: Any) -> Any:
    """The loss of each micro-batch and replica; weights change by the mean of the gradients."""
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)
    losses = np.zeros(labels.shape[:3], np.float32)
    for step in range(_STEPS):
        for place in np.ndindex(_MICRO_BATCHES, _REPLICAS):
            ids, kept, wanted = (torch.from_numpy(a[step][place]) for a in (words, mask, labels))
            scores = model(input_ids=ids, attention_mask=kept).logits
            loss = torch.nn.functional.cross_entropy(scores, wanted)
            (loss / (_MICRO_BATCHES * _REPLICAS)).backward()
            losses[(step, *place)] = float(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
    return losses


if __name__ == "__main__":
    main(Path(sys.argv[1]))
