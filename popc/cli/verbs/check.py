"""popc check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from popc.cli.console import Console
from popc.cli.engine_options import limits_option
from popc.cli.model_options import (
    ModelSettings,
    file_argument,
    model_options,
    refuse_model_settings,
    train_option,
)
from popc.cli.report import Report, counted, format_table
from popc_runtime.errors import DoesNotFitError, ModelError, UsageError

if TYPE_CHECKING:
    from popc_runtime.format import ArchiveFile

__all__ = ["command"]


@click.command("check")
@file_argument
@limits_option
@click.option(
    "--signed-by",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="KEY",
    help="Of an archive: require that the owner of this public key, or of one of several, has "
    "signed it (see `popc sign`).",
)
@model_options
@train_option("Check a training step: this file names loss and optimizer.")
@click.pass_obj
def command(
    console: Console,
    *,
    file: Path,
    limits: str,
    keys: tuple[Path, ...],
    settings: ModelSettings,
    train: Path | None,
) -> Report:
    """Say whether popc can compile FILE (a model) or this runtime can load it (an archive).

    Exits with 1 if not.  Operators are looked up; with shapes, dimensions or other settings the
    model is compiled too, and nothing written.

    \b
    popc check model.onnx
    popc check model.onnx --dim batch=8
    popc check model.popx
    popc check model.popx --signed-by public.pem
    """
    from popc_runtime.format import is_archive

    if is_archive(file):
        refuse_model_settings(settings, train)
        return _check_archive(file, limits, keys)
    if keys:
        raise UsageError("--signed-by is for archives: models are not signed")
    if train is None and settings.is_empty:
        return _check_model(file)
    return _check_compiles(console, file, settings, train)


def _check_compiles(
    console: Console, path: Path, settings: ModelSettings, train: Path | None
) -> Report:
    from popc.compiler import compile_program
    from popc.progress import Watch
    from popc.reporting.estimation import check_target

    request = settings.request(path, train)
    check_target(request.options)
    known = _check_model(path)
    if known.exit_code:
        return known
    try:
        compiled = compile_program(request, request.load(), Watch(console.on_progress()))
    except (ModelError, DoesNotFitError) as error:
        problem = {"code": error.code, "message": error.message, "details": list(error.details)}
        data = {**known.data, "supported": False, "compiles": False, "problem": problem}
        return Report("check", data, f"does not compile: {error}", exit_code=1)
    model = compiled.planned.model
    data = {**known.data, "compiles": True, "problem": None}
    return Report("check", data, "supported: the model compiles", warnings=tuple(model.notes))


def _check_archive(path: Path, limits: str, keys: tuple[Path, ...]) -> Report:
    from popc_runtime.device import missing_opcodes
    from popc_runtime.format import ArchiveFile, Limits, decode_program

    chosen = Limits.of(limits)
    with ArchiveFile.open(path, limits=chosen) as archive:
        missing = missing_opcodes(decode_program(archive.read("program"), chosen))
        archive.verify()
        signers = _signers(archive, path, keys)
    data = {
        "kind": "archive",
        "supported": not missing,
        "missing_instructions": list(missing),
        "signed_by": signers,
    }
    if missing:
        text = f"not supported: this runtime lacks the instructions {', '.join(missing)}"
        return Report("check", data, text, exit_code=1)
    signed = f"; signed by {', '.join(signers)}" if signers else ""
    return Report("check", data, f"supported: this runtime can load the archive{signed}")


def _signers(archive: ArchiveFile, path: Path, keys: tuple[Path, ...]) -> list[str]:
    """The names of the keys that have signed an archive, of those that are asked for."""
    if not keys:
        return []
    from popc_runtime.format.signature import require_signature

    return list(require_signature(archive, str(path), keys, whole=True))


def _check_model(path: Path) -> Report:
    from popc.frontend import find_unsupported, load_model

    found = find_unsupported(load_model(path))
    data = {
        "kind": "model",
        "supported": not found,
        "unsupported": [
            {
                "op": row.op_type,
                "domain": row.domain or "ai.onnx",
                "opset": row.opset,
                "reason": row.reason,
                "nodes": list(row.nodes),
            }
            for row in found
        ],
    }
    if not found:
        return Report("check", data, "supported: popc knows every operator of the model")
    rows = [
        [
            f"{row.domain or 'ai.onnx'}.{row.op_type}",
            f"opset {row.opset}",
            row.reason,
            _some(row.nodes),
        ]
        for row in found
    ]
    header = ["operator", "version", "reason", "nodes"]
    text = f"not supported: {counted(len(found), 'problem')}\n{format_table([header, *rows])}"
    return Report("check", data, text, exit_code=1)


def _some(nodes: tuple[str, ...]) -> str:
    shown = ", ".join(nodes[:3])
    return f"{shown}, ... {len(nodes) - 3} more" if len(nodes) > 3 else shown
