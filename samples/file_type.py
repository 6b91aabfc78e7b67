"""Input features and labels of the file type classifier (magika, model standard_v3_3).

The model reads the first and the last 1,024 bytes of a file, with white space stripped from the
outer ends and 256 where there are fewer bytes.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

HALF = 1024
BLOCK = 4096
PADDING = 256


def features(content: bytes) -> npt.NDArray[np.int32]:
    """The model's input ``bytes``: int32[1, 2048]."""
    head = content[:BLOCK].lstrip()[:HALF]
    tail = content[-BLOCK:].rstrip()[-HALF:]
    row = np.full((1, 2 * HALF), PADDING, np.int32)
    row[0, : len(head)] = np.frombuffer(head, np.uint8)
    row[0, 2 * HALF - len(tail) :] = np.frombuffer(tail, np.uint8)
    return row


def labels(model: Path) -> list[str]:
    """The names of the classes, from the file that `fetch_models.fetch` puts beside the model."""
    config = json.loads(model.with_suffix(".labels.json").read_text())
    return [str(label) for label in config["target_labels_space"]]
