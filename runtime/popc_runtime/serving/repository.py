"""The models of a server: names and versions, which come and go while requests are answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from popc_runtime.errors import NotServedError, PopcError
from popc_runtime.ground.frozen import frozen
from popc_runtime.loader import load
from popc_runtime.serving.metrics import Metrics
from popc_runtime.serving.models import ArchiveModel, ServedModel
from popc_runtime.serving.runner import Runner
from popc_runtime.serving.settings import ModelSource, ServeSettings

__all__ = ["Loader", "Repository", "State", "archive_model", "naming"]

# Makes a model of its source.
Loader = Callable[[ModelSource, ServeSettings], ServedModel]


@frozen
class State:
    """A version of a model, as the index lists it."""

    name: str
    version: int
    is_ready: bool
    reason: str = ""


def archive_model(source: ModelSource, settings: ServeSettings) -> ServedModel:
    """The model of an archive, ready for its first request.

    Raises:
        PopcError: see `popc_runtime.load`; or the archive trains.
    """
    keys: dict[str, Any] = {"require_signature": settings.signed_by} if settings.signed_by else {}
    with naming(source):
        executable = load(
            source.path,
            threads=settings.worker_threads(),
            limits=settings.limits,
            engine=settings.engine,
            **keys,
        )
        model = ArchiveModel(executable, max_batch=settings.max_batch, workers=settings.workers)
        model.warmup()
    return model


@contextmanager
def naming(source: ModelSource) -> Iterator[None]:
    """Let errors of popc within the block say which model and file they are about."""
    try:
        yield
    except PopcError as error:
        error.message = f"{source.name}:{source.version}={source.path}: {error.message}"
        raise


class Repository:
    """The models that were named when the server began, loaded or not.

    A version is loaded beside the one that it replaces, which then answers what it has accepted.
    """

    def __init__(
        self, settings: ServeSettings, metrics: Metrics, loader: Loader = archive_model
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._loader = loader
        self._sources: dict[str, dict[int, ModelSource]] = {}
        for source in settings.models:
            self._sources.setdefault(source.name, {})[source.version] = source
        self._runners: dict[str, dict[int, Runner]] = {}
        self._reasons: dict[tuple[str, int], str] = {}
        self._unloaded: set[str] = set()
        self._changing = threading.Lock()  # held while models come and go, not while they run

    @property
    def names(self) -> Sequence[str]:
        """The names of all models."""
        return tuple(self._sources)

    def is_ready(self) -> bool:
        """True if all models are loaded but those that somebody has unloaded."""
        wanted = {name: each for name, each in self._sources.items() if name not in self._unloaded}
        return all(
            self._runners.get(name, {}).keys() == each.keys() for name, each in wanted.items()
        )

    def load(self, name: str) -> None:
        """Load all versions of a model from their files, or none.

        Raises:
            NotServedError: there is no such model.
            PopcError: an archive cannot be loaded; what was loaded before goes on.
        """
        sources = self._known(name)
        with self._changing:
            made: dict[int, Runner] = {}
            try:
                for version, source in sources.items():
                    made[version] = self._runner(source)
                    self._reasons.pop((name, version), None)
            except (PopcError, MemoryError) as error:
                self._reasons[name, version] = str(error) or "out of memory"
                for runner in made.values():
                    runner.close()
                raise
            before = self._runners.get(name, {})
            self._runners[name] = made
            self._unloaded.discard(name)
        for runner in before.values():
            runner.close()

    def unload(self, name: str) -> None:
        """Let a model answer what it has accepted, and take it out of memory.

        Raises:
            NotServedError: there is no such model.
        """
        self._known(name)
        with self._changing:
            before = self._runners.pop(name, {})
            self._unloaded.add(name)
        for runner in before.values():
            runner.close()

    def find(self, name: str, version: str = "") -> tuple[int, Runner]:
        """A loaded version of a model; "" for the latest.

        Raises:
            NotServedError: there is none.
        """
        sources = self._known(name)
        runners = self._runners.get(name, {})
        if not version and runners:
            number = max(runners)
            return number, runners[number]
        number = int(version) if version.isdecimal() and len(version) < 10 else 0
        if version and number not in sources:
            raise NotServedError(
                f"model {name} has no version {version!r:.40}",
                hint=f"its versions are {', '.join(map(str, sorted(sources)))}",
                is_known=False,
            )
        if number not in runners:
            raise NotServedError(
                f"model {name} is not loaded", hint=f"POST v2/repository/models/{name}/load"
            )
        return number, runners[number]

    def versions(self, name: str) -> list[int]:
        """The loaded versions of a model."""
        return sorted(self._runners.get(name, {}))

    def index(self) -> list[State]:
        """All versions of all models."""
        return [
            State(
                name,
                version,
                version in self._runners.get(name, {}),
                self._reasons.get((name, version), "unloaded" if name in self._unloaded else ""),
            )
            for name, sources in self._sources.items()
            for version in sorted(sources)
        ]

    def close(self) -> None:
        """Answer what was accepted, and unload everything."""
        for name in self._sources:
            self.unload(name)

    def _known(self, name: str) -> dict[int, ModelSource]:
        if name not in self._sources:
            raise NotServedError(
                f"there is no model {name!r:.80}",
                hint=f"the models are {', '.join(self._sources)}",
                is_known=False,
            )
        return self._sources[name]

    def _runner(self, source: ModelSource) -> Runner:
        return Runner(
            self._loader(source, self._settings),
            name=str(source),
            max_wait=self._settings.max_wait,
            max_queue=self._settings.max_queue,
            ran=partial(self._metrics.ran, source.name, str(source.version)),
        )
