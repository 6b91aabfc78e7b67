"""Chains of functions of single elements: the maps of all steps as one record.

Each step is encoded as the same instruction alone would be, on a stand-in for what other steps
compute; then addresses become references to tensors and to slots, blocks of a thread's memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from popc_runtime.format.dtypes import DType
from popc_runtime.ground.frozen import frozen, replace
from popc_runtime.ground.hints import Final
from popc_runtime.kernels.parts.fused_steps import FusedStep, last_uses, steps_of
from popc_runtime.native.binding import NativeBinding, Space
from popc_runtime.native.contiguous import straightened
from popc_runtime.native.encoding import encode
from popc_runtime.native.halves import ROUNDING
from popc_runtime.native.record import Encoder, Record, tensor_words
from popc_runtime.native.views import View

__all__ = ["ENCODERS"]

# Bounds of csrc/kernels/fused/fused_maps.c.
_MOST_TENSORS: Final = 24
_MOST_SLOTS: Final = 24
_MOST_MAPS: Final = 96
_PARAMETERS: Final = 3  # words at the end of a map's record that hold its parameters
_SIZES: Final = (4, 8, 2, 2, 1, 1, 2, 2, 4, 4, 8, 8, 1)  # of element types by their numbers


class _Stand(Space):
    """Hands out views of no memory: what a step computes, and what it takes for itself.

    Addresses are negative, so that they are told from those of memory.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def take(self, shape: tuple[int, ...], dtype: DType) -> View:
        """A contiguous view at an address that is no other's."""
        self._next -= 1
        return View(self._next, shape, dtype)


@frozen
class _Map:
    """A record of a map: its tensors, the result first, and its parameters."""

    kernel: str
    tensors: tuple[tuple[int, ...], ...]
    parameters: tuple[int, ...]

    @property
    def target(self) -> int:
        """The address of the result."""
        return self.tensors[0][0]

    @property
    def sources(self) -> list[int]:
        """The addresses of what no memory is for among the operands."""
        return [words[0] for words in self.tensors[1:] if words[0] < 0]


def _fused(binding: NativeBinding, numbers: Mapping[str, int]) -> Record | None:
    """Inputs that broadcast to the result, and attributes as in `fused_steps`."""
    out = binding.output()
    if out.size == 0 or "FusedMaps" not in numbers:
        return None
    steps = steps_of(binding.attributes, len(binding.inputs))
    stand = _Stand()
    last = stand.take(out.shape, out.dtype)
    given = [binding.input(index) for index in range(len(binding.inputs))]
    inputs, before = straightened(binding, given, out)
    straight = replace(binding, inputs=tuple(inputs))
    records = _step_records(straight, numbers, steps, stand, last)
    # Rounding other than to the nearest is no map: it draws numbers, or looks at all elements.
    if records is None or any(record.kernel == ROUNDING for record in records):
        return _one_by_one(binding, numbers, steps)
    maps = [_map_of(record, out.shape) for record in records]
    words = _words(maps, out, binding.output_dtypes[0], last.address, numbers)
    if words is None:
        return _one_by_one(binding, numbers, steps)
    views = tuple(view for record in records for view in record.keeps_alive)
    return Record("FusedMaps", words, (*inputs, out, *views), before=before)


def _one_by_one(
    binding: NativeBinding, numbers: Mapping[str, int], steps: Sequence[FusedStep]
) -> Record | None:
    """All steps as records of their own; ``None`` if there are none for one of them."""
    records = _step_records(binding, numbers, steps, binding.scratch, binding.output())
    if records is None:
        return None
    *before, record = records
    return replace(record, before=tuple(before))


def _step_records(
    binding: NativeBinding,
    numbers: Mapping[str, int],
    steps: Sequence[FusedStep],
    scratch: Space,
    last: View,
) -> list[Record] | None:
    """The records of all steps in order; ``last`` is what the last one fills."""
    known = len(binding.inputs)
    views: list[View | None] = list(binding.inputs)
    dtypes = [*binding.input_dtypes, *(step.dtype for step in steps)]
    found: list[Record] = []
    for step in steps:
        final = step is steps[-1]
        views.append(last if final else scratch.take(last.shape, _stored(step.dtype)))
        inner = replace(
            binding,
            inputs=tuple(views[index] for index in step.operands),
            outputs=(views[-1],),
            input_dtypes=tuple(dtypes[index] for index in step.operands),
            output_dtypes=(step.dtype,),
            attributes=step.attributes,
            constant=tuple(index < known and binding.is_constant(index) for index in step.operands),
            scratch=scratch,
        )
        record = encode(step.opcode, inner, numbers)
        if record is None:
            return None
        found += _flat(record)
    return found


