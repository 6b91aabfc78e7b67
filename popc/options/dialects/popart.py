"""PopART's SessionOptions: names that popc understands, and why it does not take the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from popc.options.dialects.dialect import Becomes, Computed, Dialect, HostKey, Refused
from popc.options.dialects.kinds import Anything
from popc.options.dialects.popart_processes import PROCESSES
from popc.options.kinds import Truth
from popc.options.options import SCHEMA

__all__ = [
    "OPTIONS",
    "POPART",
    "SWITCHES",
    "changes_nothing",
    "members_of",
    "table_entry",
    "why_unsupported",
]

OPTIONS: Final = {spec.popart: spec.name for spec in SCHEMA if spec.popart}

_TABLES: Final = frozenset(spec.popart for spec in SCHEMA if spec.kind.is_table and spec.popart)

# Switches that PopART has beside a number: off, the number must be 1.
SWITCHES: Final = {
    "enableGradientAccumulation": "accumulation_factor",
    "enableReplicatedGraphs": "replicated_graph_count",
}

# Known names get a better answer than "did you mean".  Grouped by what they would need.
_UNSUPPORTED: Final = {
    "training has no such setting here": """
        autodiffSettings
        createImplicitPipeliningFwdOnlyProgram
        disableGradAccumulationTensorStreams disableOptimizerStateTensorStreams
        updatableNamedBuffers""",
    "[optimizer.automatic_loss_scaling] of the training file does it": """
        automaticLossScalingSettings""",
    "combine_matmuls does it": "enableGroupedMatmuls",
    "weights are updated on the device": "hostWeightUpdate",
    "it is the old name of accumulationAndReplicationReductionType": "accumulationReductionType",
    "it is the old name of defaultBufferingDepth": "defaultPrefetchBufferingDepth",
    "it is the old name of bufferingDepthMap": "prefetchBufferingDepthMap",
    "samples have one order of elements, on the host and on the device": """
        rearrangeAnchorsOnHost rearrangeStreamsOnHost""",
    "overlapped transfers are always ordered with few constraints": """
        enableEfficientOverlapIOTopoCons""",
    "host transfers, loops and recomputation are always explicit": """
        enableExplicitIR enableExplicitMainLoops explicitRecomputation useHostCopyOps
        useLoopCandidateCreator""",
    "graphs that are called find operands and results where they are, without copies": """
        aliasZeroCopy""",
    "schedules do not come from Poprithms": """
        serializedPoprithmsAnnealGraphsDir serializedPoprithmsShiftGraphsDir""",
    "each kernel has one form, which is stable and exact": """
        enableFullyConnectedPass enableNonStableSoftmax
        enableStableNorm groupNormStridedChannelGrouping throwIfLog2ScaleTensorNotInRange""",
    "the state of random numbers is always kept: state.random_state reads and sets it": """
        _enableRngStateManagement enableLoadAndOffloadRNGState""",
    "the archive takes the place of PopART's cache": """
        cachePath compileEngine enableEngineCaching enableVariablesCaching""",
    "there is no Poplar underneath": """
        customCodeletCompileFlags customCodelets engineOptions
        experimentalSettings exportPoplarComputationGraph exportPoplarVertexGraph
        gclOptions lstmOptions
        matmulOptions opxAliasChecking opxModifyChecking reportOptions separateCallOpPdfs""",
    "64-bit integers stay 64-bit integers": """
        enableSupportedDataTypeCasting""",
    "drawings are made by popc compile --emit-dot DIR --at CHECKPOINT --dot-ops FIRST:LAST": """
        dotChecks dotOpNames finalDotOp firstDotOp logDir""",
    "popc has its own passes, checks and progress": """
        compilationProgressLogger compilationProgressTotal developerSettings
        enableConstantFoldingOfMultipleConsumers strictOpVersions""",
}


def _normalised(name: str) -> str:
    """The name without what the spellings of one name differ in."""
    return name.replace("_", "").replace("-", "").lower()


_REASONS: Final = {
    _normalised(name): reason for reason, names in _UNSUPPORTED.items() for name in names.split()
}


# Of what popc does not take: values that say what is so anyway, beside nothing and false.
_SWITCHED: Final = """
    _enableRngStateManagement aliasZeroCopy compileEngine
    enableConstantFoldingOfMultipleConsumers enableEfficientOverlapIOTopoCons
    enableExplicitMainLoops enableFullyConnectedPass enableLoadAndOffloadRNGState enableStableNorm
    enableSupportedDataTypeCasting enableVariablesCaching explicitRecomputation
    groupNormStridedChannelGrouping opxAliasChecking opxModifyChecking rearrangeAnchorsOnHost
    separateCallOpPdfs strictOpVersions throwIfLog2ScaleTensorNotInRange useHostCopyOps"""
_ANYWAY: Final[Mapping[str, tuple[object, ...]]] = {
    **dict.fromkeys(_SWITCHED.split(), (False, True)),
    "cachePath": ("session_cache",),
    "finalDotOp": (10_000,),
}
_DEFAULTS: Final = {_normalised(name): values for name, values in _ANYWAY.items()}
_WORDS: Final = {"true": True, "false": False}


def changes_nothing(key: str, value: object) -> bool:
    """True if an option of PopART's that popc does not take has a value that asks for nothing.

    That is PopART's default or, where popc always does what the option is about, any.
    """
    if not why_unsupported(key):
        return False
    said = _WORDS.get(value.lower(), value) if isinstance(value, str) else value
    known = _DEFAULTS.get(_normalised(key), ())
    return said in known or str(said) in map(str, known) or said in (False, "", "{}", "[]", {}, [])


def members_of(key: str, value: object) -> dict[str, object] | None:
    """The options in a record of PopART's, by their full names; ``None`` if ``key`` is no record.

    ``replicatedCollectivesSettings = {mergeAllReduceCollectives = true}`` is the same as
    ``replicatedCollectivesSettings.mergeAllReduceCollectives = true``.
    """
    if not isinstance(value, Mapping) or key in OPTIONS:
        return None
    if not any(name.startswith(f"{key}.") for name in OPTIONS):
        return None
    return {f"{key}.{name}": item for name, item in value.items()}


def table_entry(key: str) -> tuple[str, str] | None:
    """The record and the entry that a key such as ``xSettings.location.storage`` stands for.

    That is for records that are tables here; ``None`` for other keys.
    """
    record, _, rest = key.partition(".")
    if not rest or key in OPTIONS or record not in _TABLES:
        return None
    return record, rest.removeprefix("location.")


def why_unsupported(key: str) -> str:
    """The reason, if PopART has an option ``key``, or one that it is a member of; "" if not."""
    return _REASONS.get(_normalised(key.partition(".")[0]), "")


def _keys() -> tuple[HostKey, ...]:
    """The rows: what options are declared to stand for, switches, and what nothing stands for."""
    mapped = [
        HostKey(spec.popart, spec.kind, spec.default, Becomes(spec.name))
        for spec in SCHEMA
        if spec.popart
    ]
    switches = [
        HostKey(name, Truth(), True, Computed(f"`{option}`: false needs 1", lambda _: ""))
        for name, option in SWITCHES.items()
    ]
    refused = [
        HostKey(name, Anything(), None, Refused(reason))
        for reason, names in _UNSUPPORTED.items()
        for name in names.split()
    ]
    processes = [
        HostKey(name, kind, default, Computed(words, lambda _: ""))
        for name, (kind, default, words) in PROCESSES.items()
    ]
    return tuple(
        sorted([*mapped, *switches, *processes, *refused], key=lambda key: key.name.lower())
    )


POPART: Final = Dialect("popart", "PopART's SessionOptions", _keys(), mixes=True)
