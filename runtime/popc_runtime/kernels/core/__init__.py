"""The common ground of kernels: operands, blocks, threads, rounding, random numbers."""

__all__: list[str] = []
