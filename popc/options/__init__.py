"""The options of a compilation: one schema, resolved from every source, with origins."""

from popc.options.anchors import Anchor
from popc.options.options import SCHEMA, Options, describe_options
from popc.options.resolve import resolve_options
from popc.options.schema import OptionSpec
from popc_runtime.format import OptionValue, Origin, ReturnType

__all__ = [
    "SCHEMA",
    "Anchor",
    "OptionSpec",
    "OptionValue",
    "Options",
    "Origin",
    "ReturnType",
    "describe_options",
    "resolve_options",
]
