"""popc export."""

from __future__ import annotations

from pathlib import Path

import click

from popc.cli.files import output_option
from popc.cli.report import Report, format_bytes

__all__ = ["command"]

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command("export")
@click.argument("archive", type=_FILE)
@output_option("The ONNX file to write.")
@click.option(
    "--checkpoint",
    type=_FILE,
    metavar="FILE",
    help="Checkpoint to take the weights from; by default, the initial weights of the archive.",
)
@click.option(
    "--optimizer-state", is_flag=True, help="Also write the optimizer's state, as initializers."
)
@click.option(
    "--inference", is_flag=True,
    help="Normalise by running statistics and turn dropout off, even if the model was exported in "
    "training mode.",
)  # fmt: skip
@click.option(
    "--replica",
    type=int,
    default=0,
    metavar="N",
    help="Replica whose weights to write, where replicas do not share them.",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def command(
    *,
    archive: Path,
    output: Path,
    checkpoint: Path | None,
    optimizer_state: bool,
    inference: bool,
    replica: int,
    force: bool,
) -> Report:
    """Write the model that ARCHIVE was compiled from, with trained weights.

    \b
    popc export train.popx --checkpoint checkpoints/best.safetensors -o trained.onnx
    """
    from popc.trained.export import export_onnx

    path = export_onnx(
        archive,
        output,
        state=checkpoint,
        optimizer_state=optimizer_state,
        inference=inference,
        replica=replica,
        force=force,
    )
    size = path.stat().st_size
    return Report("export", {"file": str(path), "bytes": size}, f"{path}  {format_bytes(size)}")
