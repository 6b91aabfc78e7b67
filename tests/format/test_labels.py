"""Names of instructions in called programs: filled in once, and measured before they are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popc_runtime.device.linking import write_out
from popc_runtime.errors import CorruptArchiveError
from popc_runtime.format import (
    Block,
    CallBlock,
    DType,
    Instruction,
    Limits,
    ProgramImage,
    Region,
    RepeatBlock,
    Slot,
    decode_program,
    encode_program,
    fill_labels,
    instructions_of,
    result_names,
)
from popc_runtime.format.labels import text_written_out

_PATTERNS = st.text("a{}01é", max_size=8)
_SLOTS = (
    Slot(Region.ARENA, 0, DType.FLOAT32, (1,)),
    Slot(Region.PARAMETER, 0, DType.FLOAT32, (1,), None, 0),
)


def _image(programs: dict[str, Block]) -> ProgramImage:
    return ProgramImage(_SLOTS, programs, 64, 0, 0)


def _relu(name: str, **attributes: tuple[str, ...]) -> Instruction:
    return Instruction("Relu", (1,), (1,), dict(attributes), name)


@given(_PATTERNS, st.lists(_PATTERNS, max_size=3))
def test_marks_are_filled_once(pattern: str, labels: list[str]) -> None:
    def label(found: re.Match[str]) -> str:
        number = int(found[1])
        return labels[number] if number < len(labels) else found[0]

    assert fill_labels(pattern, labels) == re.sub(r"\{(0|[1-9][0-9]{0,4})\}", label, pattern)


@given(st.lists(st.tuples(_PATTERNS, _PATTERNS, _PATTERNS), min_size=1, max_size=4))
def test_text_is_measured_as_it_is_written(levels: list[tuple[str, str, str]]) -> None:
    programs: dict[str, Block] = {"p0": (_relu("{0}{0}", results=("{1}",)),)}
    for number, (first, second, name) in enumerate(levels):
        call = CallBlock(f"p{number}", (1,), (first, second), "")
        programs[f"p{number + 1}"] = (call, RepeatBlock((call, _relu(name)), 2))
    top = CallBlock(f"p{len(levels)}", (0,), ("left", "right"), "")
    written = write_out(_image({**programs, "main": (top,)})).programs["main"]
    names = [(item.name, *result_names(item.attributes)) for item in instructions_of(written)]
    measured = text_written_out({**programs, "main": (top,)}) - text_written_out(programs)
    assert measured == len("".join(map("".join, names)))


def _bomb(count: int) -> ProgramImage:
    labels = ("{0}" * count,)
    programs: dict[str, Block] = {"p0": (_relu("{0}"),)}
    for number in range(8):
        programs[f"p{number + 1}"] = (CallBlock(f"p{number}", (1,), labels, ""),)
    return _image({**programs, "main": (CallBlock("p8", (0,), ("x",), ""),)})


def test_names_that_grow_without_bound_are_refused() -> None:
    data = encode_program(_bomb(2))
    decode_program(data)
    with pytest.raises(CorruptArchiveError, match="names of instructions have"):
        decode_program(data, Limits(expanded_text_bytes=100))
    with pytest.raises(ValueError, match=r"names of instructions have [0-9,]{20,} bytes"):
        encode_program(_bomb(1000))
