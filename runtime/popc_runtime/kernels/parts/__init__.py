"""Algorithms that kernels of a family are made of."""

__all__: list[str] = []
