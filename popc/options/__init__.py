"""The options of a compilation: one schema, resolved from every source, with origins."""

from popc.options.anchors import Anchor, ReturnType

__all__ = ["Anchor", "ReturnType"]
