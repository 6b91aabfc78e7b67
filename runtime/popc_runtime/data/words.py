"""Strings as programs take them: the places of words in the list of labels of an input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from popc_runtime.format import LabelKind, TensorSpec
from popc_runtime.ground.hints import Any

__all__ = ["labelled", "with_numbers"]


def with_numbers(given: Mapping[str, Any], specs: Sequence[TensorSpec]) -> Mapping[str, Any]:
    """``given`` with the places of words instead of words, for inputs that have labels.

    A word that is no label is -1.  What is no array of strings stays as it is.
    """
    if not any(spec.label_kind for spec in specs):
        return given
    import numpy as np

    changed: dict[str, Any] = {}
    for spec in specs:
        if spec.label_kind is not LabelKind.ELEMENTS or spec.name not in given:
            continue
        words = np.asarray(given[spec.name])
        if words.dtype.kind not in "USO" or not all(
            isinstance(word, str | bytes) for word in words.reshape(-1).tolist()
        ):
            continue
        places = {label: place for place, label in enumerate(spec.labels)}
        texts = (word if isinstance(word, str) else word.decode() for word in words.reshape(-1))
        numbers = [places.get(text, -1) for text in texts]
        changed[spec.name] = np.array(numbers, np.int64).reshape(words.shape)
    return {**given, **changed} if changed else given


def labelled(spec: TensorSpec, array: Any) -> Any:
    """A result whose elements are places of labels as the labels themselves; others as they are."""
    if spec.label_kind is not LabelKind.ELEMENTS:
        return array
    import numpy as np

    known = np.array(spec.labels, object)
    return known[np.asarray(array)] if len(known) else array
