"""Archives whose parts are in order, but do not belong together."""

from __future__ import annotations

from typing import Any

import pytest

import popc_runtime
from popc_runtime.errors import CorruptArchiveError, DeviceError
from popc_runtime.format import (
    Blob,
    BlobKind,
    DType,
    Instruction,
    ProgramImage,
    Region,
    ReturnType,
    Slot,
    StreamDirection,
    StreamSpec,
    TensorSpec,
    encode_program,
)
from tests.format.samples import archive_bytes, sample_manifest


def _archive(stored: int, before: tuple[Instruction, ...] = (), /, **changes: Any) -> bytes:
    """A program that stores two numbers ``stored`` times as y: float32[3, 2]."""
    store = Instruction("HostStore", (0,), (), {"stream": "y"}, "store")
    slots = (Slot(Region.ARENA, 0, DType.FLOAT32, (2,)),)
    image = ProgramImage(slots, {"main": (*before, *(store,) * stored)}, 64, 0, 0)
    stream = StreamSpec("y", StreamDirection.OUTPUT, DType.FLOAT32, (2,), 3, ReturnType.ALL)
    fields = {
        "inputs": (),
        "outputs": (TensorSpec("y", DType.FLOAT32, (3, 2)),),
        "streams": (stream,),
        "programs": ("main",),
        "sequences": (),
        **changes,
    }
    blobs = (
        Blob.of_bytes("program", BlobKind.PROGRAM, encode_program(image)),
        Blob.of_bytes("weights", BlobKind.WEIGHTS, b""),
    )
    return archive_bytes(blobs, sample_manifest(**fields))


@pytest.mark.parametrize("engine", ["numpy", "auto"])
@pytest.mark.parametrize("stored", [0, 1, 2, 4])
def test_a_program_that_stores_too_few_samples_or_too_many(stored: int, engine: str) -> None:
    assert popc_runtime.load(_archive(3), engine=engine).run({})["y"].shape == (3, 2)
    program = popc_runtime.load(_archive(stored), engine=engine)
    with pytest.raises(DeviceError, match=f"'y': .* stored {stored} samples instead of 3"):
        program.run({})
    with pytest.raises(DeviceError, match=f"'y': .* stored {8 * stored} bytes instead of 24"):
        program.run_buffers({})


@pytest.mark.parametrize("programs", [("main", "leaf"), ("leaf",), ()])
def test_other_programs_than_the_manifest_names(programs: tuple[str, ...]) -> None:
    with pytest.raises(CorruptArchiveError, match="holds main"):
        popc_runtime.load(_archive(3, programs=programs))


@pytest.mark.parametrize("engine", ["numpy", "auto"])
def test_samples_of_another_size(engine: str) -> None:
    stream = StreamSpec("y", StreamDirection.OUTPUT, DType.FLOAT32, (), 6, ReturnType.ALL)
    outputs = (TensorSpec("y", DType.FLOAT32, (3, 2)),)
    program = popc_runtime.load(_archive(3, outputs=outputs, streams=(stream,)), engine=engine)
    with pytest.raises(
        DeviceError, match=r"\(store\) .* expected a sample of 4 bytes, got 8 bytes"
    ):
        program.run({})
    load = Instruction("HostLoad", (), (0,), {"stream": "x"}, "load")
    stream = StreamSpec("x", StreamDirection.INPUT, DType.FLOAT32, (3,), 1)
    inputs = (TensorSpec("x", DType.FLOAT32, (3,)),)
    archive = _archive(0, (load,), inputs=inputs, outputs=(), streams=(stream,))
    with pytest.raises(
        DeviceError, match=r"\(load\) .* expected a sample of 8 bytes, got 12 bytes"
    ):
        popc_runtime.load(archive, engine=engine).run({"x": [1, 2, 3]}, cast="same_kind")


def test_a_stream_that_the_manifest_does_not_name() -> None:
    with pytest.raises(DeviceError, match=r"HostStore \(store\) .* 'y' is missing"):
        popc_runtime.load(_archive(3, outputs=(), streams=()))
