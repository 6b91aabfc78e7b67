from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popc_runtime.errors import CorruptArchiveError
from popc_runtime.format import (
    Attribute,
    Block,
    CallBlock,
    DType,
    IfBlock,
    Instruction,
    Limits,
    ProgramImage,
    Region,
    RepeatBlock,
    Slot,
    decode_program,
    encode_program,
    instructions_of,
    validate_image,
)
from popc_runtime.format.serialization import pack
from tests.format.samples import REGION_BYTES, images, sample_image
from tests.support.work import counted_calls


def test_round_trip_of_every_construct() -> None:
    image = sample_image()
    assert decode_program(encode_program(image)) == image


@settings(deadline=None)
@given(images())
def test_round_trip(image: ProgramImage) -> None:
    data = encode_program(image)
    assert decode_program(data) == image
    assert encode_program(decode_program(data)) == data


def test_order_of_programs_and_attributes_does_not_matter() -> None:
    def image(*, turned: bool) -> ProgramImage:
        step = -1 if turned else 1
        attributes: dict[str, Attribute] = dict([("a", 1), ("b", 2)][::step])
        block: Block = (Instruction("Relu", (), (), attributes),)
        return ProgramImage((), dict([("x", block), ("y", ())][::step]), 0, 0, 0)

    assert encode_program(image(turned=False)) == encode_program(image(turned=True))


@pytest.mark.parametrize("value", [math.nan, -0.0, math.inf, 5e-324, (math.nan, 1.0)])
def test_floats_keep_their_bits(value: Attribute) -> None:
    image = ProgramImage((), {"main": (Instruction("Fill", (), (), {"value": value}),)}, 0, 0, 0)
    block = decode_program(encode_program(image)).programs["main"]
    assert isinstance(block[0], Instruction)
    assert repr(block[0].attributes["value"]) == repr(value)


def test_types_of_equal_numbers_are_kept_apart() -> None:
    values: tuple[Attribute, ...] = (0, 0.0, -0.0, "0", (0,), (0.0,), ("0",), 1, 1.0)
    block = tuple(Instruction("Fill", (), (), {"value": value}) for value in values)
    decoded = decode_program(encode_program(ProgramImage((), {"main": block}, 0, 0, 0)))
    found = [item.attributes["value"] for item in instructions_of(decoded.programs["main"])]
    assert [repr(value) for value in found] == [repr(value) for value in values]


def test_integers_among_floats_become_floats() -> None:
    mixed: Any = (1, 0.5)
    image = ProgramImage((), {"main": (Instruction("Fill", (), (), {"value": mixed}),)}, 0, 0, 0)
    block = decode_program(encode_program(image)).programs["main"]
    assert isinstance(block[0], Instruction)
    assert repr(block[0].attributes["value"]) == "(1.0, 0.5)"


def test_the_work_for_a_program_grows_as_the_program() -> None:
    """And is little: 168 calls for each instruction with its slots and its attribute."""
    counts: list[int] = []
    for count in (1_000, 4_000):
        image = _convolutions(count)
        with counted_calls() as calls:
            decoded = decode_program(encode_program(image))
        counts.append(calls())
        assert decoded == image
    few, many = counts
    assert many < 4.4 * few
    assert many < 250 * 4_000


def _convolutions(count: int) -> ProgramImage:
    slots = tuple(Slot(Region.ARENA, 64 * n, DType.FLOAT32, (1, 4, 4)) for n in range(count + 2))
    block = tuple(
        Instruction("Conv", (n, n + 1, -1), (n + 2,), {"pads": (0, n % 3)}, f"/layer{n}/Conv")
        for n in range(count)
    )
    return ProgramImage(slots, {"main": block}, 64 * len(slots), 0, 0)


# -- what validation refuses -----------------------------------------------------------------------


def _slot(**changes: Any) -> ProgramImage:
    """An image of one slot that exactly covers its region of 64 bytes."""
    slot = Slot(Region.ARENA, 0, DType.FLOAT32, (4, 4))
    return ProgramImage((replace(slot, **changes),), {}, 64, 64, 64)


