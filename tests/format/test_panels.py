"""Constants in panels: what they are, what a reader refuses, which readers understand them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from popc_runtime.device.memory import Memory
from popc_runtime.errors import CorruptArchiveError
from popc_runtime.format import (
    Block,
    CallBlock,
    DType,
    Instruction,
    Packing,
    Panels,
    ProgramImage,
    Region,
    Slot,
    decode_program,
    encode_program,
    format_program,
    oldest_reader,
    pack_panels,
    packed_bytes,
    unpack_panels,
    validate_image,
)
from popc_runtime.format.serialization import pack
from popc_runtime.native.views import PackedView

_SIZES = st.sampled_from([0, 1, 2, 15, 16, 17, 33])


def _numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


@given(k=_SIZES, n=_SIZES)
def test_columns(k: int, n: int) -> None:
    matrix = _numbers(k, n)
    packed = pack_panels(matrix, Packing.COLUMNS)
    assert packed.nbytes == packed_bytes((k, n), Packing.COLUMNS)
    panels = packed.reshape(-(-n // 16), k, 16)
    for line, column in product(range(k), range(16 * len(panels))):
        expected = matrix[line, column] if column < n else 0
        assert panels[column // 16, line, column % 16] == expected
    assert np.array_equal(unpack_panels(packed, (k, n), Packing.COLUMNS), matrix)


@given(k=_SIZES, n=_SIZES, data=st.data())
def test_any_part_is_that_of_all_panels(k: int, n: int, data: st.DataObject) -> None:
    matrix = _numbers(k, n)
    panels = Panels(matrix, Packing.COLUMNS)
    # Columns beside each other, written down as the format describes them.
    padded = np.pad(matrix, ((0, 0), (0, -n % 16)))
    whole = np.concatenate([*np.hsplit(padded, max(1, padded.shape[1] // 16))]).tobytes()
    assert (panels.nbytes, panels.itemsize) == (len(whole), 4)
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    assert panels.bytes_between(start, stop).tobytes() == whole[start:stop]


@given(n=_SIZES, k=st.integers(0, 5), taps=st.lists(st.integers(0, 3), max_size=3))
def test_rows(n: int, k: int, taps: list[int]) -> None:
    tensor = _numbers(n, k, *taps)
    packed = pack_panels(tensor, Packing.ROWS)
    assert packed.nbytes == packed_bytes(tensor.shape, Packing.ROWS)
    turned = np.moveaxis(tensor, (0, 1), (-1, -2)).reshape(int(np.prod(taps)) * k, n)
    assert np.array_equal(packed, pack_panels(turned, Packing.COLUMNS))
    back = unpack_panels(packed, tensor.shape, Packing.ROWS)
    assert back.flags.c_contiguous
    assert np.array_equal(back, tensor)


def _image(**changes: Any) -> ProgramImage:
    """A constant in panels that exactly covers its region, and a product that reads it."""
    slots = (
        replace(
            Slot(Region.CONSTANT, 0, DType.FLOAT32, (3, 17), packing=Packing.COLUMNS), **changes
        ),
        Slot(Region.ARENA, 0, DType.FLOAT32, (2, 3)),
        Slot(Region.ARENA, 64, DType.FLOAT32, (2, 17)),
        Slot(Region.CONSTANT, 0, DType.FLOAT32, (4,)),
    )
    return ProgramImage(slots, {"main": (Instruction("MatMul", (1, 0), (2,)),)}, 256, 384, 0)


def test_round_trip() -> None:
    image = _image()
    data = encode_program(image)
    assert decode_program(data) == image
    assert "constant[0]:float32[3,17] panels of columns" in format_program(image)


def test_older_readers_read_what_is_not_in_panels() -> None:
    plain = _image(packing=Packing.NONE)
    assert (oldest_reader(_image()), oldest_reader(plain)) == (2, 0)
    assert b"slot_packing" not in encode_program(plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"region": Region.ARENA}, "stores float32 of region ARENA in panels"),
        ({"dtype": DType.FLOAT16}, "stores float16 of region"),
        ({"strides": (68, 4)}, r"strides \(68, 4\), which do not fit panels"),
        ({"shape": (17,)}, "do not fit panels"),
        ({"shape": (3, 17, 1)}, "do not fit panels"),
        ({"offset": 32}, "has panels at offset 32"),
        ({"shape": (3, 33)}, "covers bytes 0 to 576 of a region of 384"),
        ({"shape": (4, 17)}, "covers bytes 0 to 512"),
        ({"offset": 64}, "covers bytes 64 to 448"),
        ({"packing": Packing.ROWS}, "covers bytes 0 to 1,088"),
    ],
)
def test_panels_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        validate_image(_image(**changes))


def test_panels_are_not_handed_over() -> None:
    image = _image()
    inner = replace(image.slots[0], region=Region.PARAMETER, parameter=0, packing=Packing.NONE)
    relu: Block = (Instruction("Relu", (4,), ()),)
    called: dict[str, Block] = {"main": (CallBlock("inner", (0,)),), "inner": relu}
    with pytest.raises(ValueError, match="memory that does not fit"):
        validate_image(replace(image, slots=(*image.slots, inner), programs=called))


def _column(*values: int) -> list[Any]:
    return ["i8", b"".join(value.to_bytes(8, "little", signed=True) for value in values)]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (_column(3, 0), "unknown Packing: 3"),
        (_column(-1, 0), "unknown Packing: -1"),
        (_column(1), "column 'slot_packing' is too short"),
        (_column(1, 0, 0), "column 'slot_packing' is too long"),
        (_column(1, 1), "do not fit panels"),
        (_column(2, 0), "covers bytes"),
    ],
)
def test_damaged_encodings(column: list[Any], message: str) -> None:
    fields = {**msgpack.unpackb(encode_program(_image())), "slot_packing": column}
    with pytest.raises(CorruptArchiveError, match=message):
        decode_program(pack(fields))


@pytest.mark.parametrize("shape", [(3, 17), (16, 16), (0, 5), (5, 0)])
def test_whoever_has_no_use_for_panels_sees_a_matrix(shape: tuple[int, int]) -> None:
    matrix = _numbers(*shape)
    packed = pack_panels(matrix, Packing.COLUMNS)
    slot = Slot(Region.CONSTANT, 0, DType.FLOAT32, shape, packing=Packing.COLUMNS)
    image = ProgramImage((slot,), {}, 0, packed.nbytes, 0)
    memory = Memory(image, memoryview(packed.tobytes()))
    assert np.array_equal(memory.array(0), matrix)
    view = memory.view(0)
    assert isinstance(view, PackedView)
    assert np.array_equal(np.asarray(view), matrix)
    assert view.address == memory.array(0).__array_interface__["data"][0]
    assert (view.panels.shape, view.packing) == (shape, Packing.COLUMNS)
