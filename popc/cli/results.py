"""Results of a run: as numbers for machines, as a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from popc.cli.report import format_table
from popc_runtime.errors import ResourceError, UsageError

if TYPE_CHECKING:
    from popc_runtime.format import Array, TensorSpec

__all__ = ["read_labels", "results_data", "results_table", "top_data", "top_text"]

_COLUMNS: Final = ("output", "type", "min", "mean", "max", "first values")
_FIRST: Final = 4  # values of an output that are printed


def results_data(
    results: Mapping[str, Array], specs: Sequence[TensorSpec], *, values: bool
) -> list[dict[str, Any]]:
    """Results as JSON has them, with all ``values`` if they are wanted.

    JSON has no NaN and no infinity: they are the words "nan", "inf" and "-inf".  What elements
    stand for is beside them, as is what columns are.
    """
    return [_data(spec, results[spec.name], values=values) for spec in specs]


def _data(spec: TensorSpec, array: Array, *, values: bool) -> dict[str, Any]:
    from popc_runtime.data.words import labelled
    from popc_runtime.format import LabelKind

    data: dict[str, Any] = {
        "name": spec.name,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        **dict(zip(("min", "mean", "max"), map(_number, _range(array)), strict=True)),
        "first_values": [_number(value) for value in array.reshape(-1)[:_FIRST].tolist()],
    }
    if values:
        data["values"] = _numbers(array.tolist())
    if spec.label_kind is LabelKind.ELEMENTS:
        words = labelled(spec, array)
        data["first_labels"] = words.reshape(-1)[:_FIRST].tolist()
        if values:
            data["labels"] = words.tolist()
    elif spec.label_kind is LabelKind.COLUMNS:
        data["columns"] = list(spec.labels)
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


def results_table(results: Mapping[str, Array], specs: Sequence[TensorSpec]) -> str:
    """A row for each result; labels in place of numbers that stand for them."""
    return format_table([_COLUMNS, *(_row(spec, results[spec.name]) for spec in specs)])


def read_labels(path: Path) -> list[str]:
    """The lines of a file, one for each class.

    Raises:
        ResourceError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ResourceError(f"cannot read labels from {path}: {error}") from error


def top_data(
    results: Mapping[str, Array], specs: Sequence[TensorSpec], count: int, labels: Sequence[str]
) -> dict[str, list[list[dict[str, Any]]]]:
    """The largest elements of each row along the last axis, by result that has such rows.

    ``labels`` name the classes; if there are none, the labels that columns have do.

    Raises:
        UsageError: no result has rows, or there are fewer labels than elements in a row.
    """
    import numpy as np

    from popc_runtime.format import LabelKind

    found: dict[str, list[list[dict[str, Any]]]] = {}
    for spec in specs:
        name, array = spec.name, results[spec.name]
        if spec.label_kind is LabelKind.ELEMENTS:
            continue
        names = labels or [str(label) for label in spec.labels]
        if array.ndim == 0 or array.shape[-1] < 2 or array.dtype.kind not in "fiu":
            continue
        if names and len(names) < array.shape[-1]:
            raise UsageError(
                f"{name} has {array.shape[-1]:,} classes, but there is a name for "
                f"{len(names):,} of them only"
            )
        rows = array.reshape(-1, array.shape[-1])
        order = np.argsort(-rows.astype(np.float64), axis=-1, kind="stable")[:, :count]
        found[name] = [
            [
                {"index": index, "score": _number(row[index].item())}
                | ({"label": names[index]} if names else {})
                for index in best.tolist()
            ]
            for row, best in zip(rows, order, strict=True)
        ]
    if not found:
        raise UsageError("--top: no result has rows of numbers to choose from")
    return found


def top_text(found: Mapping[str, list[list[dict[str, Any]]]]) -> str:
    """`top_data` as tables."""
    parts: list[str] = []
    for name, rows in found.items():
        for number, row in enumerate(rows):
            where = f"{name}, row {number}" if len(rows) > 1 else name
            table = [
                [str(item["index"]), f"{item['score']:.6g}", item.get("label", "")]
                if isinstance(item["score"], int | float)
                else [str(item["index"]), item["score"], item.get("label", "")]
                for item in row
            ]
            parts.append(format_table([["class", "score", where], *table], right=(0, 1)))
    return "\n\n".join(parts)


def _row(spec: TensorSpec, array: Array) -> tuple[str, ...]:
    from popc_runtime.data.words import labelled
    from popc_runtime.format import LabelKind

    type_ = f"{array.dtype}[{','.join(map(str, array.shape))}]"
    first = array.reshape(-1)[:_FIRST]
    if spec.label_kind is LabelKind.ELEMENTS:
        words = " ".join(map(_word, labelled(spec, first).tolist()))
        return (spec.name, type_.replace("int64", "string", 1), "-", "-", "-", words)
    texts = [f"{value:.6g}" for value in first.tolist()]
    if spec.label_kind is LabelKind.COLUMNS:
        names = [_word(label) for label in spec.labels[:_FIRST]]
        columns = names * _FIRST  # one row after the other
        texts = [f"{name}={text}" for name, text in zip(columns, texts, strict=False)]
    numbers = ("-" if number is None else f"{number:.6g}" for number in _range(array))
    return (spec.name, type_, *numbers, " ".join(texts))


def _word(label: str | int) -> str:
    """A label, in quotes if it would not be seen where it begins and ends."""
    text = str(label)
    return text if text and not any(c.isspace() or c in "'=" for c in text) else repr(text)
