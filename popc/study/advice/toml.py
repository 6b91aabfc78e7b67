"""Options as a TOML file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

__all__ = ["format_toml", "format_value"]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def format_toml(values: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """One line for each value, with its comment if it has one."""
    lines: list[str] = []
    for name, value in values.items():
        comment = (comments or {}).get(name, "")
        line = f"{_key(name)} = {format_value(value)}"
        lines.append(f"{line}  # {comment}" if comment else line)
    return "\n".join(lines) + "\n" if lines else ""


def format_value(value: Any) -> str:
    """A value; tables in braces, on the same line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        entries = ", ".join(
            f"{_key(str(key))} = {format_value(item)}" for key, item in value.items()
        )
        return f"{{ {entries} }}" if entries else "{}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(format_value, value))}]"
    return _quoted(str(value))


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    """A basic string: TOML's escapes are those of JSON, but it refuses DEL as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
