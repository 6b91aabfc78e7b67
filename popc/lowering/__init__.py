"""Graph, schedule and memory plan -> program: which instruction reads and writes which slots."""

from popc.lowering.lower import lower

__all__ = ["lower"]
