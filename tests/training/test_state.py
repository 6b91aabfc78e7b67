"""Variables and checkpoints: what was there is read back, what does not fit is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from popc_runtime import DType, Executable
from popc_runtime.errors import CheckpointError, InputMismatchError, ResourceError, UsageError
from popc_runtime.state.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from tests.training.small import data, trainable, training_program

_ADAM = trainable(type="adam", learning_rate=0.01)


def _train(program: Executable, steps: int, seed: int = 0) -> None:
    samples = data(2 * steps, seed)
    for step in range(steps):
        program.run({name: array[2 * step : 2 * step + 2] for name, array in samples.items()})


def _assert_same(program: Executable, other: Executable) -> None:
    expected = other.state.read()
    found = program.state.read()
    assert found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_resumed_training_is_bit_identical(tmp_path: Path) -> None:
    program = training_program(tmp_path, _ADAM)
    _train(program, 5)
    program.state.save_checkpoint(tmp_path / "c.safetensors", {"epoch": 3})
    _train(program, 5, seed=1)
    other = training_program(tmp_path, _ADAM)
    assert other.state.load_checkpoint(tmp_path / "c.safetensors") == {"epoch": 3}
    _train(other, 5, seed=1)
    _assert_same(other, program)


def test_reset_restores_the_initial_values(tmp_path: Path) -> None:
    program = training_program(tmp_path, _ADAM)
    _train(program, 3)
    program.state.reset()
    _assert_same(program, training_program(tmp_path, _ADAM))


def test_another_models_checkpoint_is_refused(tmp_path: Path) -> None:
    training_program(tmp_path).state.save_checkpoint(tmp_path / "sgd.safetensors")
    program = training_program(tmp_path, _ADAM)
    before = program.state.read()
    with pytest.raises(CheckpointError, match="another optimizer") as raised:
        program.state.load_checkpoint(tmp_path / "sgd.safetensors")
    assert any("'Accl1___w'" in line for line in raised.value.details)
    for name, array in program.state.read().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"nonsense": np.zeros(1)}, "there is no variable 'nonsense'"),
        ({"w": np.zeros((4, 3))}, "expected float32"),
        ({"w": np.zeros((3, 4), np.float32)}, r"got float32\[3,4\]"),
    ],
)
def test_writing_what_does_not_fit(values: dict[str, Any], problem: str, tmp_path: Path) -> None:
    program = training_program(tmp_path)
    before = program.state.read()["b"]
    with pytest.raises(InputMismatchError, match=problem):
        program.state.write({"b": np.zeros(3, np.float32), **values})
    np.testing.assert_array_equal(program.state.read()["b"], before)


def test_constant_hyper_parameters_cannot_be_changed(tmp_path: Path) -> None:
    program = training_program(tmp_path, trainable(learning_rate=0.1))
    with pytest.raises(UsageError, match=r"learning_rate is a constant of the program, 0\.1"):
        program.state.set_hyper_parameters(learning_rate=0.2)
    with pytest.raises(UsageError, match="has no 'speed'"):
        program.state.set_hyper_parameters(speed=1.0)


# -- the file --------------------------------------------------------------------------------------


def _checkpoint() -> Checkpoint:
    tensors: dict[str, Any] = {
        "scalar": np.array(3, np.int64),
        "empty": np.zeros((0, 2), np.float32),
        "half": np.array([[1, 2]], np.float16),
        "brain": np.array([0x3F80], np.uint16),
    }
    dtypes = {name: DType.of(array.dtype) for name, array in tensors.items()}
    return Checkpoint(tensors, {**dtypes, "brain": DType.BFLOAT16}, "ab", None, {"epoch": 2})


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, _checkpoint())
    found = read_checkpoint(path)
    assert found.dtypes == _checkpoint().dtypes
    assert (found.model_sha256, found.progress) == ("ab", {"epoch": 2})
    for name, array in _checkpoint().tensors.items():
        assert found.tensors[name].dtype == array.dtype
        np.testing.assert_array_equal(found.tensors[name], array)


_PROGRESS = '{"version": "1", "progress": 3}'


def _rewritten(raw: bytes, edit: Callable[[dict[str, Any]], object]) -> bytes:
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    edit(header)
    encoded = json.dumps(header).encode()
    return len(encoded).to_bytes(8, "little") + encoded + raw[8 + length :]


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda h: h["half"].update(dtype="F128"), "'half' is damaged"),
        (lambda h: h["half"].update(shape=[-1, -2]), "'half' is damaged"),
        (lambda h: h["half"].update(shape=[float("inf")]), "'half' is damaged"),
        (lambda h: h["empty"].update(shape=[0, 10**30]), "'empty' is damaged"),
        (lambda h: h["empty"].update(shape=[0] * 100), "'empty' is damaged"),
        (lambda h: h["half"].update(shape=[10**9]), "do not fit its shape"),
        (lambda h: h["half"].update(data_offsets=[0, 10**15]), "do not fit its shape"),
        (lambda h: h.pop("scalar"), "do not fit its shape|after the last tensor"),
        (lambda h: h.pop("__metadata__"), "its state is damaged"),
        (lambda h: h["__metadata__"].update({"popc.state": '{"version": "9"}'}), "version '9'"),
        (lambda h: h["__metadata__"].update({"popc.state": _PROGRESS}), "its state is damaged"),
    ],
)
def test_contradictory_headers(
    edit: Callable[[dict[str, Any]], object], problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, _checkpoint())
    path.write_bytes(_rewritten(path.read_bytes(), edit))
    with pytest.raises(CheckpointError, match=problem):
        read_checkpoint(path)


@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(cut=st.integers(0, 700), flip=st.integers(0, 700), bit=st.integers(0, 7))
def test_damaged_files_are_refused_or_read(cut: int, flip: int, bit: int, tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, _checkpoint())
    raw = bytearray(path.read_bytes())
    raw[flip % len(raw)] ^= 1 << bit
    path.write_bytes(raw[: max(len(raw) - cut, 0)] if cut % 3 else raw)
    with suppress(CheckpointError):
        found = read_checkpoint(path)
        assert sum(array.nbytes for array in found.tensors.values()) <= len(raw)


def test_damaged_values_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    write_checkpoint(path, _checkpoint())
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="its content is damaged"):
        read_checkpoint(path)


def test_files_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="cannot write"):
        write_checkpoint(tmp_path / "missing" / "c.safetensors", _checkpoint())
    with pytest.raises(ResourceError, match="cannot read"):
        read_checkpoint(tmp_path / "missing.safetensors")
    assert list(tmp_path.iterdir()) == []
