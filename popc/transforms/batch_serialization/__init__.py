"""Batch serialization: the parts of a batch go through the network one after another."""

from popc.transforms.batch_serialization.phases import FillPhases
from popc.transforms.batch_serialization.schedule import BatchSchedule
from popc.transforms.batch_serialization.serialize import BatchSerialization
from popc.transforms.batch_serialization.sums import SumParts

__all__ = [
    "BatchSchedule",
    "BatchSerialization",
    "FillPhases",
    "SumParts",
]