def _stored(dtype: DType) -> DType:
    return DType.UINT16 if dtype is DType.BFLOAT16 else dtype


def _flat(record: Record) -> Iterator[Record]:
    for call in record.before:
        yield from _flat(call)
    yield replace(record, before=(), after=())
    for call in record.after:
        yield from _flat(call)


def _map_of(record: Record, shape: tuple[int, ...]) -> _Map:
    """The map of a record, with tensors broadcast to ``shape``.

    An operand that is converted is so by itself, whatever it is broadcast to afterwards.
    """
    tensors: list[tuple[int, ...]] = []
    at, end = 0, len(record.words) - _PARAMETERS
    while at < end:
        rank = record.words[at + 3]
        head, dims, strides = (
            record.words[begin : begin + size]
            for begin, size in ((at, 3), (at + 4, rank), (at + 4 + rank, rank))
        )
        ones = (0,) * (len(shape) - rank)
        steps = (0 if dim == 1 else step for dim, step in zip(dims, strides, strict=True))
        tensors.append((*head, len(shape), *shape, *ones, *steps))
        at += 4 + 2 * rank
    return _Map(record.kernel, tuple(tensors), record.words[end:])


# -- references ------------------------------------------------------------------------------------


def _words(
    maps: Sequence[_Map],
    out: View,
    dtype: DType | None,
    last: int,
    numbers: Mapping[str, int],
) -> tuple[int, ...] | None:
    """The record's words; ``None`` if there are more steps or tensors than the kernel takes."""
    outside = dict.fromkeys(words for map_ in maps for words in map_.tensors[1:] if words[0] >= 0)
    slots = _slots(maps, last)
    first = 1 + len(outside)  # the number of the first slot
    if first > _MOST_TENSORS or len(slots.sizes) > _MOST_SLOTS or len(maps) > _MOST_MAPS:
        return None
    places = {words: number for number, words in enumerate(outside, start=1)}
    found = [first, *tensor_words(out, dtype=dtype)]
    found += [word for words in outside for word in words]
    found += [len(slots.sizes), *slots.sizes, len(maps)]
    for map_, (target, sources) in zip(maps, slots.references, strict=True):
        inside = iter(sources)
        references = (
            0 if target is None else first + target,
            *(places[of] if of[0] >= 0 else first + next(inside) for of in map_.tensors[1:]),
        )
        found.append(numbers[map_.kernel])
        for reference, words in zip(references, map_.tensors, strict=True):
            found += [1 + reference, words[1], 0, 0]  # 0 stands for an absent tensor
        found += map_.parameters
    return tuple(found)


@frozen
class _Slots:
    """Bytes of an element of each slot; for each map the slot it fills, and those it reads.

    What fills the result fills no slot.
    """

    sizes: list[int]
    references: list[tuple[int | None, list[int]]]


def _slots(maps: Sequence[_Map], last: int) -> _Slots:
    """A slot is free again when what is in it has been read for the last time.

    What is written twice are two values.
    """
    ends = last_uses(map_.sources for map_ in maps)
    sizes: list[int] = []
    free: list[int] = []
    held: dict[int, int] = {}
    references: list[tuple[int | None, list[int]]] = []
    for number, map_ in enumerate(maps):
        sources = [held[address] for address in map_.sources]
        dead = [source for source in dict.fromkeys(map_.sources) if ends[source] == number]
        free += [held.pop(source) for source in dead]
        if number + 1 == len(maps):
            assert map_.target == last, "the last step gives the result"
            references.append((None, sources))
            break
        size = _SIZES[map_.tensors[0][1]]
        slot = next((each for each in reversed(free) if sizes[each] == size), None)
        if slot is None:
            slot = len(sizes)
            sizes.append(size)
        else:
            free.remove(slot)
        if map_.target in held:
            free.append(held[map_.target])
        held[map_.target] = slot
        references.append((slot, sources))
    return _Slots(sizes, references)


ENCODERS: Final[dict[str, Encoder]] = {"FusedElementwise": _fused}