_HUGE = 1 << 62


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offset": 4}, "covers bytes 4 to 68 of a region of 64"),
        ({"offset": -4}, "covers bytes -4 to 60"),
        ({"offset": 2, "shape": (1,)}, "not aligned"),
        ({"offset": 64, "shape": ()}, "covers bytes 64 to 68"),
        ({"offset": 68, "shape": (0,)}, "covers bytes 68 to 68"),
        ({"shape": (4, 5)}, "covers bytes 0 to 80"),
        ({"shape": (-1,)}, "has shape"),
        ({"shape": (_HUGE, _HUGE)}, "has shape"),
        ({"shape": (0, _HUGE, _HUGE)}, "has shape"),
        ({"shape": (1 << 40, 1 << 40), "strides": (0, 0)}, "has shape"),
        ({"shape": (1,) * 33}, "has 33 dimensions"),
        ({"strides": (16,)}, "has 1 strides for 2 dimensions"),
        ({"strides": (17, 4)}, "not aligned"),
        ({"strides": (16, -4)}, "covers bytes -12 to 52"),
        ({"strides": (-16, 4), "offset": 52}, "covers bytes 4 to 68"),
        ({"strides": (_HUGE, 4)}, "covers bytes 0 to"),
        ({"strides": (-_HUGE, 4), "offset": _HUGE}, "covers bytes"),
    ],
)
def test_slots_outside_of_their_region(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        validate_image(_slot(**changes))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"strides": (-16, 4), "offset": 48},
        {"strides": (0, 4), "shape": (1 << 20, 16)},
        {"strides": (-4, 4), "offset": 12},
        {"shape": (0, 9), "offset": 64},
        {"shape": (0, 9), "offset": 64, "strides": (-400, 400)},
    ],
)
def test_slots_within_their_region(changes: dict[str, Any]) -> None:
    validate_image(_slot(**changes))


def _program(*block: Any, **more: Block) -> ProgramImage:
    """An image whose slots are: a bool, an int64, a float32 vector, a constant bool and int64."""
    slots = (
        Slot(Region.ARENA, 0, DType.BOOL, ()),
        Slot(Region.ARENA, 8, DType.INT64, (1,)),
        Slot(Region.ARENA, 16, DType.FLOAT32, (4,)),
        Slot(Region.CONSTANT, 0, DType.INT64, ()),
    )
    return ProgramImage(slots, {"main": block, **more}, 64, 64, 64)


