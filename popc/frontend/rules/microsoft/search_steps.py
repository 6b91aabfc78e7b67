"""The steps of searches for tokens between runs of a decoder, as functions of standard operators.

onnxruntime's search operators (github.com/microsoft/onnxruntime, contrib_ops/cpu/transformers)
define what is computed here.  B, b, N, V, L: samples, beams of each, their product, words, the most
tokens of a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from popc.frontend import messages as onnx
from popc_runtime.ground.frozen import frozen

__all__ = ["Search", "beam_end", "first_feeds", "step"]

_DOMAIN: Final = "popc.search"  # of the functions, which no model has
# States of a search for the best token, beside `_STATES`; and of one with beams: sums of
# logarithms, the best results so far and their scores.
_GREEDY_STATES: Final = ("finished",)
_BEAM_STATES: Final = ("beam_scores", "kept_scores", "kept", "finished")
_STATES: Final = ("sequence", "length", "position")
_OPSET: Final = 18
_LOWEST: Final = float(np.finfo(np.float32).min)
_FLOAT, _INT32, _INT64, _BOOL = 1, 6, 7, 9  # TensorProto.DataType


@frozen
class Search:
    """The numbers and wishes of a search.

    Attributes:
        batch: B.
        beams: b; 0 for a greedy search.
        prompt: Tokens of each sequence at first.
        longest: L.
        vocabulary: V.
        end: The token that ends a sequence.
        pad: The token behind it.
        ngram: Length of what must not come twice; 0 if it may.
        results: Sequences that are returned of each sample.
        stops_early: Whether a sample is done as soon as b of its sequences have ended.
        given: Operands that change scores: "penalty", "least", "words",
            "first_words", "temperature".
        keeps_scores: Whether the scores of all words in every step are wanted.
    """

    batch: int
    beams: int
    prompt: int
    longest: int
    vocabulary: int
    end: int
    pad: int
    ngram: int = 0
    results: int = 1
    stops_early: bool = False
    given: tuple[str, ...] = ()
    keeps_scores: bool = False

    @property
    def rows(self) -> int:
        """N."""
        return self.batch * max(self.beams, 1)

    @property
    def samples(self) -> list[int]:
        """The sample of each row."""
        return [sample for sample in range(self.batch) for _ in range(max(self.beams, 1))]

    @property
    def states(self) -> tuple[str, ...]:
        """Names of what each step takes and gives."""
        own = _BEAM_STATES if self.beams else _GREEDY_STATES
        seen = ("seen",) if "penalty" in self.given else ()
        history = ("history",) if self.keeps_scores else ()
        return (*_STATES, *own, *seen, *history)


class _Script:
    """Lines of a function."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._numbers: dict[object, str] = {}

    def let(self, name: str, expression: str) -> str:
        """Add a line; its result."""
        self._lines.append(f"{name} = {expression}")
        return name

    def number(self, value: float | Sequence[int], type_: int | None = None) -> str:
        """A constant: int64 for whole numbers and lists of them, else float32; or ``type_``."""
        key = (tuple(value) if isinstance(value, Sequence) else value, type(value), type_)
        if key not in self._numbers:
            name = f"c{len(self._numbers)}"
            if isinstance(value, Sequence):
                what = f"value_ints = [{', '.join(map(str, value))}]"
            else:
                kind = "int" if isinstance(value, int) else "float"
                what = f"value_{kind} = {value!r}"
            made = self.let(f"{name}_", f"Constant <{what}> ()")
            cast = f"Cast <to = {type_}> ({made})" if type_ else f"Identity ({made})"
            self._numbers[key] = self.let(name, cast)
        return self._numbers[key]

    def spread(self, name: str, value: float, type_: int, shape: Sequence[int]) -> str:
        """A tensor of equal elements."""
        return self.let(name, f"Expand ({self.number(value, type_)}, {self.number(list(shape))})")

    def function(
        self, name: str, inputs: Sequence[str], outputs: Sequence[str]
    ) -> onnx.FunctionProto:
        """The function."""
        from onnx import parser

        head = f'<domain: "{_DOMAIN}", opset_import: ["" : {_OPSET}]>'
        body = "\n".join(self._lines)
        own: onnx.FunctionProto = parser.parse_function(
            f"{head}\n{name} ({', '.join(inputs)}) => ({', '.join(outputs)}) {{\n{body}\n}}"
        )
        return own


