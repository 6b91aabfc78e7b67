"""The history of a training as a table and as a picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from popc_runtime.errors import ResourceError, SpokenHint
from popc_runtime.process.files import new_file
from popc_runtime.trainer import EpochRecord

__all__ = ["require_plotting", "write_csv", "write_png"]


def write_csv(path: Path, history: Sequence[EpochRecord]) -> None:
    """One row per epoch: its number, the loss, seconds, and each metric.

    Raises:
        ResourceError: it cannot be written.
    """
    metrics = list(dict.fromkeys(name for record in history for name in record.metrics))
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["epoch", "loss", "seconds", *metrics])
    for record in history:
        values = [record.metrics.get(name, "") for name in metrics]
        writer.writerow([record.epoch, record.loss, f"{record.seconds:.3f}", *values])
    with new_file(path) as file:
        file.write(buffer.getvalue().encode())


def require_plotting() -> None:
    """Raise ResourceError if no picture can be made."""
    if find_spec("matplotlib") is None:
        raise ResourceError(
            "matplotlib, which draws the loss curve, is not installed",
            hint=SpokenHint(
                "pip install 'popc[plot]', or write the numbers",
                "pip install 'popc[plot]', or leave out --plot: --log writes the numbers",
            ),
        )


def write_png(path: Path, history: Sequence[EpochRecord]) -> None:
    """The loss, and the metrics if there are any, over the epochs.

    Raises:
        ResourceError: matplotlib is missing, or the file cannot be written.
    """
    require_plotting()
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    metrics = list(dict.fromkeys(name for record in history for name in record.metrics))
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    epochs = [record.epoch for record in history]
    axes.plot(epochs, [record.loss for record in history], marker="o", label="loss")
    axes.set_xlabel("epoch")
    axes.set_ylabel("loss")
    axes.grid(visible=True, alpha=0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if metrics:
        other = axes.twinx()
        other.set_ylabel(", ".join(metrics))
        for number, name in enumerate(metrics, start=1):
            values = [record.metrics.get(name, float("nan")) for record in history]
            other.plot(epochs, values, marker=".", color=f"C{number}", label=name)
        figure.legend(loc="outside upper center", ncols=len(metrics) + 1)
    buffer = io.BytesIO()
    # No date and no version of matplotlib: the same history gives the same file.
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    with new_file(path) as file:
        file.write(buffer.getvalue())
