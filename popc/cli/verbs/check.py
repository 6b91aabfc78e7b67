"""popc check."""

from __future__ import annotations

from pathlib import Path

import click

from popc.cli.engine_options import limits_option
from popc.cli.report import Report, format_table

__all__ = ["command"]


@click.command("check")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@limits_option
def command(*, file: Path, limits: str) -> Report:
    """Say whether popc can compile FILE (a model) or this runtime can load it (an archive).

    Exits with 1 if not.  Shapes are not looked at: `popc compile` does that.

    \b
    popc check model.onnx
    popc check model.popx
    """
    from popc_runtime.format import is_archive

    return _check_archive(file, limits) if is_archive(file) else _check_model(file)


def _check_archive(path: Path, limits: str) -> Report:
    from popc_runtime.device import missing_opcodes
    from popc_runtime.format import ArchiveFile, Limits, decode_program

    chosen = Limits.of(limits)
    with ArchiveFile.open(path, limits=chosen) as archive:
        missing = missing_opcodes(decode_program(archive.read("program"), chosen))
        archive.verify()
    data = {"kind": "archive", "supported": not missing, "missing_instructions": list(missing)}
    if missing:
        text = f"not supported: this runtime lacks the instructions {', '.join(missing)}"
        return Report("check", data, text, exit_code=1)
    return Report("check", data, "supported: this runtime can load the archive")


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
    text = f"not supported: {len(found)} problems\n{format_table([header, *rows])}"
    return Report("check", data, text, exit_code=1)


def _some(nodes: tuple[str, ...]) -> str:
    shown = ", ".join(nodes[:3])
    return f"{shown}, ... {len(nodes) - 3} more" if len(nodes) > 3 else shown
