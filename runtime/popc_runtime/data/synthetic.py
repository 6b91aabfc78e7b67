"""Data that is made up, for inputs that nobody gives."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np

from popc_runtime.format import Array, DType, StreamSpec, SyntheticData
from popc_runtime.kernels.core.stored import to_bfloat16

__all__ = ["SyntheticInput", "synthetic_sample"]


class SyntheticInput:
    """Feeds the device with one sample, which depends on the seed, again and again.

    Each program of an archive has a stream of this name; those of one size get one sample.
    """

    def __init__(self, streams: Sequence[StreamSpec], seed: int) -> None:
        self._streams = streams
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Make the samples of another seed."""
        samples = (synthetic_sample(stream, seed).tobytes() for stream in self._streams)
        self._samples = {len(sample): sample for sample in samples}

    def load(self, target: memoryview) -> None:
        """Copy the sample to device memory."""
        target[:] = self._samples[target.nbytes]


def synthetic_sample(stream: StreamSpec, seed: int) -> Array:
    """The sample of a stream as arrays store it; streams with other names have other numbers."""
    if stream.synthetic is SyntheticData.ZEROS or not stream.dtype.is_float:
        return np.zeros(stream.shape, stream.dtype.storage)
    generator = np.random.default_rng([abs(seed), crc32(stream.name.encode())])
    is_normal = stream.synthetic is SyntheticData.RANDOM_NORMAL
    draw = generator.standard_normal if is_normal else generator.random
    values = np.asarray(draw(stream.shape, np.float32))
    if stream.dtype is DType.BFLOAT16:
        return to_bfloat16(values)
    return values.astype(stream.dtype.storage)