def _deep(levels: int) -> Block:
    block: Block = ()
    for _ in range(levels):
        block = (RepeatBlock(block, 1),)
    return block


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (_program(Instruction("Relu", (4,), ())), "refers to a slot that does not exist"),
        (_program(Instruction("Relu", (), (-2,))), "refers to a slot that does not exist"),
        (_program(Instruction("Relu", (), (3,))), "writes to a constant"),
        (_program(Instruction("", (), ())), "has no opcode"),
        (_program(RepeatBlock((), -2)), "has -2 iterations"),
        (_program(RepeatBlock((), count_slot=0)), "must be a scalar of type int64"),
        (_program(RepeatBlock((), count_slot=-3)), "does not exist"),
        (_program(RepeatBlock((), condition_slot=1)), "must be a scalar of type bool"),
        (_program(RepeatBlock((), counter_slot=2)), "must be a scalar of type int64"),
        (_program(RepeatBlock((), counter_slot=3)), "stores its counter in a constant"),
        (_program(IfBlock(-1, (), ())), "does not exist"),
        (_program(IfBlock(0, (Instruction("Relu", (9,), ()),), ())), "does not exist"),
        (_program(IfBlock(0, (), (Instruction("Relu", (9,), ()),))), "does not exist"),
        (_program(CallBlock("other")), "'other' is called but does not exist"),
        (_program(CallBlock("main")), "'main' calls itself"),
        (_program(CallBlock("b"), b=(RepeatBlock((CallBlock("main"),)),)), "calls itself"),
        (_program(*_deep(65)), "nested too deeply"),
        (_program(*_deep(3000)), "nested too deeply"),
        (_program(CallBlock("b"), *_deep(40), b=(*_deep(64),)), "nested too deeply"),
    ],
)
def test_invalid_programs(image: ProgramImage, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        validate_image(image)


def test_a_chain_of_deep_programs_is_too_deep() -> None:
    programs = {f"p{n}": (*_chain(50, f"p{n + 1}"),) for n in range(200)}
    with pytest.raises(ValueError, match="nested too deeply"):
        validate_image(_program(CallBlock("p0"), p200=(), **programs))


def _chain(levels: int, target: str) -> Block:
    block: Block = (CallBlock(target),)
    for _ in range(levels):
        block = (RepeatBlock(block, 1),)
    return block


def test_calls_that_multiply() -> None:
    programs = {f"p{n}": (CallBlock(f"p{n + 1}"),) * 10 for n in range(40)}
    with pytest.raises(ValueError, match="more than 2,000,000 items"):
        validate_image(_program(CallBlock("p0"), p40=(), **programs))


def test_a_program_that_hands_on_what_nobody_gives_it() -> None:
    """Though the program that it calls does not use it."""
    slot = Slot(Region.PARAMETER, 0, DType.FLOAT32, (1,), None, 0)
    programs: dict[str, Block] = {"main": (CallBlock("p", (0,)),), "p": ()}
    with pytest.raises(ValueError, match="'main' has parameters, but nothing calls it"):
        validate_image(ProgramImage((slot,), programs, 0, 0, 0))


def test_regions_are_bounded() -> None:
    image = ProgramImage((), {}, 1 << 40, 0, 0)
    with pytest.raises(ValueError, match="region ARENA"):
        validate_image(image)
    validate_image(image, Limits(memory_bytes=1 << 41))


def test_invalid_images_are_not_written() -> None:
    with pytest.raises(ValueError, match="calls itself"):
        encode_program(_program(CallBlock("main")))


# -- damaged and hostile encodings -----------------------------------------------------------------


def _changed(**fields: Any) -> bytes:
    return pack({**msgpack.unpackb(encode_program(sample_image())), **fields})


def _column(*values: int) -> list[Any]:
    return ["i8", b"".join(value.to_bytes(8, "little", signed=True) for value in values)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot be read"),
        (b"\xc0", "is not a map"),
        (pack({}), "'memory' of the program is missing"),
        (_changed(memory=[1, 2]), "2 memory regions"),
        (_changed(memory=[1 << 50, 0, 0]), "'memory'"),
        (_changed(memory=[-1, 0, 0]), "'memory'"),
        (_changed(memory=[True, 0, 0]), "'memory'"),
        (_changed(item_kind="x"), "'item_kind' of the program is missing or not of type list"),
        (_changed(item_kind=["f8", b""]), "is not a column"),
        (_changed(item_kind=[[], b""]), "is not a column"),
        (_changed(item_kind=["u4", b"123"]), "ends within a number"),
        (_changed(item_kind=_column(9)), "unknown ItemKind: 9"),
        (_changed(item_kind=_column()), "more items than the program has"),
        (_changed(item_kind=_column(*[0] * 99)), "column 'item_kind' is too long"),
        (_changed(string_bytes=_column(-1)), "string of its program has an impossible size"),
        (_changed(string_bytes=_column(1 << 40)), "string of its program has an impossible size"),
        (_changed(text=b"\xff" * 1000), "not UTF-8"),
        (_changed(text=b"a" * 1000), "bytes of text after the last string"),
        (_changed(slot_rank=_column(0, 0, 1 << 40, 0, 0)), "has 1099511627776 dimensions"),
        (_changed(slot_rank=_column(0)), "columns of different lengths"),
        (_changed(slot_dtype=_column(0, 0, 0, 0, 99)), "refers to element type 99"),
        (_changed(slot_region=_column(0, 0, 0, 0, 7)), "unknown Region: 7"),
        (_changed(op_inputs=_column(-1, 1, 1, 1, 1)), "column 'op_input' is too short"),
        (_changed(op_inputs=_column(1 << 60, 1, 1, 1, 1)), "column 'op_input' is too short"),
        (_changed(op_code=_column(-1, 1, 1, 1, 1)), "refers to string -1"),
        (_changed(value_kind=_column(*[44] * 9)), "unknown AttributeKind: 44"),
        (_changed(value_count=_column(*[2] * 9)), "has 2 values"),
        (_changed(set_value=_column(*[99] * 9)), "refers to attribute 99"),
        (_changed(set_key=_column(*[0] * 9)), "two attributes of the same name"),
        (_changed(program_name=_column(0, 0)), "two programs have the same name"),
        (_changed(repeat_items=_column(-5)), "more items than the program has"),
        (_changed(if_then_items=_column(1 << 50)), "more items than the program has"),
        (_changed(slot_offset=_column(0, 8, 64, 40, 256)), "covers bytes"),
    ],
)
def test_damaged_encodings(data: bytes, message: str) -> None:
    with pytest.raises(CorruptArchiveError, match=message) as caught:
        decode_program(data)
    assert caught.value.hint


