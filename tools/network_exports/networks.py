"""All networks, and how one of them is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from zlib import crc32

import torch

from tools.network_exports.forms import form_of
from tools.network_exports.hub import HUB
from tools.network_exports.images import IMAGES
from tools.network_exports.sequences import SEQUENCES

__all__ = ["NETWORKS", "written"]

NETWORKS: Final = {**SEQUENCES, **IMAGES, **HUB}


def written(name: str, form: str, target: Path) -> dict[str, Any]:
    """Write a network in a form; its inputs by name.  Weights are the same in every process."""
    torch.manual_seed(crc32(name.encode()))
    case = NETWORKS[name]
    module = case.module().eval()
    inputs = case.inputs()
    with torch.no_grad():
        return form_of(form, module, inputs, target)
