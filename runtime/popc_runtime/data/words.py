"""Strings as programs take them: the places of words in the list of labels of an input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from popc_runtime.errors import DeviceError
from popc_runtime.format import LabelKind, TensorSpec
from popc_runtime.ground.hints import Any

__all__ = ["labelled", "with_numbers", "words_of"]


def with_numbers(given: Mapping[str, Any], specs: Sequence[TensorSpec]) -> Mapping[str, Any]:
    """``given`` with the places of words instead of words, for inputs that have labels.

    A word that is no label is -1.  What is no array of strings stays as it is.
    """
    if not any(spec.label_kind for spec in specs):
        return given
    import numpy as np

    changed: dict[str, Any] = {}
    for spec in specs:
        words = words_of(given.get(spec.name)) if spec.label_kind is LabelKind.ELEMENTS else None
        if words is None:
            continue
        places = {label: place for place, label in enumerate(spec.labels)}
        numbers = [places.get(word, -1) for word in words.reshape(-1).tolist()]
        changed[spec.name] = np.array(numbers, np.int64).reshape(words.shape)
    return {**given, **changed} if changed else given


def words_of(value: Any) -> Any:
    """``value`` as an array of `str`, of type object; ``None`` if there is anything else in it.

    Bytes are read as UTF-8, as are those in models.
    """
    import numpy as np

    try:
        array = np.asarray(value)
        if array.dtype.kind in "US" and not isinstance(value, np.ndarray):
            array = np.asarray(value, object)  # which makes no words of numbers beside words
    except (TypeError, ValueError, RuntimeError):  # ragged lists, tensors elsewhere
        return None
    flat = array.reshape(-1).tolist() if array.dtype.kind in "USO" else []
    if not flat or not all(isinstance(word, str | bytes) for word in flat):
        return None
    words = np.empty(len(flat), object)
    words[:] = [
        word if isinstance(word, str) else word.decode("utf-8", errors="replace") for word in flat
    ]
    return words.reshape(array.shape)


def labelled(spec: TensorSpec, array: Any) -> Any:
    """A tensor whose elements are places of labels as the labels, of type object; others unchanged.

    Raises:
        DeviceError: an element is no place of a label.
    """
    if spec.label_kind is not LabelKind.ELEMENTS:
        return array
    import numpy as np

    places = np.asarray(array)
    if places.size and not (places.min() >= 0 and places.max() < len(spec.labels)):
        raise DeviceError(
            f"{spec.name!r} has elements that are no places of its {len(spec.labels):,} labels",
            subject=spec.name,
        )
    known = np.empty(len(spec.labels), object)
    known[:] = spec.labels
    return known[places]
