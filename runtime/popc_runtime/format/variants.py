"""The programs of an archive beside ``main``, and how inputs of other shapes fit one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from popc_runtime.errors import CorruptArchiveError
from popc_runtime.format.serialization import Fields
from popc_runtime.format.streams import (
    SequenceSpec,
    StreamSpec,
    TensorSpec,
    problem_of_streams,
    read_sequence,
    read_stream,
    read_tensor,
)
from popc_runtime.ground.frozen import field, frozen

__all__ = [
    "FitMode",
    "FitSpec",
    "ProgramSpec",
    "blob_of_program",
    "problem_of_programs",
    "read_fit",
    "read_program",
]


class FitMode(StrEnum):
    """The ways to treat inputs of a size that no program has."""

    PAD = "pad"  # fill up to the next size with the last sample, and cut results off
    FILL = "fill"  # the same, with what a mask leaves out
    SPLIT = "split"  # run parts one after another, and join results


@frozen
class ProgramSpec:
    """The inputs and results of one program; fields are those of `Manifest`.

    Attributes:
        trains: Whether the program is the training step.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    streams: tuple[StreamSpec, ...]
    sequences: tuple[SequenceSpec, ...] = ()
    memory: Mapping[str, int] = field(default_factory=dict[str, int])
    trains: bool = False


@frozen
class FitSpec:
    """A dimension along which the compiler has proven that other sizes may be made up.

    Attributes:
        dimension: Its name.
        modes: What may be done.
        inputs, outputs: Along which axis of each it lies, if it has it.
        fills: The numbers, as text, that inputs are filled up with, masks say; others repeat what
            they have last.
    """

    dimension: str
    modes: tuple[FitMode, ...]
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]
    fills: Mapping[str, str] = field(default_factory=dict[str, str])


def blob_of_program(kind: str, program: str) -> str:
    """The name of a blob that there is for each program: of main, just its kind."""
    return kind if program == "main" else f"{kind}.{program}"


def read_program(source: Fields) -> ProgramSpec:
    """A program from the manifest."""
    return ProgramSpec(
        name=source.text("name"),
        inputs=source.items("inputs", read_tensor),
        outputs=source.items("outputs", read_tensor),
        streams=source.items("streams", read_stream),
        sequences=source.items("sequences", read_sequence),
        memory=source.integer_map("memory"),
        trains=source.flag("trains"),
    )


def read_fit(source: Fields) -> FitSpec:
    """A dimension that inputs may differ in, from the manifest."""
    fills = source.text_map("fills") if source.any("fills") else {}
    for name, text in fills.items():
        if not _is_number(text):
            raise CorruptArchiveError(
                f"the manifest fills input {name!r} up with {text!r:.40}, which is no number",
                hint="compile the model again",
            )
    return FitSpec(
        dimension=source.text("dimension"),
        modes=source.choices("modes", FitMode),
        inputs=source.integer_map("inputs"),
        outputs=source.integer_map("outputs"),
        fills=fills,
    )


def _is_number(text: str) -> bool:
    try:
        return -(2.0**128) < float(text) < 2.0**128
    except ValueError:
        return False


def problem_of_programs(variants: Sequence[ProgramSpec], programs: Sequence[str]) -> str:
    """The contradiction in or between programs, as a clause; empty if there is none."""
    names: set[str] = set()
    for variant in variants:
        if variant.name not in programs:
            return f"it describes a missing program {variant.name!r}"
        if variant.name in names:
            return f"it describes program {variant.name!r} twice"
        names.add(variant.name)
        problem = problem_of_streams(
            variant.inputs, variant.outputs, variant.streams, variant.sequences
        )
        if problem:
            return f"of program {variant.name!r}, {problem}"
    return ""
