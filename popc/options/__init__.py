"""The options of a compilation: one schema, resolved from every source, with origins."""

from popc.options.anchors import Anchor
from popc.options.batch_options import BatchOptions
from popc.options.options import SCHEMA, Options, describe_options
from popc.options.placement_conflicts import ignored_places, placement_conflicts
from popc.options.resolve import changed_options, resolve_options
from popc.options.schedule_options import ScheduleOptions
from popc.options.schema import OptionSpec
from popc.options.sources import read_table
from popc.options.suggest import did_you_mean
from popc.options.table import FrozenTable
from popc_runtime.format import OptionValue, Origin, ReturnType

__all__ = [
    "SCHEMA",
    "Anchor",
    "BatchOptions",
    "FrozenTable",
    "OptionSpec",
    "OptionValue",
    "Options",
    "Origin",
    "ReturnType",
    "ScheduleOptions",
    "changed_options",
    "describe_options",
    "did_you_mean",
    "ignored_places",
    "placement_conflicts",
    "read_table",
    "resolve_options",
]
