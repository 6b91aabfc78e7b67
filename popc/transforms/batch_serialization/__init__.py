"""Batch serialization: the parts of a batch go through the network one after another."""

from popc.transforms.batch_serialization.analysis import part_type, sound_cut
from popc.transforms.batch_serialization.cut import Case, Cut
from popc.transforms.batch_serialization.phases import FillPhases
from popc.transforms.batch_serialization.schedule import BatchSchedule
from popc.transforms.batch_serialization.serialize import BatchSerialization
from popc.transforms.batch_serialization.sums import SumParts

__all__ = [
    "BatchSchedule",
    "BatchSerialization",
    "Case",
    "Cut",
    "FillPhases",
    "SumParts",
    "part_type",
    "sound_cut",
]
