"""The options of a compilation: one schema, resolved from every source, with origins."""

from popc.options.anchors import Anchor
from popc.options.annotations import Rule
from popc.options.conflicts.placement import conflicts as placement_conflicts
from popc.options.conflicts.placement import ignored_places, pipeline_training_conflicts
from popc.options.conflicts.training import evaluation_options, refuse_training_options
from popc.options.groups.archive import WeightStorage
from popc.options.groups.arithmetic import Partials, Precision
from popc.options.groups.batch_serialization import (
    OVERLAPPING,
    BatchOptions,
    PartsContext,
    PartsMethod,
    PartsSchedule,
)
from popc.options.groups.checks import FloatingPointException
from popc.options.groups.memory import MemoryFormat
from popc.options.groups.outlining import CopyingStrategy
from popc.options.groups.placement import (
    OuterFragmentSchedule,
    PipelineSchedule,
    VirtualGraphMode,
)
from popc.options.groups.recomputation import AutoRecomputation
from popc.options.groups.replicas import StreamMode
from popc.options.groups.rewrites import PatternLevel
from popc.options.groups.schedule import Algorithm, ScheduleOptions, TieBreaker
from popc.options.groups.streaming import IoSchedule, PhaseSchedule
from popc.options.groups.training import MeanStrategy, MergeVarUpdate, Reduction
from popc.options.groups.transfers import ExchangeStrategy, Instrumentation, SyntheticDataMode
from popc.options.locations import TensorStorage, TileSet
from popc.options.options import SCHEMA, Options, describe_options
from popc.options.resolve import changed_options, resolve_options
from popc.options.schema import OptionSpec
from popc.options.sources import read_table
from popc.options.suggest import did_you_mean
from popc.options.table import FrozenTable
from popc_runtime.format import OptionValue, Origin, ReturnType

__all__ = [
    "OVERLAPPING",
    "SCHEMA",
    "Algorithm",
    "Anchor",
    "AutoRecomputation",
    "BatchOptions",
    "CopyingStrategy",
    "ExchangeStrategy",
    "FloatingPointException",
    "FrozenTable",
    "Instrumentation",
    "IoSchedule",
    "MeanStrategy",
    "MemoryFormat",
    "MergeVarUpdate",
    "OptionSpec",
    "OptionValue",
    "Options",
    "Origin",
    "OuterFragmentSchedule",
    "Partials",
    "PartsContext",
    "PartsMethod",
    "PartsSchedule",
    "PatternLevel",
    "PhaseSchedule",
    "PipelineSchedule",
    "Precision",
    "Reduction",
    "ReturnType",
    "Rule",
    "ScheduleOptions",
    "StreamMode",
    "SyntheticDataMode",
    "TensorStorage",
    "TieBreaker",
    "TileSet",
    "VirtualGraphMode",
    "WeightStorage",
    "changed_options",
    "describe_options",
    "did_you_mean",
    "evaluation_options",
    "ignored_places",
    "pipeline_training_conflicts",
    "placement_conflicts",
    "read_table",
    "refuse_training_options",
    "resolve_options",
]
