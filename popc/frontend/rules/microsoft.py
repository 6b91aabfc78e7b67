"""The com.microsoft operators that exporters and optimisers of onnxruntime emit."""

from __future__ import annotations

from typing import Final

from popc.frontend.node import ImportRule

__all__ = ["RULES"]

MICROSOFT: Final = "com.microsoft"

RULES: Final[dict[tuple[str, str], ImportRule]] = {}
