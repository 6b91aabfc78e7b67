"""Inputs that land in memory of their own, against a run in which every byte has a history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from popc_runtime.device import departure, landing
from popc_runtime.device.landing import Landings, with_landings
from popc_runtime.format import (
    Block,
    CallBlock,
    DType,
    IfBlock,
    Instruction,
    Item,
    ProgramImage,
    Region,
    RepeatBlock,
    Slot,
)

_BYTES = 24  # of the arena


@pytest.fixture(autouse=True)
def _small_inputs() -> Iterator[None]:
    with patch.object(landing, "LEAST", 4), patch.object(departure, "LEAST", 4):
        yield


class _Histories:
    """Runs a program: each byte written is a new number, and what was read is noted.

    ``choices`` decide how often loops run, and which way branches go.
    """

    def __init__(self, image: ProgramImage, choices: int) -> None:
        self.image = image
        self.seen: list[object] = []
        self._choices = np.random.default_rng(choices)
        memory = np.zeros(image.arena_bytes, np.int64)
        self._views = [_view(memory, slot) for slot in image.slots]
        self._written = 0

    def run(self, block: Block) -> None:
        for item in block:
            self._item(item)

    def _item(self, item: Item) -> None:
        if isinstance(item, Instruction):
            self.seen.append((item.name, *(self._bytes(each).tolist() for each in item.inputs)))
            for number in item.outputs:
                self._write(number)
        elif isinstance(item, CallBlock):
            self.run(self.image.programs[item.program])
        elif isinstance(item, IfBlock):
            self.seen.append(self._bytes(item.condition_slot).tolist())
            self.run(item.then_body if self._choices.integers(2) else item.else_body)
        else:
            for _ in range(self._choices.integers(3)):
                self._write(item.counter_slot)
                self.seen.append(self._bytes(item.condition_slot).tolist())
                self.run(item.body)

    def _bytes(self, number: int) -> Any:
        return self._views[number] if number >= 0 else np.zeros(0)

    def _write(self, number: int) -> None:
        found = self._bytes(number)
        found[...] = np.arange(found.size).reshape(found.shape) + 1 + self._written
        self._written += found.size


def _view(memory: Any, slot: Slot) -> Any:
    strides = [8 * step for step in slot.strides or np.zeros(slot.shape, np.int8).strides]
    return np.lib.stride_tricks.as_strided(memory[slot.offset :], slot.shape, strides)


class _Programs:
    """Programs made at random, of instructions on bytes."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._slots: list[Slot] = []

    def image(self) -> ProgramImage:
        loads = [self._load(name) for name in "ab"[: self._random.integers(1, 3)]]
        early = [self._instruction()] if self._random.integers(2) else []
        called = (self._instruction(),)
        main = (*early, *loads, *self._items(8, 2), *self._result())
        programs = {"main": main, "called": called}
        return ProgramImage(tuple(self._slots), programs, _BYTES, 0, 0)

    def _result(self) -> Block:
        """Something that is written, perhaps read or overwritten, and stored."""
        made = self._slot((int(self._random.integers(4, 13)),), None)
        write = Instruction("Any", (self._any_slot(),), (made,), {}, "result")
        between = tuple(self._item(1) for _ in range(self._random.integers(3)))
        store = Instruction("HostStore", (made,), (), {"stream": "result"}, "store")
        return (write, *between, store, *self._items(3, 1)[1:])

    def _load(self, name: str) -> Instruction:
        size = int(self._random.integers(4, 13))
        return Instruction("HostLoad", (), (self._slot((size,), None),), {"stream": name}, name)

    def _slot(self, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> int:
        reach = sum((dim - 1) * step for dim, step in zip(shape, strides or (1,), strict=True)) + 1
        offset = int(self._random.integers(0, max(1, _BYTES - reach + 1)))
        self._slots.append(Slot(Region.ARENA, offset, DType.INT8, shape, strides))
        return len(self._slots) - 1

    def _any_slot(self) -> int:
        if self._slots and self._random.integers(3) == 0:  # in place, or once more
            return int(self._random.integers(len(self._slots)))
        size = int(self._random.integers(1, 7))
        if self._random.integers(3):
            return self._slot((size,), None)
        return self._slot((size, int(self._random.integers(1, 3))), (3, 1))

    def _items(self, most: int, depth: int) -> Block:
        return tuple(self._item(depth) for _ in range(self._random.integers(1, most)))

    def _item(self, depth: int) -> Item:
        kind = int(self._random.integers(9)) if depth else 8
        if kind == 0:
            body = self._items(4, depth - 1)
            return RepeatBlock(body, -1, -1, self._any_slot(), self._any_slot())
        if kind == 1:
            then_body, else_body = self._items(3, depth - 1), self._items(3, depth - 1)
            return IfBlock(self._any_slot(), then_body, else_body)
        return CallBlock("called") if kind == 2 else self._instruction()

    def _instruction(self) -> Instruction:
        stores = self._random.integers(6) == 0
        inputs = (self._any_slot(), *((self._any_slot(), -1) if self._random.integers(2) else ()))
        name = str(self._random.integers(1 << 30))
        if stores:
            return Instruction("HostStore", inputs[:1], (), {"stream": name}, name)
        return Instruction("Any", inputs, (self._any_slot(),), {}, name)


def _written(image: ProgramImage, block: Block) -> Iterator[int]:
    for item in block:
        if isinstance(item, Instruction):
            yield from (number for number in item.outputs if item.opcode != "HostLoad")
        elif isinstance(item, CallBlock):
            yield from _written(image, image.programs[item.program])
        elif isinstance(item, IfBlock):
            yield from _written(image, (*item.then_body, *item.else_body))
        else:
            yield item.counter_slot
            yield from _written(image, item.body)


@pytest.mark.parametrize("part", range(6))
def test_every_reader_sees_the_same_bytes(part: int) -> None:
    landed = departed = copied = 0
    for seed in range(200 * part, 200 * part + 200):
        image = _Programs(seed).image()
        made, landings = with_landings(image)
        slots = landings.own
        copied += len(landings.copied)
        landed += len(slots)
        assert all(made.slots[number].offset >= _BYTES for number in slots)
        apart = [number for number in _written(made, made.programs["main"]) if number >= 0]
        apart = [number for number in apart if made.slots[number].offset >= _BYTES]
        results = [number for number in apart if number in slots]
        departed += len(results)
        assert apart == results, "an input is overwritten, or part of a result"
        assert len(set(results)) == len(results), "a result is overwritten"
        for choices in range(4):
            before, after = _Histories(image, choices), _Histories(made, choices)
            before.run(image.programs["main"])
            after.run(made.programs["main"])
            assert before.seen == after.seen, (seed, choices)
    assert landed > 40
    assert departed > 4
    assert copied


def _image(*items: Item, **slots: tuple[int, tuple[int, ...], tuple[int, ...] | None]) -> Any:
    made = [Slot(Region.ARENA, at, DType.INT8, shape, steps) for at, shape, steps in slots.values()]
    return ProgramImage(tuple(made), {"main": items}, _BYTES, 0, 0)


_LOAD = Instruction("HostLoad", (), (0,), {"stream": "x"}, "x")


def test_joined_parts_take_the_place_of_an_input() -> None:
    """Operands of a Concat along the last axis, of which none leaves memory without gaps."""
    image = _image(
        _LOAD,
        Instruction("Neg", (0,), (1,)),
        *(Instruction("Neg", (1,), (number,)) for number in (4, 2, 3)),
        Instruction("Neg", (5,), (1,)),
        x=(0, (12,), None),
        y=(12, (12,), None),
        first=(0, (3, 1), (4, 1)),
        second=(1, (3, 2), (4, 1)),
        third=(3, (3, 1), (4, 1)),
        whole=(0, (12,), None),
    )
    made, landed = with_landings(image)
    assert len(landed.own) == 1
    last = made.programs["main"][-1]
    assert isinstance(last, Instruction)
    assert last.inputs == (5,)
    items = image.programs["main"]
    missing = ProgramImage(image.slots, {"main": (*items[:4], items[5])}, _BYTES, 0, 0)
    assert with_landings(missing) == (missing, Landings())


def test_called_programs_do_not_land_their_inputs() -> None:
    image = _image(_LOAD, Instruction("Neg", (0,), (1,)), x=(0, (8,), None), y=(8, (8,), None))
    programs = {"called": image.programs["main"], "main": (CallBlock("called"),)}
    called = ProgramImage(image.slots, programs, _BYTES, 0, 0)
    assert with_landings(called) == (called, Landings())
    assert len(with_landings(image)[1].own) == 1


@pytest.mark.parametrize("inputs", [(), (-1,), (1, 1), (0,), (0, 1)])
@pytest.mark.parametrize("outputs", [(), (-1,), (0, 1)])
def test_moves_of_other_than_one_tensor_are_left_to_whoever_binds_them(
    inputs: tuple[int, ...], outputs: tuple[int, ...]
) -> None:
    """As they are in archives that somebody has changed."""
    items = (Instruction("HostLoad", (), outputs), Instruction("HostStore", inputs, ()))
    image = _image(*items, x=(0, (8,), None), y=(8, (8,), None))
    made, landed = with_landings(image)
    assert made.programs == image.programs
    assert not landed.own
    held = _image(_LOAD, items[1], x=(0, (8,), None), y=(8, (8,), None))
    store = with_landings(held)[0].programs["main"][-1]
    assert isinstance(store, Instruction)
    assert inputs in ((0,), store.inputs)


def test_small_inputs_are_copied() -> None:
    image = _image(_LOAD, Instruction("Neg", (0,), (1,)), x=(0, (8,), None), y=(8, (8,), None))
    with patch.object(landing, "LEAST", 9):
        assert with_landings(image) == (image, Landings())
