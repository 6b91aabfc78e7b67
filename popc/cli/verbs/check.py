"""popc check."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from popc.cli.console import Console
from popc.cli.engine_options import limits_option
from popc.cli.model_options import (
    ModelSettings,
    file_argument,
    model_options,
    refuse_model_settings,
    several_options,
    train_option,
)
from popc.cli.report import Report, counted, format_table
from popc_runtime.errors import DoesNotFitError, ModelError, UsageError
from popc_runtime.ground.frozen import frozen

if TYPE_CHECKING:
    from popc.compiler import Compiled
    from popc.frontend import LoadedModel, ModelSource
    from popc.progress import Watch
    from popc.request import CompileRequest
    from popc.requests import Requests
    from popc_runtime.errors import PopcError
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
@several_options
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
    model is compiled too, once for each of several sizes, and nothing written.

    \b
    popc check model.onnx
    popc check model.onnx --dim batch=8
    popc check model.onnx --dim batch=1,2,4 --split batch
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
    """The answer for each program, and for what they have in common if all compile."""
    from popc.ops.shared import sharing
    from popc.progress import Watch
    from popc.reporting.estimation import check_target

    requests = settings.requests(path, train)
    check_target(requests.programs[0].options)
    watch = Watch(console.on_progress())
    loaded = requests.programs[0].load(watch)
    known = _check_model(loaded)
    if known.exit_code:
        return known
    with sharing():
        answers = [_answer(request, loaded, watch) for request in requests.programs]
        compiled = [answer.compiled for answer in answers if answer.compiled is not None]
        whole = _whole(requests, compiled, watch) if len(compiled) == len(answers) else None
        if isinstance(whole, DoesNotFitError):
            answers = [_fitted(answer) for answer in answers]
    problem = whole or next((answer.problem for answer in answers if answer.problem), None)
    rows = [answer.to_dict() for answer in answers]
    data = {
        **known.data,
        "supported": problem is None,
        "compiles": problem is None,
        "problem": None if problem is None else _plain(problem),
        "programs": rows,
    }
    notes = dict.fromkeys(note for each in compiled for note in each.planned.model.notes)
    text = _answers_text(answers, problem)
    return Report("check", data, text, exit_code=int(problem is not None), warnings=tuple(notes))


@frozen
class _Answer:
    """A program that was compiled, or the problem that was in the way."""

    request: CompileRequest
    compiled: Compiled | None = None
    problem: PopcError | None = None

    @property
    def sizes(self) -> str:
        """The sizes that it was asked for with."""
        shapes = (f"{name}={','.join(map(str, dims))}" for name, dims in self._shapes())
        return ", ".join((*shapes, *(f"{name}={n}" for name, n in self.request.dims.items())))

    def _shapes(self) -> Iterable[tuple[str, Sequence[int]]]:
        return self.request.shapes.items()

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data."""
        return {
            "shapes": {name: list(shape) for name, shape in self._shapes()},
            "dims": dict(self.request.dims),
            "compiles": self.problem is None,
            "problem": None if self.problem is None else _plain(self.problem),
        }


def _answer(request: CompileRequest, loaded: LoadedModel, watch: Watch) -> _Answer:
    from popc.compiler import compile_program

    try:
        return _Answer(request, compile_program(request, loaded, watch))
    except (ModelError, DoesNotFitError) as error:
        return _Answer(request, None, error)


def _fitted(answer: _Answer) -> _Answer:
    """The answer with what keeps the program by itself from fitting."""
    from popc.api import archive_of

    assert answer.compiled is not None, "looked at if all compile"
    try:
        archive_of([answer.compiled])
    except DoesNotFitError as error:
        return replace(answer, problem=error)
    return answer


def _whole(requests: Requests, compiled: Sequence[Compiled], watch: Watch) -> PopcError | None:
    """The problem that is in the way of one archive for all of them, if there is one."""
    from popc.api import archive_of_requests

    try:
        archive_of_requests(requests, compiled, watch)
    except (ModelError, DoesNotFitError, UsageError) as error:
        return error
    return None


def _plain(error: PopcError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, "details": list(error.details)}


def _answers_text(answers: Sequence[_Answer], problem: PopcError | None) -> str:
    if len(answers) == 1:
        fine = "supported: the model compiles"
        return fine if problem is None else f"does not compile: {problem}"
    rows = [
        [row.sizes, "compiles" if row.problem is None else f"does not compile: {row.problem}"]
        for row in answers
    ]
    table = format_table(rows)
    if problem is None:
        return f"{table}\nsupported: one archive holds all of them"
    if all(row.problem is None for row in answers):
        return f"{table}\nnot as one archive: {problem}"
    return table


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


def _check_model(source: ModelSource) -> Report:
    from popc.frontend import find_unsupported, load_model

    found = find_unsupported(load_model(source))
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
