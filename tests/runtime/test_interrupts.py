"""Runs that are stopped, by a deadline or by a signal, and what is left of them."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import popc
import popc_runtime
from popc_runtime import Executable
from popc_runtime.errors import DeviceError, RunTimeoutError, UsageError
from popc_runtime.format import (
    Block,
    DType,
    Instruction,
    ProgramImage,
    Region,
    RepeatBlock,
    Slot,
    VariableRole,
    VariableSpec,
    decode_program,
    encode_program,
)
from popc_runtime.native import variants
from tests.format.samples import sample_manifest
from tests.support.models import affine

_SOON = 1e-3
_ENGINES = ["numpy", *(["native"] if variants() else [])]
_needs_kernels = pytest.mark.skipif(not variants(), reason="there are no native kernels")
_ENDLESS = RepeatBlock((), -1, -1, -1, -1, "for ever")
_EVERY_ENGINE = pytest.mark.parametrize("engine", _ENGINES)


def _made(
    slots: tuple[Slot, ...], main: Block, engine: str, load: Block = (), **changes: Any
) -> Executable:
    """An executable whose memory is zeros."""
    programs = {"main": main, **({"weights_from_host": load} if load else {})}
    ends = (slot.offset + prod(slot.shape) * 4 for slot in slots if slot.strides is None)
    image = ProgramImage(slots, programs, max([1 << 12, *ends]), 1 << 12, 1 << 12)
    nothing = {"inputs": (), "outputs": (), "streams": (), "sequences": ()}
    manifest = sample_manifest(**{**nothing, "programs": tuple(programs), **changes})
    constants = memoryview(bytes(1 << 12))
    return Executable(manifest, decode_program(encode_program(image)), constants, engine=engine)


def _slot(*shape: int, strides: tuple[int, ...] | None = None, region: Region) -> Slot:
    return Slot(region, 0, DType.FLOAT32, shape, strides)


def _side_by_side(*shapes: tuple[int, ...]) -> tuple[Slot, ...]:
    """Slots of these shapes, one behind the other."""
    starts = accumulate((-(-prod(shape) // 16) * 64 for shape in shapes), initial=0)
    return tuple(
        Slot(Region.ARENA, start, DType.FLOAT32, shape)
        for start, shape in zip(starts, shapes, strict=False)
    )


def _wide(*shape: int) -> Slot:
    """A slot of one element, seen again and again."""
    return _slot(*shape, strides=(0,) * len(shape), region=Region.ARENA)


@_EVERY_ENGINE
def test_a_loop_without_an_end(engine: str) -> None:
    executable = _made((), (_ENDLESS,), engine)
    for _ in range(2):  # the executable stays usable
        with pytest.raises(RunTimeoutError, match=r"stopped after 0\.001 s") as caught:
            executable.run(timeout=_SOON)
        assert "of for ever" in str(caught.value)
    with pytest.raises(RunTimeoutError):
        executable.run_buffers(timeout=_SOON)
    with pytest.raises(RunTimeoutError):
        executable.run_async(timeout=_SOON).result()
    executable.close()


@_EVERY_ENGINE
def test_the_instruction_is_named(engine: str) -> None:
    slots = (_slot(4, region=Region.ARENA),)
    body = (Instruction("Relu", (0,), (0,), {}, "a relu"),)
    executable = _made(slots, (RepeatBlock(body, -1, -1, -1, -1, "for ever"),), engine)
    with pytest.raises(RunTimeoutError, match=r"Relu \(a relu\)|Repeat \(for ever\)"):
        executable.run(timeout=_SOON)


def _long(
    opcode: str, *shapes: tuple[int, ...], **attributes: Any
) -> tuple[tuple[Slot, ...], Instruction]:
    """An instruction on operands of these shapes, the last of which is its result."""
    *operands, result = range(len(shapes))
    item = Instruction(opcode, tuple(operands), (result,), attributes, "long")
    return _side_by_side(*shapes), item


_MANY = 1 << 20  # windows, and taps of each
_WINDOWS = ((1, 1, _MANY), (1, 1, 2 * _MANY - 1), (1, 1, _MANY), (1, 1, 2 * _MANY - 1))
_POOLED: dict[str, Any] = {"kernel_shape": (_MANY,), "strides": (1,), "pads": (0, 0)}
_COLUMN = (2 * _MANY - 1, 1)

# What takes between minutes and years, in one instruction on little memory.
_LONG: dict[str, tuple[tuple[Slot, ...], Instruction]] = {
    "AveragePoolGrad": _long("AveragePoolGrad", *_WINDOWS[2:], **_POOLED, sum=1),
    "MaxPoolGrad": _long("MaxPoolGrad", *_WINDOWS, **_POOLED),
    "ConvWeightsGrad": _long(
        "ConvWeightsGrad", (1, 2, _MANY, 1), (1, 2, *_COLUMN), (2, 1, _MANY, 1), group=2
    ),
    "Conv": _long("Conv", (1, 2, *_COLUMN), (2, 1, _MANY, 1), (1, 2, _MANY, 1), group=2),
    "BinCount": _long("BinCount", (_MANY,), (_MANY,), (_MANY + 1,), absolute=0),
    "Expand": (
        (_wide(1), _wide(1 << 17, 1 << 17)),
        Instruction("Expand", (0,), (1,), {"shape": (1 << 17, 1 << 17)}, "long"),
    ),
    "Add": (
        (_wide(1 << 17, 1 << 17), _wide(1 << 17, 1 << 17)),
        Instruction("Add", (0, 0), (1,), {}, "long"),
    ),
}


@_needs_kernels
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("opcode", list(_LONG))
def test_within_an_instruction(opcode: str, threads: int) -> None:
    slots, item = _LONG[opcode]
    executable = _made(slots, (item,), "native")
    executable._engine.replicas[0].program.threads = threads
    with pytest.raises(RunTimeoutError, match=rf"in {opcode} \(long\)"):
        executable.run(timeout=_SOON)


def _bytes_of(*shapes: tuple[int, ...]) -> tuple[tuple[Slot, ...], Instruction]:
    """A convolution of bytes to whole numbers."""
    slots, item = _long("ConvInteger", *shapes, group=1)
    kinds = (DType.UINT8, DType.INT8, DType.INT32)
    return tuple(map(lambda s, k: replace(s, dtype=k), slots, kinds)), item


# What one thread needs some hundred times the time for that it gets.
_LARGE: dict[str, tuple[tuple[Slot, ...], Instruction]] = {
    "ConvLines_f32": _long("Conv", (256, 64, 16, 16), (64, 64, 2, 3), (256, 64, 15, 14), group=1),
    "Conv_i8": _bytes_of((64, 64, 34, 34), (64, 64, 3, 3), (64, 64, 32, 32)),
    "Resample_f32": _long(
        "Resize",
        *((8, 1024, 1024), (32, 1024, 1024)),
        mode="cubic",
        scales=(4.0, 1.0, 1.0),
        coordinate_transformation_mode="half_pixel",
    ),
}


@_needs_kernels
@pytest.mark.parametrize("kernel", list(_LARGE))
def test_what_is_left_of_an_instruction_is_not_done(kernel: str) -> None:
    """Its kernel looks for the end of time by how much it has done."""
    slots, item = _LARGE[kernel]
    executable = _made(slots, (item,), "native")
    engine = executable._engine.replicas[0]
    binder: Any = engine.binder
    engine.program.threads = 1
    (step,) = binder.steps_of("main")
    assert step.item.kernel == kernel
    result = binder.operands(item).output()
    result[...] = 1  # operands are 0
    with pytest.raises(RunTimeoutError, match=rf"in {item.opcode} \(long\)"):
        executable.run(timeout=_SOON)
    assert (result.reshape(-1)[-100:] == 1).all()


@_needs_kernels
def test_a_signal_within_an_instruction() -> None:
    slots, item = _LONG["Add"]
    executable = _made(slots, (item,), "native")
    timer = threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        executable.run()


def test_more_elements_than_memory_are_refused() -> None:
    with pytest.raises(ValueError, match=r"slot 0 has elements of 4,398,046,511,104 bytes"):
        _made((_wide(1 << 20, 1 << 20),), (), "numpy")


@_needs_kernels
def test_scratch_memory_is_not_much_larger_than_what_it_is_for() -> None:
    """A window that skips 2**30 elements of padding, on four numbers."""
    step = 1 << 30
    slots, item = _long(
        "Conv", (1, 1, 4), (1, 1, 3), (1, 1, 2), strides=(step,), pads=(step - 3, 1), group=1
    )
    with pytest.raises(
        DeviceError, match=r"Conv \(long\) .* it needs 8,589,93\d,\d{3} bytes of scratch"
    ):
        _made(slots, (item,), "native").run(timeout=_SOON)


_FAR = 1 << 40
_FOREVER: dict[str, tuple[tuple[Slot, ...], Instruction]] = {
    "taps": _long(
        "MaxPool", (1, 1, 4), (1, 1, 5), kernel_shape=(_FAR,), pads=(_FAR // 2, _FAR // 2)
    ),
    "taps of a gradient": _long(
        "AveragePoolGrad", (1, 1, 5), (1, 1, 4), kernel_shape=(_FAR,), pads=(_FAR // 2, _FAR // 2)
    ),
    "border": _long("Pad", (4,), (8,), pads=(_FAR, _FAR), mode="reflect"),
    "parts of a border": _long("Pad", (2,), (1 << 20,), pads=(0, (1 << 20) - 2), mode="reflect"),
    "scale": _long(
        "Resize",
        *((1, 1, 4), (1, 1, 2)),
        mode="linear",
        scales=(1.0, 1.0, 1 / _FAR),
        antialias=1,
        coordinate_transformation_mode="half_pixel",
    ),
}


@_EVERY_ENGINE
@pytest.mark.parametrize("what", list(_FOREVER))
def test_attributes_that_binding_would_take_forever_for(what: str, engine: str) -> None:
    slots, item = _FOREVER[what]
    with pytest.raises(DeviceError, match=rf"{item.opcode} \(long\) cannot be prepared"):
        _made(slots, (item,), engine)


@_EVERY_ENGINE
@pytest.mark.parametrize("places", [8, (1 << 39) + 1])
def test_roots_of_a_transform_are_no_more_than_its_results(engine: str, places: int) -> None:
    """2**40 of them take terabytes, and an hour to compute."""
    result = _slot(1, 8, 2, region=Region.ARENA)
    if places > 8:
        result = _slot(1, places, 2, strides=(0, 0, 4), region=Region.ARENA)
    item = Instruction(
        "DFT", (0,), (1,), {"axis": 1, "dft_length": 1 << 40, "inverse": 0, "onesided": 1}, "long"
    )
    with pytest.raises((DeviceError, ValueError), match=r"DFT \(long\)|slot 1 has elements of"):
        _made((_slot(1, 8, 1, region=Region.ARENA), result), (item,), engine).run(timeout=_SOON)


@_EVERY_ENGINE
def test_what_is_computed_at_load_time(engine: str) -> None:
    programs = {"main": (), "weights_from_host": (_ENDLESS,)}
    nothing = {"inputs": (), "outputs": (), "streams": (), "sequences": ()}
    manifest = sample_manifest(**nothing, programs=tuple(programs))
    image = ProgramImage((), programs, 0, 0, 0)
    with pytest.raises(RunTimeoutError, match="for ever"):
        Executable(manifest, image, memoryview(b""), engine=engine, timeout=_SOON)


# -- variables -------------------------------------------------------------------------------------

_VARIABLE = VariableSpec("w", DType.FLOAT32, (4,), VariableRole.WEIGHT, 0)
_STATE, _ARENA = _slot(4, region=Region.STATE), _slot(4, region=Region.ARENA)
_LOAD = (Instruction("Copy", (1,), (0,), {}, "initial"),)


def _trains(engine: str, *main: Any) -> Executable:
    """A program whose variable is four zeros."""
    copy = Instruction("Copy", (1,), (0,), {}, "update")
    items = tuple(copy if item == "update" else item for item in main)
    return _made((_STATE, _ARENA), items, engine, load=_LOAD, variables=(_VARIABLE,))


@_EVERY_ENGINE
def test_a_step_that_has_written_nothing(engine: str, tmp_path: Path) -> None:
    executable = _trains(engine, _ENDLESS, "update")
    with pytest.raises(RunTimeoutError):
        executable.run(timeout=_SOON)
    executable.state.save_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(RunTimeoutError):  # and it runs again
        executable.run(timeout=_SOON)


@_EVERY_ENGINE
@pytest.mark.parametrize("remedy", ["load", "write", "reset"])
def test_a_step_that_was_stopped_while_it_wrote(engine: str, remedy: str, tmp_path: Path) -> None:
    executable = _trains(engine, "update", _ENDLESS)
    executable.state.save_checkpoint(tmp_path / "before")
    with pytest.raises(RunTimeoutError):
        executable.run(timeout=_SOON)
    for refused in (
        executable.run,
        executable.run_buffers,
        lambda: executable.state.save_checkpoint(tmp_path / "torn"),
    ):
        with pytest.raises(DeviceError, match="some have new values, and others have not"):
            refused()
    assert not (tmp_path / "torn").exists()
    if remedy == "load":
        executable.state.load_checkpoint(tmp_path / "before")
    elif remedy == "write":
        executable.state.write({"w": np.ones(4, np.float32)})
    else:
        executable.state.reset()
    executable.state.save_checkpoint(tmp_path / "whole")
    with pytest.raises(RunTimeoutError):
        executable.run(timeout=_SOON)


# -- what users write ------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), float("inf")])
def test_no_number_of_seconds(timeout: float) -> None:
    executable = popc_runtime.load(popc.compile(affine()).to_bytes())
    with pytest.raises(UsageError, match="timeout must be a number of seconds above 0"):
        executable.run({"x": np.ones((2, 3), np.float32)}, timeout=timeout)


def test_a_run_in_time_is_a_run_as_any_other() -> None:
    executable = popc_runtime.load(popc.compile(affine()).to_bytes())
    feeds = {spec.name: np.ones(spec.shape, np.float32) for spec in executable.inputs}
    expected = executable.run(feeds)
    for name, result in executable.run(feeds, timeout=1000).items():
        np.testing.assert_array_equal(result, expected[name])
