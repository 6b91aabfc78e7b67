"""Programs that verbs compare and report on: archives, or models that are compiled for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from popc.cli.console import Console
from popc.cli.model_options import ModelSettings, refuse_model_settings
from popc_runtime.errors import UsageError
from popc_runtime.format import MAIN_PROGRAM

if TYPE_CHECKING:
    from popc.reporting import Profile

__all__ = ["load_profiles"]


def load_profiles(
    files: tuple[Path, ...],
    settings: ModelSettings,
    train: Path | None,
    console: Console,
    program: str = "",
) -> list[Profile]:
    """The profile of each file; of archives with several programs, of the one of this name.

    Raises:
        UsageError: options for models are given, but all files are archives; or a program is
            named, and all have one only.
        PopcError: an archive is damaged, or a model cannot be compiled.
    """
    from popc.reporting import read_profile
    from popc_runtime.format import is_archive

    archived = [is_archive(file) for file in files]
    if all(archived):
        refuse_model_settings(settings, train)
    several = [found and _has_several(file) for file, found in zip(files, archived, strict=True)]
    if program not in ("", MAIN_PROGRAM) and not any(several):
        raise UsageError(
            f"--program {program}: there is one program only", hint="leave out --program"
        )
    return [
        read_profile(file, program=program if has_several else "")
        if is_archive_file
        else _of_model(file, settings, train, console)
        for file, is_archive_file, has_several in zip(files, archived, several, strict=True)
    ]


def _has_several(file: Path) -> bool:
    from popc_runtime.format import ArchiveFile

    with ArchiveFile.open(file) as archive:
        return bool(archive.manifest.variants)


def _of_model(file: Path, settings: ModelSettings, train: Path | None, console: Console) -> Profile:
    from popc.api import compile_request
    from popc.options.table import FrozenTable
    from popc.progress import Watch
    from popc.reporting import profile_of

    request = settings.request(file, train)
    # A report says whether the program fits; only who compiles it needs to be stopped.
    options = replace(
        request.options, cost_report=True, allow_out_of_memory=True, budget=FrozenTable()
    )
    archive = compile_request(request.with_options(options), Watch(console.on_progress()))
    return profile_of(archive, file.name)
