"""A script that mpiexec starts: trains some steps, in the way that its argument says."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np

import popc_runtime
from popc_runtime.groups import join
from popc_runtime.trainer import Trainer


def main(what: str, folder: Path) -> None:
    """Train for two epochs; rank 1 may be killed or fail in the first."""

    def on_step(step: int, steps: int, loss: float) -> None:
        del steps, loss
        if step == 2 and group.rank == 1:
            if what == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "raises":
                raise ValueError("no good")

    with join() as group:
        program = popc_runtime.load(folder / "train.popx", group=group)
        trainer = Trainer(program, dict(np.load(folder / "data.npz")), on_step=on_step)
        for record in trainer.run(2):
            sys.stdout.write(f"rank {group.rank} of {group.size}: {record.loss.hex()}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
