"""The options of the server's command line, which both of its commands have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from popc_runtime.errors import PopcError, UsageError
from popc_runtime.ground.frozen import frozen
from popc_runtime.serving.settings import ServeSettings, model_source, refuse_problems

__all__ = ["OPTIONS", "ServeOption", "require_packages", "settings_of"]

_PACKAGES: Final = ("uvicorn", "grpc", "tritonclient.grpc", "prometheus_client")


@frozen
class ServeOption:
    """An option; its name is that of a field of `ServeSettings`."""

    name: str
    kind: type
    metavar: str
    meaning: str
    repeats: bool = False

    @property
    def flag(self) -> str:
        """The option as it is typed."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def is_flag(self) -> bool:
        """True if it takes no value."""
        return self.kind is bool

    @property
    def default(self) -> Any:
        """The value of the field."""
        return getattr(_DEFAULTS, self.name)


_DEFAULTS: Final = ServeSettings(())

OPTIONS: Final = (
    ServeOption("host", str, "ADDRESS", "Address to listen on; 0.0.0.0 for all."),
    ServeOption("http_port", int, "PORT", "Port for HTTP; 0 for any free one."),
    ServeOption("grpc_port", int, "PORT", "Port for gRPC; 0 for any free one, -1 for none."),
    ServeOption("workers", int, "N", "Processes that answer requests; they share mapped weights."),
    ServeOption("threads", int, "N", "Threads of a run; 0: the processors divided by workers."),
    ServeOption("max_batch", int, "N", "Most samples of a run; 0: those of the largest program."),
    ServeOption("max_wait", float, "SECONDS", "Time that a request waits for others to join."),
    ServeOption("max_queue", int, "N", "Requests that may wait for each model in a worker."),
    ServeOption("max_request_bytes", int, "BYTES", "Most bytes of a request."),
    ServeOption("max_pending_bytes", int, "BYTES", "Most bytes of all requests in a worker."),
    ServeOption("timeout", float, "SECONDS", "Time after which a request is given up."),
    ServeOption("drain", float, "SECONDS", "Time that requests have to end after SIGTERM."),
    ServeOption("limits", str, "NAME", "How much an archive may allocate: default or strict."),
    ServeOption("engine", str, "NAME", "Engine to use: auto, native or numpy."),
    ServeOption(
        "signed_by", str, "FILE", "Require the signature of this key (.pem).", repeats=True
    ),
    ServeOption("log_format", str, "NAME", "Logs on stderr: text or json."),
    ServeOption("log_level", str, "NAME", "debug, info, warning or error."),
    ServeOption("log_requests", bool, "", "Write a line for every request."),
)


def settings_of(models: Sequence[str], given: Mapping[str, Any]) -> ServeSettings:
    """The settings that a command line asks for.

    Raises:
        UsageError: packages are missing, or a source is none; lists all.
    """
    require_packages()
    problems: list[str] = []
    sources = []
    for text in models:
        try:
            sources.append(model_source(text))
        except PopcError as error:
            problems.append(str(error))
    refuse_problems(problems)
    values: Any = {
        name: tuple(value) if name == "signed_by" else value for name, value in given.items()
    }
    settings = ServeSettings(tuple(sources), **values)
    settings.check()
    return settings


def require_packages() -> None:
    """Check that the packages of the extra are installed.

    Raises:
        UsageError: they are not; lists all.
    """
    from importlib.util import find_spec

    missing = [name for name in _PACKAGES if find_spec(name.partition(".")[0]) is None]
    if missing:
        raise UsageError(
            f"serving needs packages that are not installed: {', '.join(missing)}",
            hint="pip install 'popc-runtime[serve]'",
        )
