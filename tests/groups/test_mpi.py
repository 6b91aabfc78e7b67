"""Processes that mpiexec starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np
import pytest

import popc_runtime
from popc.cli.root import run
from popc_runtime.errors import UsageError
from popc_runtime.groups import is_launched, join
from popc_runtime.state.checkpoint import read_checkpoint
from popc_runtime.trainer import Trainer
from tests.groups import popart_worker
from tests.training.small import data, trainable, training_program

_ROOT: Final = Path(__file__).resolve().parents[2]
_MPIEXEC: Final = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or ""
_POPC: Final = ("-c", "from popc.cli import main; main()")
_ADAM: Final = {"type": "adam", "learning_rate": 0.05, "clip_norm": [{"max_norm": 0.2}]}


def _require_mpi() -> None:
    pytest.importorskip("mpi4py")
    if not _MPIEXEC:
        pytest.skip("no mpiexec beside this Python: pip install mpich")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _require_mpi()
    training_program(tmp_path, trainable(**_ADAM), replicated_graph_count=4)
    samples = data(32)
    np.savez(tmp_path / "data.npz", x=samples["x"], target=samples["target"])
    return tmp_path


def _mpiexec(size: int, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [_MPIEXEC, "-n", str(size), sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        cwd=_ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def _train(folder: Path, name: str, epochs: int, *more: str) -> list[str | Path]:
    archive, samples = folder / "train.popx", folder / "data.npz"
    words: list[str | Path] = ["train", archive, "-d", samples, "-e", str(epochs)]
    return [*words, "-c", folder / name, "--threads", "1", *more]


def _weights(folder: Path, name: str) -> dict[str, bytes]:
    tensors = read_checkpoint(folder / name / "latest.safetensors").tensors
    return {key: value.tobytes() for key, value in tensors.items()}


def test_training_from_the_command_line(folder: Path) -> None:
    done = _mpiexec(2, *_POPC, *_train(folder, "two", 2))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("2 epoch") == 1  # the first process tells it
    assert run([str(word) for word in _train(folder, "one", 2)]) == 0
    assert _weights(folder, "one") == _weights(folder, "two")


@pytest.mark.slow
def test_training_goes_on_in_more_processes(folder: Path) -> None:
    for size, epochs, more in ((2, 1, ()), (4, 2, ("--resume",)), (1, 3, ("--resume",))):
        done = _mpiexec(size, *_POPC, *_train(folder, "several", epochs, *more))
        assert done.returncode == 0, done.stderr
    assert run([str(word) for word in _train(folder, "one", 3)]) == 0
    assert _weights(folder, "one") == _weights(folder, "several")


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_a_script_trains(size: int, folder: Path) -> None:
    done = _mpiexec(size, "-m", "tests.groups.worker", "trains", folder)
    assert done.returncode == 0, done.stderr
    trainer = Trainer(popc_runtime.load(folder / "train.popx"), data(32))
    losses = [record.loss.hex() for record in trainer.run(2)]
    expected = [f"rank {rank} of {size}: {loss}" for rank in range(size) for loss in losses]
    assert sorted(done.stdout.splitlines()) == sorted(expected)


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_sessions_of_popart_divide_their_replicas(size: int, tmp_path: Path) -> None:
    """enableDistributedReplicatedGraphs, with globalReplicationFactor and globalReplicaOffset."""
    _require_mpi()
    done = _mpiexec(size, "-m", "tests.groups.popart_worker", tmp_path, str(size))
    assert done.returncode == 0, done.stderr
    expected = popart_worker.train(1, 0)
    parts = [np.load(tmp_path / f"{rank}.npz") for rank in range(size)]
    losses = np.concatenate([part["losses"] for part in parts], axis=2)
    assert losses.tobytes() == expected["losses"].tobytes()
    for part in parts:
        assert part["weights"].tobytes() == expected["weights"].tobytes()


def test_a_rank_that_is_killed_is_named(folder: Path) -> None:
    done = _mpiexec(2, "-m", "tests.groups.worker", "killed", folder)
    assert done.returncode != 0
    assert "GroupError: rank 1 of 2 has died" in done.stderr
    assert "error: rank 1 (process" in done.stderr


@pytest.mark.slow
def test_a_rank_that_fails_is_named(folder: Path) -> None:
    done = _mpiexec(4, "-m", "tests.groups.worker", "raises", folder)
    assert done.returncode != 0
    assert done.stderr.count("rank 1 of 4 goes no further: ValueError: no good") == 3


@pytest.mark.slow
def test_processes_that_do_not_divide_the_replicas(folder: Path) -> None:
    done = _mpiexec(3, *_POPC, *_train(folder, "three", 1))
    assert done.returncode != 0
    assert "the archive has 4 replicas, which 3 processes cannot divide evenly" in done.stderr


@pytest.mark.parametrize("name", ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_mpiexec_without_mpi4py(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setenv(name, "1")
    assert not is_launched()
    monkeypatch.setenv(name, "2")
    assert is_launched()
    with pytest.raises(UsageError, match="mpi4py is not installed") as caught:
        join()
    assert "popc-runtime[mpi]" in caught.value.hint
