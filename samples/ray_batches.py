"""Run an archive over a data set with Ray Data, on as many machines as Ray has.

    pip install 'ray[data]' popc-runtime
    python samples/ray_batches.py net.popx rows.parquet results/

A `Predictor` is an actor of Ray: it loads the archive once, and then takes batch after batch.  The
data set has a column for each input of the model, with a sample in each row; results become further
columns.  The archive is at a path that all machines have, or at a URL (s3://...) where fsspec is
installed.  If it was compiled for several sizes of batches (--dim batch=1,8,64 --split batch),
batches may be of any size.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import ray

import popc_runtime


class Predictor:
    """A callable for ``map_batches``."""

    def __init__(self, archive: str, threads: int = 1) -> None:
        """Load the archive; Ray counts on actors that use the processors that they reserve."""
        self._model = popc_runtime.load(archive, threads=threads)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch with the results as further columns."""
        missing = [spec.name for spec in self._model.inputs if spec.name not in batch]
        if missing:
            raise ValueError(f"the data set has no column {missing}, but {sorted(batch)}")
        inputs = {spec.name: _stacked(batch[spec.name]) for spec in self._model.inputs}
        results = self._model.run(inputs, cast="same_kind")
        twice = sorted(results.keys() & batch.keys())
        if twice:
            raise ValueError(f"the data set has columns with names of results: {twice}")
        return {**batch, **results}


def _stacked(column: Any) -> Any:
    """A column as an array; lists in files are samples of type object."""
    return np.array(column.tolist()) if column.dtype == object else column


def predicted(rows: Any, archive: str, *, actors: int | None = None, batch_size: int = 64) -> Any:
    """A data set with the results of a model, computed when it is read or written.

    There are as many actors as Ray has processors for, beside those that read and write files;
    ``actors`` is the most of them.
    """
    return rows.map_batches(
        Predictor,
        fn_constructor_args=(archive,),
        batch_size=batch_size,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=actors),
        num_cpus=1,
    )


def main(arguments: list[str]) -> int:
    """Read rows, run, write results."""
    if len(arguments) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    archive, source, target = arguments
    predicted(ray.data.read_parquet(source), archive).write_parquet(target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
