"""`popc.compile` and `popc.load`.

This file imports nothing that takes time: what the cache holds needs neither onnx nor the compiler.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping

from popc.caching.programs import ProgramCache
from popc.caching.quick import given_file
from popc.collector import importing
from popc.folders import model_file
from popc_runtime.cache import CacheSource, cache_folder
from popc_runtime.errors import UsageError
from popc_runtime.format import MAGIC, is_archive
from popc_runtime.ground.hints import TYPE_CHECKING, Any
from popc_runtime.loader import load

if TYPE_CHECKING:
    from typing import BinaryIO, Unpack

    from popc.archive import Archive
    from popc.frontend import ModelSource
    from popc.progress import OnArtefact, OnGraph, OnProgress
    from popc.requests import SeveralKeywords
    from popc_runtime import Executable
    from popc_runtime.cache.loading import LoadKeywords

    class _LoadModelKeywords(SeveralKeywords, LoadKeywords, total=False):
        """A model to compile, and the way to load it."""


__all__ = ["compile_model", "load_model"]

_FILES = ("options", "train")  # keywords that may be paths


def compile_model(
    model: ModelSource | BinaryIO,
    *,
    cache: CacheSource = False,
    name: str = "",
    on_progress: OnProgress | None = None,
    on_artefact: OnArtefact | None = None,
    on_graph: OnGraph | None = None,
    against: str | os.PathLike[str] | None = None,
    **keywords: Unpack[SeveralKeywords],
) -> Archive:
    """Compile an ONNX model.  Exported as ``popc.compile``.

    Args:
        model: Path of a model, its bytes, a file that was opened for reading bytes, or the message
            itself.
        cache: True, or a folder: compile only what is not there, and keep it there.
        name: With ``cache``, what `popc_runtime.load_cached` finds the program by; by default the
            name of the model's file, without its suffix.
        on_progress: Told when a stage begins and ends; may raise to cancel.  `popc.show_progress()`
            shows it.
        on_artefact: Told the text form of what each stage made.
        on_graph: Shown the graph at each checkpoint, with the order of its ops where it is known.
        against: An archive; if the program exceeds its budget, the error says what has grown.
        **keywords: What is compiled: ``options``, ``shapes``, ``dims``, ``bind``, ``outputs``,
            ``train``, ``loss``, ``optimizer`` and ``meta``, as `popc.request.CompileKeywords` says;
            for several shapes lists of ``shapes``, several sizes of ``dims``, ``split`` and
            ``pad``, as `popc.requests.SeveralKeywords` does.

    Raises:
        ModelError: the model is not valid, or uses what popc cannot compile.
        OptionError: options are unknown, ill-typed or in conflict.
        UsageError: ``shapes``, ``dims``, ``bind`` or ``outputs`` do not fit the model.
        DoesNotFitError: a target was chosen, and the program does not fit it.
        BudgetError: it costs more than the option ``budget`` allows.
    """
    if cache is None or cache is False:
        if name:
            raise UsageError("name says what a program is called in the cache: give cache as well")
        with importing("popc.api"):
            from popc.api import compile_requests
            from popc.progress import Watch
            from popc.requests import several_requests

        requests = several_requests(model, **keywords)
        return compile_requests(requests, Watch(on_progress, on_artefact, on_graph), against)
    if on_artefact is not None or on_graph is not None:
        raise UsageError(
            "on_artefact and on_graph look at the stages, which a program from the cache skips",
            hint="leave out cache",
        )
    held: Any = model
    program = _cache(cache, held, name, keywords).get(lambda: _watch(on_progress), None, against)
    if program.archive is not None:
        return program.archive
    from popc.archive import StoredArchive

    archive = StoredArchive(program.path)
    archive.notes = program.notes
    return archive


def load_model(
    model: ModelSource,
    *,
    cache: CacheSource = True,
    name: str = "",
    on_progress: OnProgress | None = None,
    **keywords: Unpack[_LoadModelKeywords],
) -> Executable:
    """Load a model: from the cache, compiled if it is not there.  Exported as ``popc.load``.

    What the compiler notes, and what is wrong with the cache, is a `UserWarning`.

    Args:
        model: Path of a model, its bytes, the message itself; or an archive, which is just loaded.
        cache: True, a folder, or False to compile in any case.
        name: What `popc_runtime.load_cached` finds the program by; by default the name of the
            model's file, without its suffix.
        on_progress: Told when a stage of the compilation begins and ends; may raise to cancel.
        **keywords: Those of `popc.compile` and of `popc_runtime.load`.

    Raises:
        ModelError, OptionError, UsageError, DoesNotFitError, BudgetError: see `popc.compile`.
        ArchiveError, ResourceError, DeviceError: see `popc_runtime.load`.
    """
    given: Mapping[str, Any] = keywords
    of_load = load.__kwdefaults__ or {}
    settings = {key: value for key, value in given.items() if key in of_load}
    compiled: Any = {key: value for key, value in given.items() if key not in of_load}
    if _is_archive(model):
        if compiled or name:
            raise UsageError(
                f"{', '.join([*compiled, *(['name'] if name else [])])}: what is given is an "
                "archive, which is compiled already",
                hint="give the model instead, or leave these out",
            )
        archived: Any = model
        return load(archived, **settings)
    if cache is None or cache is False:
        archive = compile_model(model, name=name, on_progress=on_progress, **compiled)
        _warn(archive.notes)
        return load(archive.to_bytes(), **settings)
    found = _cache(cache, model, name, compiled)
    executable, program = found.load(lambda: _watch(on_progress), **settings)
    _warn(program.notes)
    return executable


def _cache(
    cache: CacheSource, model: ModelSource, name: str, keywords: SeveralKeywords
) -> ProgramCache:
    held: Any = model_file(model) if isinstance(model, str | os.PathLike) else model

    def requests() -> Any:
        from popc.requests import several_requests

        return several_requests(held, **keywords)

    folder = cache_folder(cache)
    settings: dict[str, Any] = {
        key: given_file(value, folder)
        if key in _FILES and isinstance(value, str | os.PathLike)
        else value
        for key, value in keywords.items()
    }
    return ProgramCache(folder, held, settings, requests, name)


def _watch(on_progress: OnProgress | None) -> Any:
    from popc.progress import Watch

    return Watch(on_progress)


def _is_archive(model: object) -> bool:
    if isinstance(model, bytes):
        return model.startswith(MAGIC)
    if not isinstance(model, str | os.PathLike):
        return False
    try:
        return is_archive(model)
    except (OSError, ValueError):  # ValueError: NUL in the path
        return False  # the compiler says what is wrong with it


def _warn(notes: tuple[str, ...]) -> None:
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=3)
