"""The memory of one loaded program: its regions and the slots that look into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from popc_runtime.errors import CorruptArchiveError
from popc_runtime.format import (
    Array,
    Packing,
    ProgramImage,
    Region,
    Slot,
    VariableSpec,
    aligned_bytes,
    packed_bytes,
    unpack_panels,
)
from popc_runtime.native.views import PackedView, View, address_of

__all__ = ["Memory"]


class Memory:
    """Regions of one program image; ``constants`` are shared and never written.

    Slots are arrays for numpy's kernels, and views for native ones.  Constants in panels are
    unpacked, once, for whoever has no use for panels.

    Views keep regions, not this object, which keeps them: memory is free when nobody uses it, and
    does not wait for a collector of cycles.
    """

    def __init__(self, image: ProgramImage, constants: memoryview) -> None:
        self._regions = {
            Region.ARENA: aligned_bytes(image.arena_bytes),
            Region.CONSTANT: constants,
            Region.STATE: aligned_bytes(image.state_bytes),
            Region.REMOTE: aligned_bytes(image.remote_bytes),
        }
        self._slots = image.slots
        self._arrays = _Arrays(self._regions, image.slots)
        self._views: dict[int, View] = {}
        self._addresses: dict[Region, int] = {}

    def check(self, spec: VariableSpec) -> None:
        """Check that a variable lies in the region that it should.

        Raises:
            CorruptArchiveError: it does not.
        """
        region = _region_of(spec)
        if spec.offset + spec.nbytes > self._regions[region].nbytes:
            raise CorruptArchiveError(
                f"the archive is damaged: variable {spec.name!r} lies outside of the "
                f"{region.name.lower()} region",
                hint="copy it again, or compile the model again",
            )

    def variable(self, spec: VariableSpec) -> Array:
        """The array that holds a variable."""
        slot = Slot(_region_of(spec), spec.offset, spec.dtype, spec.shape)
        return _make_array(slot, self._regions[slot.region])

    def array(self, index: int) -> Array:
        """The array that slot ``index`` stands for."""
        return self._arrays[index]

    def arrays(self, indices: Sequence[int]) -> tuple[Array | None, ...]:
        """The arrays of an operand list; -1 gives ``None``."""
        return tuple(None if index < 0 else self.array(index) for index in indices)

    def view(self, index: int) -> View:
        """The view that slot ``index`` stands for."""
        if index not in self._views:
            slot = self._slots[index]
            address = self._address(slot.region) + slot.offset
            region = self._regions[slot.region]
            view = View(address, slot.shape, slot.dtype.stored, slot.strides, region)
            if slot.packing is not Packing.NONE:
                view = PackedView(view, slot.packing, partial(self._arrays.address, index))
            self._views[index] = view
        return self._views[index]

    def views(self, indices: Sequence[int]) -> tuple[View | None, ...]:
        """The views of an operand list; -1 gives ``None``."""
        return tuple(None if index < 0 else self.view(index) for index in indices)

    def _address(self, region: Region) -> int:
        if region not in self._addresses:
            self._addresses[region] = address_of(self._regions[region])
        return self._addresses[region]


class _Arrays(dict[int, Array]):
    """The arrays that slots stand for; each is made when somebody asks for it."""

    def __init__(self, regions: Mapping[Region, memoryview], slots: Sequence[Slot]) -> None:
        super().__init__()
        self._regions = regions
        self._slots = slots

    def __missing__(self, index: int) -> Array:
        slot = self._slots[index]
        self[index] = _make_array(slot, self._regions[slot.region])
        return self[index]

    def address(self, index: int) -> int:
        """The address of the elements of slot ``index``, those in panels in their own order."""
        address: int = self[index].__array_interface__["data"][0]
        return address


def _make_array(slot: Slot, buffer: memoryview) -> Array:
    import numpy as np  # native programs have no arrays

    if 0 in slot.shape:
        return np.empty(slot.shape, slot.dtype.storage)
    if slot.packing is not Packing.NONE:
        count = packed_bytes(slot.shape, slot.packing) // slot.dtype.itemsize
        packed = np.frombuffer(buffer, slot.dtype.storage, count, slot.offset)
        return unpack_panels(packed, slot.shape, slot.packing)
    return np.ndarray(slot.shape, slot.dtype.storage, buffer, slot.offset, slot.strides)


def _region_of(spec: VariableSpec) -> Region:
    return Region.REMOTE if spec.off_chip else Region.STATE
