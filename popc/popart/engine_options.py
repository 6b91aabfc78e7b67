"""Poplar's options for its engine and for collectives: what popc does about each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from popc.popart.errors import popart_exception, poplar_exception
from popc.popart.logger import log_once
from popc.popart.options import SessionOptions
from popc.popart.options_table import Treatment

__all__ = ["ENGINE_OPTIONS", "GCL_OPTIONS", "check_engine_options", "engine_values"]

_M, _A, _N = Treatment.MAPPED, Treatment.ALWAYS, Treatment.NO_EFFECT
_PROFILES: Final = (
    "files of Poplar's profiler are not written: `getSummaryReport` and `popc report`"
)
_COUNTED: Final = "costs of every op are known from the estimate, without counters on the device"
_NO_CODE: Final = "no code for tiles is made"
_HOST: Final = "the emulated device is called by the host directly"


def _all(treatment: Treatment, why: str, names: str) -> dict[str, tuple[Treatment, str]]:
    return dict.fromkeys(names.split(), (treatment, why))


# By name: the treatment, and the option of popc or the reason.
ENGINE_OPTIONS: Final[Mapping[str, tuple[Treatment, str]]] = {
    **_all(_M, "enable_floating_point_checks", "debug.floatPointOpException"),
    **_all(_M, "floating_point_exceptions: nan_on_overflow", "debug.nanOverflowException"),
    **_all(_M, "enable_stochastic_rounding", "prng.enableStochasticRounding"),
    **_all(_A, "results follow from the seed alone", "target.deterministicWorkers prng.enable"),
    **_all(
        _A,
        "they decide whether an OutOfMemoryException has a summary, and a profile in JSON",
        "autoReport.directory autoReport.outputGraphProfile debug.allowOutOfMemory",
    ),
    **_all(_A, "programs are checked before they are loaded", "debug.verify"),
    **_all(
        _N,
        _PROFILES,
        "autoReport.all autoReport.executionProfileProgramRunCount "
        "autoReport.outputArchive autoReport.outputDebugInfo autoReport.outputExecutionProfile "
        "autoReport.outputLoweredVars "
        "autoReport.outputSerializedGraph autoReport.streamAtEachRun debug.cbor "
        "debug.loweredVarDumpFile debug.trace debug.traceFile profiler.format "
        "profiler.includeCycleEstimates profiler.includeFlopEstimates "
        "profiler.perExecutionStreamCopyCycles profiler.projectName profiler.replicaToProfile "
        "profiler.useCpuModel",
    ),
    **_all(
        _N,
        _COUNTED,
        "debug.branchRecordTile debug.computeInstrumentationLevel debug.instrument "
        "debug.instrumentCompute debug.instrumentControlFlow debug.instrumentExternalExchange "
        "debug.profilingTile",
    ),
    **_all(
        _N,
        _NO_CODE,
        "debug.cpuMultiThreadExecution debug.outputAllSymbols debug.retainDebugInformation "
        "debug.runtimeVerify debug.supervisorStackSizeInBytes exchange.enablePrefetch "
        "exchange.streamBufferOverlap opt.enableInlining opt.enableMultiAccessCopies "
        "opt.enableSwSyncs opt.internalExchangeOptimisationTarget "
        "opt.limitVertexStateToLower256K opt.maxCompilationThreads opt.maxLinkTimeThreads "
        "prng.seed target.saveArchive target.supervisorStackSizeInBytes "
        "target.workerStackSizeInBytes",
    ),
    **_all(
        _N,
        _HOST,
        "streamCallbacks.maxLookahead streamCallbacks.multiThreadMode "
        "streamCallbacks.numWorkerThreads streamCallbacks.workerThreadsCpuSet target.gatewayMode "
        "target.gatewayWriteCombining target.hostSyncTimeout "
        "target.maxStreamCallbackThreadsPerNumaNode target.syncMethod target.syncPollPeriodUs "
        "target.syncReplicasIndependently",
    ),
}
# Of collectives: PopART knows these, and popc's need none.
GCL_OPTIONS: Final = ("maxBytesPerTile", "useSynclessCollectives")
_OF_POPC: Final[Mapping[str, Mapping[str, Any]]] = {
    "debug.floatPointOpException": {"enable_floating_point_checks": True},
    "debug.nanOverflowException": {
        "enable_floating_point_checks": True,
        "floating_point_exceptions": ["div0", "invalid", "overflow", "nan_on_overflow"],
    },
    "prng.enableStochasticRounding": {"enable_stochastic_rounding": True},
}


def engine_values(options: SessionOptions) -> dict[str, Any]:
    """The options of popc that do what engine options ask for."""
    values: dict[str, Any] = {}
    for name, text in dict(options.engineOptions).items():
        if str(text).lower() == "true":
            values |= _OF_POPC.get(name, {})
    return values


def check_engine_options(options: SessionOptions) -> None:
    """Refuse options that Poplar does not know, and warn once of those without effect.

    Raises:
        poplar_exception: there is no such engine option.
        popart_exception: there is no such option of collectives.
    """
    given = dict(options.engineOptions)
    for name in _unknown(given, ENGINE_OPTIONS):
        raise poplar_exception(f"Unrecognised option '{name}'")
    for name in _unknown(dict(options.gclOptions), dict.fromkeys(GCL_OPTIONS)):
        raise popart_exception(
            f"'{name}' is not a valid gcl option: there are {', '.join(GCL_OPTIONS)}"
        )
    for name in given:
        treatment, why = ENGINE_OPTIONS[name]
        if treatment is _N:
            log_once("session", f"The engine option {name} has no effect: {why}")


def _unknown(given: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[str]:
    return (name for name in given if name not in known)