def first_feeds(search: Search, *, has_mask: bool) -> onnx.FunctionProto:
    """(tokens [B, S], mask?) -> tokens, positions, mask [N, S], and all states.

    Positions count what is not padding, whatever the mask hides.
    """
    script = _Script()
    order, axis = script.number(search.samples), script.number(1)
    script.let("own", f"Gather <axis = 0> (tokens, {order})")
    script.let("ids", f"Cast <to = {_INT32}> (own)")
    script.let("is_pad", f"Equal (ids, {script.number(search.pad, _INT32)})")
    script.let("is_word", "Not (is_pad)")
    script.let("words", f"Cast <to = {_INT32}> (is_word)")
    script.let("counted", f"CumSum (words, {axis})")
    script.let("before", f"Sub (counted, {script.number(1, _INT32)})")
    script.let("positions", "Mul (before, words)")
    script.let("count", f"ReduceSum <keepdims = 1> (words, {script.number([1])})")
    script.let("position", f"Sub (count, {script.number(1, _INT32)})")
    shown = "words"
    if has_mask:
        shown = script.let("shown", f"Gather <axis = 0> (mask, {order})")
    _first_states(script, search)
    inputs = ["tokens", *(["mask"] if has_mask else [])]
    return script.function("First", inputs, ["ids", "positions", shown, *search.states])


def _first_states(script: _Script, search: Search) -> None:
    batch, beams, longest = search.batch, search.beams, search.longest
    left = (search.rows, longest - search.prompt)
    script.spread("room", search.pad, _INT32, left)
    script.let("sequence", "Concat <axis = 1> (ids, room)")
    script.let("length", f"Identity ({script.number(search.prompt)})")
    script.spread("finished", 0, _BOOL, (batch,))
    if beams:
        # Only the first beam of a sample counts at first, or all would find the same.
        script.let("unlike", f"Greater ({script.number(list(range(beams)))}, {script.number(0)})")
        script.let("handicap", f"Where (unlike, {script.number(-1e9)}, {script.number(0.0)})")
        script.let("beam_scores", f"Expand (handicap, {script.number([batch, beams])})")
        script.let("absent", _infinite(script))
        script.let("kept_scores", f"Expand (absent, {script.number([batch, beams])})")
        script.spread("kept", search.pad, _INT32, (batch, beams, longest))
    if "penalty" in search.given:
        script.spread("unseen", 0, _BOOL, (search.rows, search.vocabulary))
        script.spread("marks", 1, _BOOL, (search.rows, search.prompt))
        script.let("seen", "ScatterElements <axis = 1> (unseen, ids, marks)")
    if search.keeps_scores:
        steps = longest - search.prompt
        script.spread("history", 0.0, _FLOAT, (steps, batch, beams, search.vocabulary))


def _infinite(script: _Script) -> str:
    return f"Div ({script.number(-1.0)}, {script.number(0.0)})"


def step(search: Search, *, is_first: bool) -> onnx.FunctionProto:
    """(logits [N, T, V], operands, states) -> the next tokens [N, 1], whether to go on, states.

    A search with beams also gives the row [N] that each row goes on from.
    """
    script = _Script()
    given = [each for each in search.given if is_first or each != "first_words"]
    _word_scores(script, search, given)
    inputs = ["logits", *given, *search.states]
    if search.beams:
        inputs.insert(1, "fall")
        _beams(script, search)
    else:
        _best_word(script, search)
    script.let("ids", f"Cast <to = {_INT32}> (chosen)")
    moved = "sequence"
    if search.beams:
        moved = script.let("moved", "Gather <axis = 0> (sequence, rows)")
    places = script.number(list(range(search.longest)))
    script.let("at", f"Equal ({places}, length)")
    script.let("next_sequence", f"Where (at, ids, {moved})")
    script.let("next_length", f"Add (length, {script.number(1)})")
    script.let("next_position", f"Add (position, {script.number(1, _INT32)})")
    if "penalty" in search.given:
        before = "seen"
        if search.beams:
            before = script.let("seen_before", "Gather <axis = 0> (seen, rows)")
        script.spread("mark", 1, _BOOL, (search.rows, 1))
        script.let("next_seen", f"ScatterElements <axis = 1> ({before}, chosen, mark)")
    script.let("open", "Not (next_finished)")
    script.let("opened", f"Cast <to = {_INT32}> (open)")
    script.let("some", f"ReduceMax <keepdims = 0> (opened, {script.number([0])})")
    script.let("goes_on", f"Cast <to = {_BOOL}> (some)")
    outputs = ["ids", "goes_on", *(f"next_{state}" for state in search.states)]
    return script.function("Next", inputs, [*outputs, *(["rows"] if search.beams else [])])


