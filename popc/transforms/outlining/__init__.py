"""Repeated parts of a program become graphs that are called."""

from popc.transforms.outlining.inlining import inline_calls
from popc.transforms.outlining.outline import Outlining
from popc.transforms.outlining.selection import Terms
from popc.transforms.outlining.sequence import code_value

__all__ = ["Outlining", "Terms", "code_value", "inline_calls"]
