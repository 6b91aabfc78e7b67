"""Operators of ai.onnx.ml."""

from __future__ import annotations

from typing import Final

from popc.frontend.rules.ml import features, labels, linear, svm, trees

__all__ = ["FAMILIES"]

FAMILIES: Final = (features, labels, linear, svm, trees)
