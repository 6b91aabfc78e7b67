"""PopART's log: modules with levels, messages to stderr, stdout or a file.

It is PopART's own and not Python's `logging`, because programs choose levels by PopART's names and
environment variables: ``POPART_LOG_LEVEL``, ``POPART_LOG_DEST``, ``POPART_LOG_CONFIG`` and
``POPART_LOG_FORMAT``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

__all__ = ["Logger", "getLogger", "log", "log_once"]

_LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERR", "CRITICAL", "OFF")
_LETTERS: Final = ("T", "D", "I", "W", "E", "C", "O")
_NAMES: Final = ("trace", "debug", "info", "warning", "error", "critical", "off")
_MODULES: Final = (
    *("session", "ir", "devicex", "popart", "transform", "pattern", "builder", "op", "opx", "ces"),
    "python",
)
_FORMAT: Final = "[%T.%f] [popart:%n] [%P.%t] [%L] %v"


class _Log:
    """Levels and destination of this process; read from the environment when first used."""

    def __init__(self) -> None:
        self.default = _number(os.environ.get("POPART_LOG_LEVEL", "WARN"))
        self.levels: dict[str, int] = {}
        self.format = os.environ.get("POPART_LOG_FORMAT", "") or _FORMAT
        self._file: TextIO | None = None
        self._destination = os.environ.get("POPART_LOG_DEST", "") or "stderr"
        config = os.environ.get("POPART_LOG_CONFIG", "")
        if config:
            levels = json.loads(Path(config).read_text(encoding="utf-8"))
            for name, level in levels.items():
                self.levels[str(name).removeprefix("popart:")] = _number(str(level))

    def write(self, module: str, level: int, message: str) -> None:
        """One message, whole, on a line of its own."""
        stream = self._stream()
        stream.write(_formatted(self.format, module, level, message) + "\n")
        stream.flush()

    def _stream(self) -> TextIO:
        if self._destination == "stderr":
            return sys.stderr
        if self._destination == "stdout":
            return sys.stdout
        if self._file is None:
            self._file = Path(self._destination).open("w", encoding="utf-8")  # noqa: SIM115 - kept
        return self._file


def _number(level: str) -> int:
    """The rank of a level's name; of an unknown name that of OFF."""
    return _LEVELS.index(level) if level in _LEVELS else _LEVELS.index("OFF")


def _formatted(pattern: str, module: str, level: int, message: str) -> str:
    """``message`` in the notation of spdlog, as far as it names time, place and level."""
    now = datetime.now(UTC)
    fields = {
        "v": message,
        "n": module,
        "l": _NAMES[level],
        "L": _LETTERS[level],
        "P": str(os.getpid()),
        "t": str(threading.get_native_id()),
        "T": now.strftime("%H:%M:%S"),
        "e": f"{now.microsecond // 1000:03}",
        "f": f"{now.microsecond:06}",
        "F": f"{now.microsecond * 1000:09}",
        "z": "+00:00",
        "%": "%",
        "^": "",
        "$": "",
    }
    calendar = "YmdHMSaAbBcCDxpIjyRrX"

    def field(found: re.Match[str]) -> str:
        flag = found[1]
        if flag in fields:
            return fields[flag]
        return now.strftime(f"%{flag}") if flag in calendar else found[0]

    return re.sub(r"%(.)", field, pattern)


_STATE: list[_Log] = []


def _state() -> _Log:
    if not _STATE:
        _STATE.append(_Log())
    return _STATE[0]


def log(module: str, level: str, message: str) -> None:
    """Write ``message``, if the level of ``module`` lets it pass."""
    state = _state()
    number = _number(level)
    if number >= state.levels.get(module, state.default):
        state.write(module, number, message)


_SAID: Final[set[str]] = set()


def log_once(module: str, message: str) -> None:
    """Warn of something the first time that it happens in this process."""
    if message not in _SAID:
        _SAID.add(message)
        log(module, "WARN", message)


class Logger:
    """The log of a module.  Messages are those of module "python", whatever the name."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def setLevel(self, level: str, /) -> None:
        """Let only messages from ``level`` on pass; an unknown name means OFF.

        Of the logger "all" this is the level of every module.
        """
        state = _state()
        if self._name == "all":
            state.default = _number(level)
            state.levels.clear()
        else:
            known = self._name if self._name in _MODULES else "unknown"
            state.levels[known] = _number(level)

    def debug(self, msg: str, /) -> None:
        """Write a message of level DEBUG."""
        log("python", "DEBUG", msg)

    def info(self, msg: str, /) -> None:
        """Write a message of level INFO."""
        log("python", "INFO", msg)

    def warn(self, msg: str, /) -> None:
        """Write a message of level WARN."""
        log("python", "WARN", msg)

    def error(self, msg: str, /) -> None:
        """Write a message of level ERR."""
        log("python", "ERR", msg)

    def critical(self, msg: str, /) -> None:
        """Write a message of level CRITICAL."""
        log("python", "CRITICAL", msg)


def getLogger(name: str = "all") -> Logger:
    """The logger of a module, or of "all"."""
    return Logger(name)
