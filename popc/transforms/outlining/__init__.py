"""Repeated parts of a program become graphs that are called."""

from popc.transforms.outlining.inlining import inline_calls
from popc.transforms.outlining.outlining import Outlining
from popc.transforms.outlining.terms import Terms

__all__ = ["Outlining", "Terms", "inline_calls"]
