"""Models that are given as folders.  This file imports nothing that takes time."""

from __future__ import annotations

import os

from popc_runtime.errors import ModelError
from popc_runtime.ground.hints import Final

__all__ = ["model_file"]

_USUAL: Final = "model.onnx"
_SUFFIX: Final = ".onnx"


def model_file(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """The model in a folder: the only one, or ``model.onnx``; any other path as it is.

    A folder without ONNX models may be a model of another kind.

    Raises:
        ModelError: it holds several.
    """
    if not os.path.isdir(path):
        return path
    try:
        names = sorted(name for name in os.listdir(path) if name.endswith(_SUFFIX))
    except OSError:
        return path  # whoever reads it says why
    chosen = names[0] if len(names) == 1 else _USUAL
    if names and chosen not in names:
        raise ModelError(
            f"{os.fspath(path)} is a folder with {len(names)} models",
            subject=os.fspath(path),
            hint=f"name one of {', '.join(names)}",
        )
    return os.path.join(path, chosen) if names else path
