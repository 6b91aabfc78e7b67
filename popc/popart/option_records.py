"""The structures among PopART's options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from popc.popart.calls import BOOL, FLOAT, INT, INTS, STRS, Kind, constructed, instance_of, optional
from popc.popart.enums import NativeEnum
from popc.popart.option_enums import (
    AccumulateOuterFragmentSchedule,
    AutodiffStitchStrategy,
    BatchSerializationBatchSchedule,
    BatchSerializationMethod,
    BatchSerializationTransformContext,
    ExecutionPhaseIOSchedule,
    ExecutionPhaseSchedule,
    GradientTensorTrackingMethod,
)
from popc.popart.records import Field, LiveDict, Record, dict_of

__all__ = [
    "AccumulateOuterFragmentSettings",
    "AutodiffSettings",
    "AutomaticLossScalingSettings",
    "BatchSerializationSettings",
    "ExecutionPhaseSettings",
    "ExperimentalSettings",
    "NumIOTiles",
    "ReplicatedCollectivesSettings",
    "enum_field",
    "flag",
]


def flag(value: bool = False) -> Field:
    """A truth value."""
    return Field(BOOL, lambda: value)


def enum_field(member: NativeEnum) -> Field:
    """A member of an enumeration."""
    return Field(instance_of(type(member)), lambda: member)


def _number(kind: Kind, value: float) -> Field:
    return Field(kind, lambda: value)


class AccumulateOuterFragmentSettings(Record):
    """The order of the outer fragment of gradient accumulation.

    Forms: ``()``, ``(schedule, excludedVirtualGraphs=[])``.
    """

    __slots__ = ()
    FIELDS: ClassVar = {
        "schedule": enum_field(AccumulateOuterFragmentSchedule.Serial),
        "excludedVirtualGraphs": Field(INTS, list),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        cls = AccumulateOuterFragmentSettings
        constructed(self, (cls._default, cls._given), args, kwargs)

    def _default(self) -> None:
        """Leave the fields as they stand."""

    def _given(
        self,
        schedule: AccumulateOuterFragmentSchedule,
        excludedVirtualGraphs: Sequence[int] = (),
    ) -> None:
        self.assign(self.FIELDS, (schedule, list(excludedVirtualGraphs)))


class AutodiffSettings(Record):
    """The way in which backward subgraphs get values of forward ones: ``(stitchStrategy=...)``."""

    __slots__ = ()
    FIELDS: ClassVar = {"stitchStrategy": enum_field(AutodiffStitchStrategy.RecomputeAllNonInputs)}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        constructed(self, (AutodiffSettings._given,), args, kwargs)

    def _given(
        self,
        stitchStrategy: AutodiffStitchStrategy = AutodiffStitchStrategy.RecomputeAllNonInputs,
    ) -> None:
        self.assign(self.FIELDS, (stitchStrategy,))


class AutomaticLossScalingSettings(Record):
    """The settings for scaling the loss by what gradients look like.

    Form: ``(enabled=False, toTrackTensors=None, binEdgeLocation=0.125,
    thresholdUpperCountProportion=1e-7, updatePeriod=1, gradientTensorTrackingMethod=...)``.
    """

    __slots__ = ()
    FIELDS: ClassVar = {
        "enabled": flag(),
        "toTrackTensors": Field(optional(STRS), lambda: None),
        "binEdgeLocation": _number(FLOAT, 0.125),
        "thresholdUpperCountProportion": _number(FLOAT, 1e-7),
        "updatePeriod": _number(INT, 1),
        "gradientTensorTrackingMethod": enum_field(
            GradientTensorTrackingMethod.AllNonViewChangingGradientTensors
        ),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        constructed(self, (AutomaticLossScalingSettings._given,), args, kwargs)

    def _given(
        self,
        enabled: bool = False,
        toTrackTensors: Sequence[str] | None = None,
        binEdgeLocation: float = 0.125,
        thresholdUpperCountProportion: float = 1e-7,
        updatePeriod: int = 1,
        gradientTensorTrackingMethod: GradientTensorTrackingMethod = (
            GradientTensorTrackingMethod.AllNonViewChangingGradientTensors
        ),
    ) -> None:
        values = (enabled, toTrackTensors, binEdgeLocation, thresholdUpperCountProportion)
        self.assign(self.FIELDS, (*values, updatePeriod, gradientTensorTrackingMethod))


class BatchSerializationSettings(Record):
    """The settings for cutting a batch into parts.

    Forms: ``()``, ``(factor, concatOnVirtualGraphChange, concatOnExecutionPhaseChange,
    concatOnPipelineStageChange, transformContext=..., method=..., batchSchedule=...)``.
    """

    __slots__ = ()
    FIELDS: ClassVar = {
        "factor": _number(INT, 0),
        "concatOnVirtualGraphChange": flag(value=True),
        "concatOnExecutionPhaseChange": flag(value=True),
        "concatOnPipelineStageChange": flag(value=True),
        "transformContext": enum_field(BatchSerializationTransformContext.Fwd),
        "method": enum_field(BatchSerializationMethod.UnrollDynamic),
        "batchSchedule": enum_field(BatchSerializationBatchSchedule.Isomorphic),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        cls = BatchSerializationSettings
        constructed(self, (cls._default, cls._given), args, kwargs)

    def _default(self) -> None:
        """Leave the fields as they stand."""

    def _given(
        self,
        factor: int,
        concatOnVirtualGraphChange: bool,
        concatOnExecutionPhaseChange: bool,
        concatOnPipelineStageChange: bool,
        transformContext: BatchSerializationTransformContext = (
            BatchSerializationTransformContext.Fwd
        ),
        method: BatchSerializationMethod = BatchSerializationMethod.UnrollDynamic,
        batchSchedule: BatchSerializationBatchSchedule = BatchSerializationBatchSchedule.Isomorphic,
    ) -> None:
        joins = (concatOnVirtualGraphChange, concatOnExecutionPhaseChange)
        rest = (concatOnPipelineStageChange, transformContext, method, batchSchedule)
        self.assign(self.FIELDS, (factor, *joins, *rest))


_PRELOAD = ExecutionPhaseIOSchedule.Preload


class ExecutionPhaseSettings(Record):
    """The phases of a program, and the times when data of a phase are loaded.

    Forms: ``()``, ``(phases, stages, weightIOSchedule, activationIOSchedule,
    optimizerStateIOSchedule, accumulatorIOSchedule, optimizerSchedule)``.
    """

    __slots__ = ()
    FIELDS: ClassVar = {
        "phases": _number(INT, 0),
        "stages": _number(INT, 2),
        "weightIOSchedule": enum_field(_PRELOAD),
        "activationIOSchedule": enum_field(_PRELOAD),
        "optimizerStateIOSchedule": enum_field(ExecutionPhaseIOSchedule.OnDemand),
        "accumulatorIOSchedule": enum_field(_PRELOAD),
        "schedule": enum_field(ExecutionPhaseSchedule.Interleaving),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        cls = ExecutionPhaseSettings
        constructed(self, (cls._default, cls._given), args, kwargs)

    def _default(self) -> None:
        """Leave the fields as they stand."""

    def _given(
        self,
        phases: int,
        stages: int,
        weightIOSchedule: ExecutionPhaseIOSchedule,
        activationIOSchedule: ExecutionPhaseIOSchedule,
        optimizerStateIOSchedule: ExecutionPhaseIOSchedule,
        accumulatorIOSchedule: ExecutionPhaseIOSchedule,
        optimizerSchedule: ExecutionPhaseSchedule,
    ) -> None:
        kinds = (weightIOSchedule, activationIOSchedule, optimizerStateIOSchedule)
        self.assign(self.FIELDS, (phases, stages, *kinds, accumulatorIOSchedule, optimizerSchedule))


class ReplicatedCollectivesSettings(Record):
    """The exchanges between replicas that are merged.

    Form: ``(prepareScheduleForMergingCollectives=False, mergeAllReduceCollectives=False,
    mergeReduceScatterCollectives=False, mergeAllGatherCollectives=False)``.
    """

    __slots__ = ()
    FIELDS: ClassVar = {
        "prepareScheduleForMergingCollectives": flag(),
        "mergeAllReduceCollectives": flag(),
        "mergeReduceScatterCollectives": flag(),
        "mergeAllGatherCollectives": flag(),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        constructed(self, (ReplicatedCollectivesSettings._given,), args, kwargs)

    def _given(
        self,
        prepareScheduleForMergingCollectives: bool = False,
        mergeAllReduceCollectives: bool = False,
        mergeReduceScatterCollectives: bool = False,
        mergeAllGatherCollectives: bool = False,
    ) -> None:
        merged = (mergeAllReduceCollectives, mergeReduceScatterCollectives)
        values = (prepareScheduleForMergingCollectives, *merged, mergeAllGatherCollectives)
        self.assign(self.FIELDS, values)


class ExperimentalSettings(Record):
    """Settings of transforms that are compiled into PopART."""

    __slots__ = ()
    FIELDS: ClassVar = {
        "customTransformApplierSettings": Field(dict_of(STRS), lambda: LiveDict(STRS)),
        "createHostTransferableTensorWithOffset": flag(),
    }


class NumIOTiles:
    """A number of tiles; an int does as well."""

    __slots__ = ("_number",)

    def __init__(self, numIOTiles: int = 0) -> None:
        self._number = int(numIOTiles)

    def __int__(self) -> int:
        return self._number

    def __index__(self) -> int:
        return self._number
