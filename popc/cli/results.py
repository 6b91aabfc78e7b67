"""Results of a run: as numbers for machines, as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from popc.cli.report import format_table

if TYPE_CHECKING:
    from popc_runtime.format import Array

__all__ = ["results_data", "results_table"]

_COLUMNS: Final = ("output", "type", "min", "mean", "max", "first values")
_FIRST: Final = 4  # values of an output that are printed


def results_data(results: Mapping[str, Array], *, values: bool) -> list[dict[str, Any]]:
    """Results as JSON has them, with all ``values`` if they are wanted.

    JSON has no NaN and no infinity: they are the words "nan", "inf" and "-inf".
    """
    return [_data(name, array, values=values) for name, array in results.items()]


def _data(name: str, array: Array, *, values: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": name,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        **dict(zip(("min", "mean", "max"), map(_number, _range(array)), strict=True)),
        "first_values": [_number(value) for value in array.reshape(-1)[:_FIRST].tolist()],
    }
    if values:
        data["values"] = _numbers(array.tolist())
    return data


def _range(array: Array) -> tuple[float | None, ...]:
    """The least value, the mean and the largest; nothing of an empty array."""
    if array.size == 0:
        return (None, None, None)
    wide = array.astype("float64")
    return (float(wide.min()), float(wide.mean()), float(wide.max()))


def _number(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _numbers(values: Any) -> Any:
    return [_numbers(item) for item in values] if isinstance(values, list) else _number(values)


def results_table(results: Mapping[str, Array]) -> str:
    """A row for each result."""
    return format_table([_COLUMNS, *(_row(name, array) for name, array in results.items())])


def _row(name: str, array: Array) -> tuple[str, ...]:
    type_ = f"{array.dtype}[{','.join(map(str, array.shape))}]"
    first = " ".join(f"{value:.6g}" for value in array.reshape(-1)[:_FIRST].tolist())
    numbers = ("-" if number is None else f"{number:.6g}" for number in _range(array))
    return (name, type_, *numbers, first)
