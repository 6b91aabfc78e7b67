"""Reports that were stored as JSON, as `CostReport` again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from math import isfinite
from types import UnionType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from popc.cost.report import CostReport
from popc_runtime.errors import CorruptArchiveError

__all__ = ["decode_report"]

_T = TypeVar("_T")

_LARGEST: Final = (1 << 53) - 1  # a page counts no further

# Fields that the JSON has under another name, by record.
_NAMES: Final[dict[str, dict[str, str]]] = {
    "CostReport": {"assumed": "assumed_loops"},
    "MemoryReport": {"limit": "limit_bytes"},
    "PipelineCost": {
        "fill": "fill_cycles",
        "cycle": "turn_cycles",
        "flush": "flush_cycles",
        "copies": "copy_cycles_per_turn",
        "busy": "chips",
    },
}


def decode_report(data: bytes) -> CostReport:
    """Read a report written by `CostReport.to_dict(full=True)`.  ``data`` may come from anybody.

    Raises:
        CorruptArchiveError: this is no such report.
    """
    try:
        report = _record(CostReport, _with_peaks(json.loads(data)), "the report")
        _check(report)
    except (ValueError, RecursionError) as error:
        raise CorruptArchiveError(
            f"the cost report in the archive cannot be read: {error}",
            hint="compile the model again with cost_report = true",
        ) from error
    return report


def _check(report: CostReport) -> None:
    """Check the facts that sections and pages rely on."""
    tile, chips = report.target.tile, len(report.memory)
    if min(tile.clock_hz, tile.count, tile.memory_bytes, chips) < 1:
        raise ValueError("its target has no clock, tiles or chips")
    stray = next((op.ipu for op in report.ops if not 0 <= op.ipu < chips), None)
    if stray is not None:
        there = f"there are {chips} (0 to {chips - 1})" if chips > 1 else "there is only chip 0"
        raise ValueError(f"an op names chip {stray}, but {there}")
    for number, chip in enumerate(report.memory):
        peaks, always = len(chip.peak), len(chip.always_live)
        if not peaks or peaks != always:
            raise ValueError(
                f"chip {number} has peaks of {peaks} tiles, but always-live bytes of {always}"
            )
        if len(chip.code) not in {0, peaks}:
            raise ValueError(f"chip {number} has {peaks} tiles, but code of {len(chip.code)}")


def _with_peaks(table: Any) -> Any:
    """The JSON names the step of the peak; its number is that of the first highest one."""
    for chip in table.get("memory", ()) if isinstance(table, dict) else ():
        steps = chip.get("steps") if isinstance(chip, dict) else None
        if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
            raise ValueError("steps are missing")
        heights = [_value(int, step.get("busiest"), "busiest of a step") for step in steps]
        chip["peak_step"] = heights.index(max(heights)) if heights else -1
    return table


def _record(kind: type[_T], table: object, what: str) -> _T:
    """A dataclass from a table; what it does not know is left alone."""
    if not isinstance(table, dict):
        raise ValueError(f"{what} is not a table")
    hints, names = get_type_hints(kind), _NAMES.get(kind.__name__, {})
    known: Sequence[Field[Any]] = fields(kind)  # type: ignore[arg-type]  # a dataclass
    values: dict[str, Any] = {}
    for field in known:
        key = names.get(field.name, field.name)
        if key in table:
            values[field.name] = _value(hints[field.name], table[key], f"{key} of {what}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{what} has no {key}")
    return kind(**values)


def _value(kind: Any, value: object, what: str) -> Any:
    origin = get_origin(kind)
    if origin is tuple:
        return _tuple(get_args(kind), value, what)
    if origin is UnionType:
        return _either(get_args(kind), value, what)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _table(get_args(kind)[1], value, what)
    if is_dataclass(kind):
        assert isinstance(kind, type)
        return _record(kind, value, what)
    if issubclass(kind, Enum):
        return kind(value)
    return _plain(kind, value, what)


def _tuple(kinds: tuple[Any, ...], value: object, what: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{what} is not a list")
    if kinds[-1:] != (...,):
        if len(value) != len(kinds):
            raise ValueError(f"{what} has {len(value)} parts, not {len(kinds)}")
        return tuple(_value(kind, item, what) for kind, item in zip(kinds, value, strict=True))
    if kinds[0] is int:  # lists of all tiles are long
        if not all(type(item) is int and abs(item) <= _LARGEST for item in value):
            raise ValueError(f"{what} must hold whole numbers only")
        return tuple(value)
    return tuple(_value(kinds[0], item, what) for item in value)


def _table(kind: Any, value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a table")
    return {str(key): _value(kind, item, what) for key, item in value.items()}


def _either(kinds: tuple[Any, ...], value: object, what: str) -> Any:
    """Something or ``None``."""
    if value is None and type(None) in kinds:
        return None
    return _value(next(kind for kind in kinds if kind is not type(None)), value, what)


def _plain(kind: type, value: object, what: str) -> object:
    if isinstance(value, str):
        value.encode()  # half of a surrogate pair cannot be written anywhere
    if kind is float and type(value) in {int, float}:
        assert isinstance(value, int | float)
        if not isfinite(value):
            raise ValueError(f"{what} is {value}")
        return float(value)
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ValueError(f"{what} is too large")
    if type(value) is not kind:
        raise ValueError(f"{what} is not of type {kind.__name__}")
    return value
