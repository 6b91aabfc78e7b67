"""Logs: a line for each event, with its facts beside it, as text or JSON."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any

__all__ = ["configure", "note"]

_LOGGER = logging.getLogger("popc.serving")


def configure(form: str, level: str) -> None:
    """Write what the server and its libraries have to say to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    for logger, least in ((_LOGGER, level.upper()), (logging.getLogger("uvicorn"), "WARNING")):
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(least)


def note(level: str, event: str, **facts: Any) -> None:
    """Write an event."""
    number = logging.getLevelNamesMapping()[level.upper()]
    if _LOGGER.isEnabledFor(number):
        _LOGGER.log(number, event, extra={"facts": facts})


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    facts = dict(getattr(record, "facts", {}))
    if record.exc_info:
        facts["error"] = logging.Formatter().formatException(record.exc_info)
    return facts


class _Json(logging.Formatter):
    """An object for each event."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": os.getpid(),
            "event": record.getMessage(),
        }
        return json.dumps(line | _facts(record), default=str)


class _Text(logging.Formatter):
    """The same for people."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        facts = "".join(f"  {name}={value}" for name, value in _facts(record).items())
        return f"{time} {record.levelname.lower():7} {record.getMessage()}{facts}"
