"""Sizes that data decides: what can be said about them while a model is imported."""

from popc.frontend.sizes.expressions import Size, SizeAlgebra
from popc.frontend.sizes.table import SizeTable

__all__ = ["Size", "SizeAlgebra", "SizeTable"]