def test_integers_written_as_text_are_integers() -> None:
    fields = msgpack.unpackb(encode_program(sample_image()))
    wide = str((1 << 64) - 1).encode()
    fields["text"] = fields["text"].replace(wide, b"1" * (len(wide) - 1) + b"e")
    with pytest.raises(CorruptArchiveError, match=r"is not an integer: '1+e'"):
        decode_program(pack(fields))


def test_a_deeply_nested_encoding_is_refused() -> None:
    image = ProgramImage((), {"main": _deep(64)}, 0, 0, 0)
    data = encode_program(image)
    assert decode_program(data) == image
    with pytest.raises(CorruptArchiveError, match="nested too deeply"):
        decode_program(data, Limits(depth=63))


_FIELDS = sorted(msgpack.unpackb(encode_program(sample_image())))
_INTEGERS = st.integers(-(1 << 63), (1 << 64) - 1)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_change_of_a_column_is_refused_or_valid(data: st.DataObject) -> None:
    fields = msgpack.unpackb(encode_program(sample_image()))
    for name in data.draw(st.lists(st.sampled_from(_FIELDS), min_size=1, max_size=3)):
        fields[name] = data.draw(_mutation(fields[name]))
    try:
        image = decode_program(pack(fields))
    except CorruptArchiveError:
        return
    validate_image(image)
    assert max(image.arena_bytes, image.constant_bytes, image.state_bytes) <= 64 << 30


def _mutation(value: Any) -> st.SearchStrategy[Any]:
    junk: st.SearchStrategy[Any] = st.one_of(
        st.none(), st.booleans(), _INTEGERS, st.text(max_size=3), st.binary(max_size=9)
    )
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], bytes):
        return st.one_of(
            st.lists(st.integers(-2, 5), max_size=12).map(lambda values: _column(*values)),
            st.tuples(st.just(value[0]), _spoiled(value[1])).map(list),
            junk,
        )
    if isinstance(value, bytes):
        return st.one_of(_spoiled(value), junk)
    return st.one_of(st.lists(_INTEGERS, max_size=4), junk)


def _spoiled(data: bytes) -> st.SearchStrategy[bytes]:
    """``data`` with one byte replaced, or cut off, or longer."""

    def replaced(at: int, byte: int) -> bytes:
        return data[:at] + bytes([byte]) + data[at + 1 :]

    return st.one_of(
        st.builds(replaced, st.integers(0, max(len(data) - 1, 0)), st.integers(0, 255)),
        st.integers(0, len(data)).map(lambda size: data[:size]),
        st.binary(min_size=1, max_size=8).map(lambda more: data + more),
    )


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptArchiveError):
        decode_program(data)


def test_the_sample_fits_its_regions() -> None:
    assert sample_image().arena_bytes == REGION_BYTES