def _word_scores(script: _Script, search: Search, given: Sequence[str]) -> None:
    """The score of each word [N, V] as `scores`."""
    script.let("last", f"Gather <axis = 1> (logits, {script.number(-1)})")
    scores = script.let("wide", f"Cast <to = {_FLOAT}> (last)")
    if search.beams:
        scores = script.let("logarithms", f"LogSoftmax <axis = 1> ({scores})")
    lowest = script.number(_LOWEST)
    if "penalty" in given:
        script.let("negative", f"Less ({scores}, {script.number(0.0)})")
        script.let("more", f"Mul ({scores}, penalty)")
        script.let("less", f"Div ({scores}, penalty)")
        script.let("punished", "Where (negative, more, less)")
        scores = script.let("fresh", f"Where (seen, punished, {scores})")
    if 0 < search.ngram <= search.longest:
        repeated = _repeated(script, search)
        scores = script.let("unrepeated", f"Where ({repeated}, {lowest}, {scores})")
    for words in ("words", "first_words"):
        if words in given:
            script.let(f"no_{words}", f"Equal ({words}, {script.number(0, _INT32)})")
            hidden = f"no_{words}"
            if words == "first_words":
                order = script.number(search.samples)
                hidden = script.let("no_first", f"Gather <axis = 0> ({hidden}, {order})")
            scores = script.let(f"with_{words}", f"Where ({hidden}, {lowest}, {scores})")
    if "least" in given:
        script.let("least64", f"Cast <to = {_INT64}> (least)")
        script.let("is_short", "Less (length, least64)")
        every = script.number(list(range(search.vocabulary)))
        script.let("is_end_word", f"Equal ({every}, {script.number(search.end)})")
        script.let("too_early", "And (is_end_word, is_short)")
        scores = script.let("lasting", f"Where (too_early, {lowest}, {scores})")
    if "temperature" in given:
        scores = script.let("tempered", f"Div ({scores}, temperature)")
    script.let("scores", f"Identity ({scores})")


def _repeated(script: _Script, search: Search) -> str:
    """Words [N, V] that would end an n-gram which the sequence has already."""
    size, windows = search.ngram, search.longest - search.ngram + 1
    script.let("latest", f"Sub (length, {script.number(size)})")
    script.let("inside", f"LessOrEqual ({script.number(list(range(windows)))}, latest)")
    axis, hits = script.number([1]), "inside"
    for place in range(size - 1):
        column = script.number([place + 1])
        script.let(f"where{place}", f"Add (latest, {column})")
        script.let(f"there{place}", f"Max (where{place}, {script.number([0])})")
        script.let(f"own{place}", f"Gather <axis = 1> (sequence, there{place})")
        bounds = f"{script.number([place])}, {script.number([place + windows])}"
        script.let(f"window{place}", f"Slice (sequence, {bounds}, {axis})")
        script.let(f"same{place}", f"Equal (window{place}, own{place})")
        hits = script.let(f"hits{place}", f"And ({hits}, same{place})")
    bounds = f"{script.number([size - 1])}, {script.number([search.longest])}"
    script.let("followers", f"Slice (sequence, {bounds}, {axis})")
    shape = script.number([search.rows, windows])
    script.let("every_hit", f"Expand ({hits}, {shape})")
    outside = script.number(search.vocabulary, _INT32)
    script.let("hit_words", f"Where (every_hit, followers, {outside})")
    script.spread("no_words", 0, _BOOL, (search.rows, search.vocabulary + 1))
    script.spread("hit_marks", 1, _BOOL, (search.rows, windows))
    script.let("with_outside", "ScatterElements <axis = 1> (no_words, hit_words, hit_marks)")
    bounds = f"{script.number([0])}, {script.number([search.vocabulary])}"
    return script.let("repeated", f"Slice (with_outside, {bounds}, {axis})")


def _best_word(script: _Script, search: Search) -> None:
    """The best word of each row, padding where it has ended."""
    script.let("best", "ArgMax <axis = 1, keepdims = 0> (scores)")
    script.let("ends", f"Equal (best, {script.number(search.end)})")
    script.let("next_finished", "Or (finished, ends)")
    script.let("word", f"Where (next_finished, {script.number(search.pad)}, best)")
    script.let("chosen", f"Unsqueeze (word, {script.number([1])})")


