"""Repeated parts of a program become graphs that are called."""

from popc.transforms.outlining.inlining import inline_calls
from popc.transforms.outlining.outline import Outlining

__all__ = ["Outlining", "inline_calls"]
