"""Archives of one instruction in which something is not what it should be."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any, Final

import numpy as np

from popc_runtime import Executable
from popc_runtime.errors import CorruptArchiveError
from popc_runtime.format import (
    Attribute,
    DType,
    Instruction,
    Packing,
    ProgramImage,
    Region,
    Slot,
    decode_program,
    encode_program,
)
from popc_runtime.ground.frozen import replace
from tests.format.samples import sample_manifest
from tests.native.hostile import Trial
from tests.native.problems import Problem

__all__ = ["trials"]

_ALIGNMENT: Final = 64
_ROOM: Final = 1 << 16  # bytes of each region, beyond what the instruction needs
_INTEGERS: Final = (-1, 0, 1, 2, 3, 7, 1 << 31, 1 << 40, 1 << 62, -(1 << 63))
_FLOATS: Final = (0.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-300, 1e300)
# They refuse values, and those of operands that are not known are 0.
_JUDGES: Final = frozenset({"PlacesWithin", "TreeEnsemble"})


def trials(problem: Problem, count: int) -> Iterator[Trial]:
    """``count`` archives that were made of ``problem``; the first one as it is, which is right."""
    image, weights = _image(problem)
    for number in range(count):
        random = Random(f"{problem.opcode} {number}")
        forged, label = _forged(image, random) if number else (image, "as it is")
        engine = random.choice(("native", "native", "numpy"))
        yield Trial(
            f"{problem.opcode} by {engine}: {label}",
            partial(_load, forged, weights, engine),
            is_right=not number and problem.opcode not in _JUDGES,
        )


def _load(image: ProgramImage, weights: bytes, engine: str) -> Executable:
    """What `popc_runtime.load` makes of an archive of ``image``.

    Raises:
        PopcError: it cannot be loaded.
    """
    try:
        program = encode_program(image)
    except ValueError as error:  # readers refuse the same: see tests/format
        raise CorruptArchiveError(str(error)) from error
    manifest = sample_manifest(inputs=(), outputs=(), streams=(), programs=("main",), sequences=())
    decoded = decode_program(program)
    return Executable(manifest, decoded, memoryview(weights), threads=2, engine=engine)


# -- the image -------------------------------------------------------------------------------------


def _image(problem: Problem) -> tuple[ProgramImage, bytes]:
    """A program of the instruction alone, and its constants; other operands are zeros."""
    slots: list[Slot] = []
    weights = bytearray(_ROOM)
    used = 0
    for array, type_, constant in zip(problem.inputs, problem.types, problem.constant, strict=True):
        if array is None or type_ is None:
            continue
        if constant:
            at = len(weights)
            weights += array.tobytes()
            weights += bytes(-len(weights) % _ALIGNMENT)
            slots.append(Slot(Region.CONSTANT, at, type_.dtype, type_.shape))
        else:
            slots.append(Slot(Region.ARENA, used, type_.dtype, type_.shape))
            used += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    inputs = iter(range(len(slots)))
    operands = tuple(-1 if operand is None else next(inputs) for operand in problem.inputs)
    results = []
    for type_ in problem.output_types:
        results.append(len(slots))
        slots.append(Slot(Region.ARENA, used, type_.dtype, type_.shape))
        nbytes = int(np.prod(type_.shape, dtype=np.int64)) * type_.dtype.itemsize
        used += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
    item = Instruction(problem.opcode, operands, tuple(results), problem.attributes, "item")
    image = ProgramImage(tuple(slots), {"main": (item,)}, used + _ROOM, len(weights), _ROOM)
    return image, bytes(weights)


# -- what is made of it ----------------------------------------------------------------------------


def _forged(image: ProgramImage, random: Random) -> tuple[ProgramImage, str]:
    """An image in which one or two things are others, and what they are."""
    labels = []
    for _ in range(random.choice((1, 1, 2))):
        change = random.choice((_other_slot, _other_slot, _other_attribute, _other_operands))
        image, label = change(image, random)
        labels.append(label)
    return image, ", ".join(labels)


def _other_slot(image: ProgramImage, random: Random) -> tuple[ProgramImage, str]:
    number = random.randrange(len(image.slots))
    old = image.slots[number]
    change = random.choice(_CHANGES)
    slot = change(old, random)
    slots = (*image.slots[:number], slot, *image.slots[number + 1 :])
    return replace(image, slots=slots), f"slot {number}: {_shown(old)} is {_shown(slot)}"


def _shown(slot: Slot) -> str:
    packing = "" if slot.packing is Packing.NONE else f" in {slot.packing.name}"
    return f"{slot.region.name}+{slot.offset} {slot.dtype}{slot.shape}{slot.strides or ''}{packing}"


def _other_shape(slot: Slot, random: Random) -> Slot:
    shape = list(slot.shape)
    kind = random.randrange(4)
    if kind == 0 or not shape:
        shape.insert(random.randint(0, len(shape)), random.choice((0, 1, 2, 3)))
    elif kind == 1:
        del shape[random.randrange(len(shape))]
    else:
        place = random.randrange(len(shape))
        shape[place] = max(0, random.choice((0, 1, shape[place] - 1, shape[place] + 1, 1000)))
    return replace(slot, shape=tuple(shape), strides=None)


def _other_strides(slot: Slot, random: Random) -> Slot:
    item = slot.dtype.itemsize
    strides = tuple(item * random.choice((0, 1, -1, 2, 5, 64, 1 << 50)) for _ in slot.shape)
    low = sum(min(0, (dim - 1) * step) for dim, step in zip(slot.shape, strides, strict=True))
    return replace(slot, strides=strides, offset=max(slot.offset, -low) if low > -_ROOM else 0)


def _other_place(slot: Slot, random: Random) -> Slot:
    item = slot.dtype.itemsize
    region = random.choice((slot.region, Region.ARENA, Region.CONSTANT, Region.STATE))
    offset = item * random.choice((0, 1, 3, 64, slot.offset // item + 1, _ROOM // item - 1))
    return replace(slot, region=region, offset=offset)


def _other_type(slot: Slot, random: Random) -> Slot:
    return replace(slot, dtype=random.choice(list(DType)))


def _other_packing(slot: Slot, random: Random) -> Slot:
    changes: dict[str, Any] = {"region": Region.CONSTANT, "dtype": DType.FLOAT32, "strides": None}
    changes["offset"] = slot.offset // _ALIGNMENT * _ALIGNMENT
    return replace(slot, **changes, packing=random.choice((Packing.ROWS, Packing.COLUMNS)))


_CHANGES: Final = (
    *(_other_shape, _other_shape, _other_strides),
    *(_other_place, _other_type, _other_packing),
)


def _item(image: ProgramImage) -> Instruction:
    item = image.programs["main"][0]
    assert isinstance(item, Instruction)
    return item


def _other_attribute(image: ProgramImage, random: Random) -> tuple[ProgramImage, str]:
    item = _item(image)
    if not item.attributes:
        return _other_operands(image, random)
    name = random.choice(sorted(item.attributes))
    attributes = dict(item.attributes)
    if random.random() < 0.1:
        del attributes[name]
    else:
        attributes[name] = _other_value(attributes[name], random)
    changed = replace(item, attributes=attributes)
    label = f"{name}: {item.attributes[name]!r} is {attributes.get(name)!r}"
    return replace(image, programs={"main": (changed,)}), label


def _other_value(value: Attribute, random: Random) -> Attribute:
    if isinstance(value, int):
        return random.choice((*_INTEGERS, value - 1, value + 1))
    if isinstance(value, float):
        return random.choice(_FLOATS)
    if isinstance(value, str):
        return random.choice(("", "other", value + "x"))
    values: list[Any] = list(value)
    kind = random.randrange(4)
    if kind == 0:
        values = values[:-1]
    elif kind == 1:
        values += values[-1:]
    elif values:
        place = random.randrange(len(values))
        values[place] = _other_value(values[place], random)
    return tuple(values)


def _other_operands(image: ProgramImage, random: Random) -> tuple[ProgramImage, str]:
    item = _item(image)
    inputs, outputs = list(item.inputs), list(item.outputs)
    where = random.choice((inputs, inputs, outputs))
    kind = random.randrange(3)
    if kind == 0 and where:
        where.pop()
    elif kind == 1 or not where:
        where.append(random.randrange(-1, len(image.slots)))
    else:
        where[random.randrange(len(where))] = random.randrange(-1, len(image.slots))
    changed = replace(item, inputs=tuple(inputs), outputs=tuple(outputs))
    return replace(image, programs={"main": (changed,)}), f"operands {inputs} to {outputs}"