def _beams(script: _Script, search: Search) -> None:
    """The next words of all beams, and what has ended among the best."""
    batch, beams, words = search.batch, search.beams, search.vocabulary
    wide = script.number([2 * beams])
    script.let("beam_column", f"Reshape (beam_scores, {script.number([search.rows, 1])})")
    script.let("sums", "Add (scores, beam_column)")
    if search.keeps_scores:
        _noted(script, search)
    script.let("all_sums", f"Reshape (sums, {script.number([batch, beams * words])})")
    script.let("top, places", f"TopK <axis = 1> (all_sums, {wide})")
    script.let("beam", f"Div (places, {script.number(words)})")
    script.let("word", f"Mod (places, {script.number(words)})")
    offsets = script.let(
        "offsets",
        f"Unsqueeze ({script.number([beams * sample for sample in range(batch)])}, "
        f"{script.number([1])})",
    )
    script.let("row", f"Add (beam, {offsets})")
    script.let("ends", f"Equal (word, {script.number(search.end)})")
    script.let("done", f"Unsqueeze (finished, {script.number([1])})")
    _keep_best(script, search)
    # The first that go on, in their order.
    order = script.number(list(range(2 * beams, 0, -1)))
    script.let("rank", f"Where (ends, {script.number(0)}, {order})")
    script.let("ranks, going", f"TopK <axis = 1> (rank, {script.number([beams])})")
    for name, what, pad in (
        ("next_beam_scores", "top", script.number(0.0)),
        ("next_word", "word", script.number(search.pad)),
        ("next_row", "row", script.number(0)),
    ):
        script.let(f"{what}_going", f"GatherElements <axis = 1> ({what}, going)")
        script.let(name, f"Where (done, {pad}, {what}_going)")
    script.let("chosen", f"Reshape (next_word, {script.number([search.rows, 1])})")
    script.let("rows", f"Reshape (next_row, {script.number([search.rows])})")


def _noted(script: _Script, search: Search) -> None:
    shape = [1, search.batch, search.beams, search.vocabulary]
    script.let("step_sums", f"Reshape (sums, {script.number(shape)})")
    script.let("number", f"Sub (length, {script.number(search.prompt)})")
    script.let("place", f"Reshape (number, {script.number([1, 1])})")
    script.let("next_history", "ScatterND (history, place, step_sums)")


def _keep_best(script: _Script, search: Search) -> None:
    """Merge sequences that end here with the best so far; which samples are done."""
    beams = search.beams
    front = f"{script.number([0])}, {script.number([beams])}, {script.number([1])}"
    script.let("is_open", "Not (done)")
    script.let("ends_first", f"Slice (ends, {front})")
    script.let("adds", "And (ends_first, is_open)")
    script.let("top_first", f"Slice (top, {front})")
    script.let("tokens", f"Cast <to = {_FLOAT}> (length)")
    script.let("weight", "Pow (tokens, fall)")
    script.let("ended_scores", "Div (top_first, weight)")
    script.let("absent", _infinite(script))
    script.let("added_scores", "Where (adds, ended_scores, absent)")
    script.let("row_first", f"Slice (row, {front})")
    script.let("added", "Gather <axis = 0> (sequence, row_first)")
    _merge(script, search, beams, ("next_kept_scores", "next_kept"))
    last = f"{script.number([beams - 1])}, {script.number([beams])}, {script.number([1])}"
    script.let("worst", f"Slice (next_kept_scores, {last})")
    done = script.let("is_full", "Greater (worst, absent)")
    if not search.stops_early:
        one = f"{script.number([0])}, {script.number([1])}, {script.number([1])}"
        script.let("leader", f"Slice (top, {one})")
        script.let("hope", "Div (leader, weight)")
        script.let("hopeless", "GreaterOrEqual (worst, hope)")
        done = script.let("settled", "And (is_full, hopeless)")
    script.let("now_done", f"Squeeze ({done}, {script.number([1])})")
    script.let("next_finished", "Or (finished, now_done)")


def _merge(script: _Script, search: Search, count: int, names: tuple[str, str]) -> None:
    """The best of `kept` and `added` [B, b, L], and their scores; of equal ones the earlier."""
    beams, batch = search.beams, search.batch
    script.let("both_scores", "Concat <axis = 1> (kept_scores, added_scores)")
    script.let("both", "Concat <axis = 1> (kept, added)")
    flat = script.number([2 * batch * beams, search.longest])
    script.let("both_flat", f"Reshape (both, {flat})")
    script.let(
        f"{names[0]}, best_places", f"TopK <axis = 1> (both_scores, {script.number([count])})"
    )
    offsets = [2 * beams * sample for sample in range(batch)]
    script.let("both_offsets", f"Unsqueeze ({script.number(offsets)}, {script.number([1])})")
    script.let("best_rows", "Add (best_places, both_offsets)")
    script.let(names[1], "Gather <axis = 0> (both_flat, best_rows)")


def beam_end(search: Search) -> onnx.FunctionProto:
    """(fall, states) -> sequences [B, results, L] and their scores."""
    script = _Script()
    script.let("tokens", f"Cast <to = {_FLOAT}> (length)")
    script.let("weight", "Pow (tokens, fall)")
    script.let("final", "Div (beam_scores, weight)")
    script.let("done", f"Unsqueeze (finished, {script.number([1])})")
    script.let("absent", _infinite(script))
    script.let("added_scores", "Where (done, absent, final)")
    shape = script.number([search.batch, search.beams, search.longest])
    script.let("added", f"Reshape (sequence, {shape})")
    _merge(script, search, search.results, ("scores", "sequences"))
    return script.function("Best", ["fall", *search.states], ["sequences", "scores"])
