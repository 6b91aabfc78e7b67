"""Searches for tokens with a decoder, against onnxruntime.

onnxruntime asks for a least length where it has beams.  Whether a sample is done it asks scores of
another one, so that searches with beams that end are compared sample by sample.  Where all of a
greedy search have ended, it leaves what follows as it was in memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from popc_runtime.errors import ModelError
from popc_runtime.format import Array
from tests.ops.microsoft.programs import Compare, run_program
from tests.ops.microsoft.search_models import VOCABULARY, gpt, translator
from tests.support.oracles import import_graph, one_node_model, run_onnxruntime

_END, _PAD = 5, 1
_TOKENS: Final = {"eos_token_id": _END, "pad_token_id": _PAD}
_TOLERANCE: Final = 1e-4


def _whole(number: int) -> Array:
    return np.array([number], np.int32)


def _part(number: float) -> Array:
    return np.array([number], np.float32)


def _ids(batch: int, tokens: int, seed: int, lowest: int = 2) -> Array:
    drawn = np.random.default_rng(seed).integers(lowest, VOCABULARY, (batch, tokens))
    return drawn.astype(np.int32)


def _mask(*shape: int, seed: int) -> Array:
    return (np.random.default_rng(seed).random(shape) > 0.4).astype(np.int32)


def _greedy(batch: int, seed: int, **wishes: Any) -> list[Array | None]:
    """The operands of a greedy search for 11 tokens behind 3."""
    return [
        wishes.get("ids", _ids(batch, 3, seed)),
        _whole(wishes.get("longest", 14)),
        *(wishes.get(name) for name in ("least", "penalty", "words", "first_words", "mask")),
    ]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("wishes", "attributes"),
    [
        ({}, {}),
        ({"longest": 4}, {}),
        ({"least": _whole(8)}, {"eos_token_id": 4}),
        ({"penalty": _part(1.7)}, {}),
        ({}, {"no_repeat_ngram_size": 1}),
        ({"penalty": _part(0.6)}, {"no_repeat_ngram_size": 2, "eos_token_id": 23}),
        ({}, {"no_repeat_ngram_size": 40}),
        ({"words": _mask(VOCABULARY, seed=1)}, {}),
        ({"first_words": _mask(2, VOCABULARY, seed=2)}, {}),
        ({"mask": _mask(2, 3, seed=3)}, {}),
        ({"ids": np.array([[1, 1, 7, 3], [1, 9, 1, 2]], np.int32)}, {}),
        ({"ids": np.array([[1, 1, 7], [4, 9, 1]], np.int32), "mask": _mask(2, 3, seed=4)}, {}),
    ],
)
def test_the_best_token_each_time(
    tmp_path: Path, wishes: dict[str, Any], attributes: dict[str, Any], seed: int
) -> None:
    given = {**_TOKENS, "decoder": gpt(seed), **attributes}
    _check_greedy(tmp_path, _greedy(2, seed, **wishes), given)


def _check_greedy(folder: Path, operands: list[Array | None], attributes: dict[str, Any]) -> Array:
    """Compare with what onnxruntime has written; the sequences."""
    while operands[-1] is None:
        operands.pop()
    model = one_node_model(
        "GreedySearch", operands, attributes, domain="com.microsoft", constants=(1,), outputs=1
    )
    feeds = {f"x{i}": x for i, x in enumerate(operands) if x is not None and i != 1}
    (expected,) = run_onnxruntime(model, feeds)
    for (found,) in run_program(model, feeds, folder):
        written = _first_end(found)
        np.testing.assert_array_equal(found[:, :written], expected[:, :written])
        assert (expected[:, written : written + 1] == _PAD).all()
    return found


def _first_end(sequences: Array) -> int:
    """The number of columns before those in which all sequences have ended."""
    columns = np.flatnonzero((sequences != _PAD).any(axis=0))
    return int(columns[-1]) + 1


def test_a_search_that_ends_is_padded(tmp_path: Path) -> None:
    """A sample that has ended goes on with padding while another one goes on."""
    found = _check_greedy(tmp_path, _greedy(2, 3), {**_TOKENS, "decoder": gpt(3)})
    assert (found[1, 3:] == _PAD).all()
    assert (found[0, 3:] != _PAD).any()


def test_another_decoder_for_the_prompt(tmp_path: Path) -> None:
    given = {**_TOKENS, "decoder": gpt(3), "init_decoder": gpt(0)}
    _check_greedy(tmp_path, _greedy(2, 0), given)


@pytest.mark.parametrize("seed", range(2))
def test_fused_attention(compare: Compare, tmp_path: Path, seed: int) -> None:
    given = {**_TOKENS, "decoder": gpt(seed, is_fused=True)}
    _check_greedy(tmp_path, _greedy(2, seed), given)
    compare("BeamSearch", _beams(1, seed), given, constants=_KNOWN, tolerance=_TOLERANCE)


def _beams(batch: int, seed: int, **wishes: Any) -> list[Array | None]:
    """The operands of a search with three beams for 7 tokens behind 3."""
    return [
        wishes.get("ids", _ids(batch, 3, seed)),
        _whole(wishes.get("longest", 10)),
        wishes.get("least", _whole(0)),
        _whole(wishes.get("beams", 3)),
        _whole(wishes.get("results", 2)),
        _part(wishes.get("fall", 1.0)),
        *(wishes.get(name) for name in ("penalty", "words", "first_words", "mask")),
    ]


_KNOWN: Final = (1, 3, 4)  # operands that shapes follow from


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("wishes", "attributes"),
    [
        ({}, {}),
        ({"beams": 1, "results": 1}, {}),
        ({"beams": 5, "results": 5, "longest": 20}, {"eos_token_id": 4}),
        ({"beams": 4, "results": 4, "longest": 20}, {"early_stopping": 1, "eos_token_id": 11}),
        ({"fall": 2.0}, {"eos_token_id": 4}),
        ({"fall": 0.0}, {"eos_token_id": 11}),
        ({"least": _whole(8)}, {"eos_token_id": 4}),
        ({"penalty": _part(1.7)}, {}),
        ({}, {"no_repeat_ngram_size": 2}),
        ({"words": _mask(VOCABULARY, seed=1)}, {}),
        ({"first_words": _mask(1, VOCABULARY, seed=2)}, {}),
        ({"mask": _mask(1, 3, seed=3)}, {}),
        ({"ids": np.array([[1, 1, 7, 3]], np.int32)}, {}),
    ],
)
def test_beams(
    compare: Compare, wishes: dict[str, Any], attributes: dict[str, Any], seed: int
) -> None:
    operands = _beams(1, seed, **wishes)
    given = {**_TOKENS, "decoder": gpt(seed), **attributes}
    compare("BeamSearch", operands, given, constants=_KNOWN, outputs=2, tolerance=_TOLERANCE)


@pytest.mark.parametrize("seed", range(2))
def test_samples_side_by_side(compare: Compare, seed: int) -> None:
    """No sequence ends: the token that would end it is forbidden."""
    words = np.ones(VOCABULARY, np.int32)
    words[_END] = 0
    first = _mask(3, VOCABULARY, seed=seed)
    operands = _beams(3, seed, words=words, first_words=first, results=3)
    given = {**_TOKENS, "decoder": gpt(seed)}
    compare("BeamSearch", operands, given, constants=_KNOWN, outputs=3, tolerance=_TOLERANCE)


@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("ids", "mask"),
    [
        (_ids(1, 5, 0), None),
        (_ids(1, 5, 0), _mask(1, 5, seed=5)),
        (np.array([[1, 1, 7, 1, 3]], np.int32), None),
    ],
)
def test_translations(
    compare: Compare,
    ids: Array,
    mask: Array | None,
    seed: int,
    starts: bool,  # noqa: FBT001
) -> None:
    encoder, decoder = translator(seed, starts=starts)
    operands = _beams(1, seed, ids=ids, mask=mask, longest=12)
    start = {"decoder_start_token_id": 2, "model_type": 1}
    given = {**_TOKENS, **start, "encoder": encoder, "decoder": decoder}
    compare("BeamSearch", operands, given, constants=_KNOWN, outputs=2, tolerance=_TOLERANCE)


@pytest.mark.parametrize(
    ("op_type", "temperature"),
    [
        ("BeamSearch", None),
        ("WhisperBeamSearch", None),
        ("WhisperBeamSearch", 0.5),
        ("WhisperBeamSearch", 3.0),
    ],
)
def test_what_is_heard(compare: Compare, op_type: str, temperature: float | None) -> None:
    encoder, decoder = translator(0, starts=True, takes_sound=True)
    sound = np.random.default_rng(0).normal(size=(2, 16, 5)).astype(np.float32)
    operands = [*_beams(2, 0, ids=sound, longest=9), np.array([[7], [7]], np.int32)]
    if temperature is not None:
        operands += [None, None, None, _part(temperature)]
    start = {"decoder_start_token_id": 2, "model_type": 2}
    given = {**_TOKENS, **start, "encoder": encoder, "decoder": decoder}
    compare(op_type, operands, given, constants=_KNOWN, outputs=2, tolerance=_TOLERANCE)


@pytest.mark.parametrize(
    ("wishes", "attributes", "message"),
    [
        ({"longest": 3}, {}, "max_length is 3, and must be more than the 3 tokens"),
        ({"longest": 5000}, {}, "at most 4096"),
        ({"results": 4}, {}, "num_return_sequences is 4, more than the 3 beams"),
        ({}, {"model_type": 3}, "model_type must be 0"),
        ({}, {"vocab_size": 7}, "vocab_size must be that of the decoder, 24"),
        ({}, {"decoder": translator(0, starts=True)[1]}, "its decoder must take input_ids, pos"),
    ],
)
def test_what_no_search_can_be(
    wishes: dict[str, Any], attributes: dict[str, Any], message: str
) -> None:
    operands = _beams(1, 0, **wishes)
    while operands[-1] is None:
        operands.pop()
    given = {**_TOKENS, "decoder": gpt(0), **attributes}
    model = one_node_model(
        "BeamSearch", operands, given, domain="com.microsoft", constants=_KNOWN, outputs=1
    )
    with pytest.raises(ModelError) as error:
        import_graph(model)
    assert message in str(error.value)
