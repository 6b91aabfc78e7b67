"""The memory of one loaded program: its regions and the slots that look into them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from popc_runtime.errors import CorruptArchiveError
from popc_runtime.format import (
    Array,
    ProgramImage,
    Region,
    Slot,
    VariableSpec,
    aligned_empty,
)

__all__ = ["Memory"]


class Memory:
    """Regions of one program image; ``constants`` are shared and never written."""

    def __init__(self, image: ProgramImage, constants: Array) -> None:
        self._regions = {
            Region.ARENA: aligned_empty(image.arena_bytes),
            Region.CONSTANT: constants,
            Region.STATE: aligned_empty(image.state_bytes),
            Region.REMOTE: aligned_empty(image.remote_bytes),
        }
        self._slots = image.slots
        self._views: dict[int, Array] = {}

    def variable(self, spec: VariableSpec) -> Array:
        """The array that holds a variable.

        Raises:
            CorruptArchiveError: it does not lie in the region that it should.
        """
        region = Region.REMOTE if spec.off_chip else Region.STATE
        if spec.offset + spec.nbytes > self._regions[region].nbytes:
            raise CorruptArchiveError(
                f"the archive is damaged: variable {spec.name!r} lies outside of the "
                f"{region.name.lower()} region",
                hint="copy it again, or compile the model again",
            )
        return self._make_view(Slot(region, spec.offset, spec.dtype, spec.shape))

    def view(self, index: int) -> Array:
        """The array that slot ``index`` stands for."""
        if index not in self._views:
            self._views[index] = self._make_view(self._slots[index])
        return self._views[index]

    def operands(self, indices: Sequence[int]) -> tuple[Array | None, ...]:
        """The arrays of an operand list; -1 gives ``None``."""
        return tuple(None if index < 0 else self.view(index) for index in indices)

    def _make_view(self, slot: Slot) -> Array:
        buffer = self._regions[slot.region]
        if 0 in slot.shape:
            return np.empty(slot.shape, slot.dtype.storage)
        return np.ndarray(slot.shape, slot.dtype.storage, buffer, slot.offset, slot.strides)
