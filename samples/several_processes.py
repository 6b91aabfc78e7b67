r"""Train a network to read digits in several processes, which divide its replicas among themselves.

    pip install "popc-runtime[mpi]" mpich
    mpiexec -n 2 python samples/several_processes.py [FOLDER]

Started without mpiexec, one process runs all four replicas: losses are the same, bit for bit.
"""

from __future__ import annotations

import sys
from pathlib import Path

from networks import digits_cnn
from train_digits import load_digits

import popc
import popc_runtime
from popc_runtime.groups import Group, is_launched, join, once
from popc_runtime.trainer import Checkpoints, Trainer

REPLICAS = 4
BATCH = 8
EPOCHS = 3


def compile_to(path: Path) -> None:
    """Write the archive, for all replicas."""
    path.parent.mkdir(parents=True, exist_ok=True)
    archive = popc.compile(
        digits_cnn(),
        dims={"batch": BATCH},
        loss={"type": "cross_entropy", "input": "logits", "label": "label"},
        optimizer={"type": "adam", "learning_rate": 2e-3},
        options={"replicated_graph_count": REPLICAS, "merge_all_reduce_collectives": True},
    )
    archive.save(path, force=True)


def train(folder: Path, group: Group | None) -> list[float]:
    """Train on all digits; the losses of the epochs, which all processes know."""
    path = folder / "train.popx"
    once(group, "the archive", lambda: compile_to(path))  # by one, for all
    program = popc_runtime.load(path, group=group)
    trainer = Trainer(program, load_digits()[0], seed=1)
    losses = []
    for record in trainer.run(EPOCHS):
        losses.append(record.loss)
        Checkpoints(folder).save(program, "latest", trainer.progress)
        if group is None or group.rank == 0:
            print(f"epoch {record.epoch}  loss {record.loss:.6f}", flush=True)
    return losses


def main(folder: Path) -> None:
    """Train in as many processes as mpiexec has started."""
    if not is_launched():
        train(folder, None)
        return
    with join() as group:
        train(folder, group)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "several_processes"))
