"""Searches for tokens with a decoder that is an attribute: GreedySearch, BeamSearch.

The decoder runs once on the prompt, and then in a loop, a token at a time, on caches as long as
sequences may become.  What comes between is in `search_steps`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from popc.frontend.node import Node
from popc.frontend.rules.microsoft import search_steps as steps
from popc.frontend.rules.microsoft.operators import microsoft_domain
from popc.frontend.rules.microsoft.search_decoders import Decoder, EncodedDecoder, GptDecoder
from popc.frontend.rules.microsoft.search_graph import SearchGraph
from popc.frontend.values import Value
from popc.ir import Tensor
from popc_runtime.errors import ModelError

__all__ = ["RULES"]

_MOST_TOKENS: Final = 4096  # that onnxruntime allows
_GREEDY: Final = {"least": 2, "penalty": 3, "words": 4, "first_words": 5}
_BEAM: Final = {"least": 2, "penalty": 6, "words": 7, "first_words": 8}
_OF_WHISPER: Final = {**_BEAM, "temperature": 14}
_GPT, _T5, _WHISPER = range(3)  # attribute model_type


def _greedy_search(node: Node) -> list[Value | None]:
    if node.integer("model_type", _GPT) != _GPT:
        raise ModelError("only decoders like that of GPT-2 (model_type 0) search greedily")
    decoder = GptDecoder(node, node.optional(6))
    given = _present(node, _GREEDY)
    search = _search(node, decoder, tuple(given), beams=0)
    return _imported(node, decoder, search, given)


def _beam_search(node: Node) -> list[Value | None]:
    return _with_beams(node, node.integer("model_type", _GPT), _BEAM)


def _whisper_beam_search(node: Node) -> list[Value | None]:
    if node.optional(12) is not None or node.wants_output(3) or node.wants_output(4):
        raise ModelError("popc returns neither scores of attention nor those of silence")
    if node.optional(13) is not None:
        raise ModelError("extra_decoding_ids are not supported")
    return _with_beams(node, _WHISPER, _OF_WHISPER)


def _with_beams(node: Node, kind: int, places: Mapping[str, int]) -> list[Value | None]:
    if node.optional(11) is not None and node.require_known(11, "the processor of scores").any():
        raise ModelError("logits_processor must be 0: popc knows none of timestamps")
    mask = node.optional(9)
    decoder: Decoder
    if kind == _GPT:
        decoder = GptDecoder(node, mask)
    elif kind in (_T5, _WHISPER):
        decoder = EncodedDecoder(node, mask, takes_sound=kind == _WHISPER)
    else:
        raise ModelError(f"model_type must be 0 (GPT-2), 1 (T5) or 2 (Whisper), not {kind}")
    given = _present(node, places)
    beams = _whole(node, 3, "the number of beams", 1)
    search = _search(node, decoder, tuple(given), beams=beams)
    fall = node.optional(5)
    one = node.constant(np.ones(1, np.float32))
    return _imported(node, decoder, search, {**given, "fall": one if fall is None else fall})


def _present(node: Node, places: Mapping[str, int]) -> dict[str, Tensor]:
    given = {name: node.optional(place) for name, place in places.items()}
    return {name: tensor for name, tensor in given.items() if tensor is not None}


def _search(node: Node, decoder: Decoder, given: Sequence[str], *, beams: int) -> steps.Search:
    if decoder.tokens.type.rank != 2:
        raise ModelError(f"tokens must be [samples, tokens], not {decoder.tokens.type}")
    batch, prompt = decoder.tokens.type.shape
    longest = _whole(node, 1, "the length of its result", _MOST_TOKENS)
    if not prompt < longest <= _MOST_TOKENS:
        raise ModelError(
            f"max_length is {longest}, and must be more than the {prompt} tokens that it begins "
            f"with, and at most {_MOST_TOKENS}"
        )
    results = _whole(node, 4, "the number of results", 1) if beams else 1
    if results > max(beams, 1):
        raise ModelError(f"num_return_sequences is {results}, more than the {beams} beams")
    if node.integer("vocab_size", -1) not in (-1, 0, decoder.vocabulary):
        raise ModelError(f"vocab_size must be that of the decoder, {decoder.vocabulary}")
    return steps.Search(
        batch=batch,
        beams=beams,
        prompt=prompt,
        longest=longest,
        vocabulary=decoder.vocabulary,
        end=node.integer("eos_token_id"),
        pad=node.integer("pad_token_id"),
        ngram=node.integer("no_repeat_ngram_size", 0),
        results=results,
        stops_early=beams > 0 and node.integer("early_stopping", 0) == 1,
        given=tuple(given),
        keeps_scores=beams > 0 and node.wants_output(2),
    )


def _whole(node: Node, place: int, what: str, default: int) -> int:
    """An operand that must be known: one number above 0."""
    if node.optional(place) is None:
        return default
    value = node.require_known(place, what)
    if value.size != 1 or value.reshape(())[()] < 1:
        raise ModelError(f"{what} must be one number above 0, not {value.tolist()}")
    return int(value.reshape(())[()])


def _imported(
    node: Node, decoder: Decoder, search: steps.Search, given: Mapping[str, Tensor]
) -> list[Value | None]:
    """The results of the node."""
    graph = SearchGraph(decoder.graph, node.importer.context.functions)
    trips = node.constant(np.int64(search.longest - search.prompt - 1))
    values = {**decoder.values(search), **given, "trips": trips}
    decoder.begin(graph, search, _presents(graph, decoder))
    _choose(graph, decoder, search, is_first=True)
    _add_loop(graph, decoder, search)
    outputs = graph.own(_end(graph, search))
    proto = graph.finished(graph.own(values), outputs, weights=True)
    results = node.importer.inline(proto, list(values.values()))
    return [*results, *[None] * len(node.output_names)][: len(node.output_names)]


def _presents(graph: SearchGraph, decoder: Decoder) -> list[str]:
    return graph.own(f"present_{number}" for number in range(len(decoder.caches)))


def _choose(graph: SearchGraph, decoder: Decoder, search: steps.Search, *, is_first: bool) -> None:
    """Choose tokens by the scores, and let all states and caches go on."""
    function = steps.step(search, is_first=is_first)
    results = ["ids", "goes_on", *(f"next_{state}" for state in search.states)]
    rows = ["rows"] if search.beams else []
    graph.call(function, graph.own(function.input), graph.own([*results, *rows]))
    for number, present in enumerate(_presents(graph, decoder)):
        moved = graph.own([f"cache_{number}"])
        if search.beams:
            graph.add("Gather", [present, *graph.own(rows)], moved, axis=decoder.row_axis)
        else:
            graph.add("Identity", [present], moved)


def _add_loop(graph: SearchGraph, decoder: Decoder, search: steps.Search) -> None:
    """One token after the other."""
    ids = decoder.graph.input[0].name
    caches = [f"cache_{number}" for number in range(len(decoder.caches))]
    nexts = [f"next_{state}" for state in search.states]
    outside = [name for name, _ in decoder.carried]
    inside = [name for _, name in decoder.carried]
    body = graph.loop()
    decoder.feed(body)
    body.run_decoder([*body.own(["logits"]), *_presents(body, decoder)])
    _choose(body, decoder, search, is_first=False)
    own = body.own
    proto = body.finished(
        [*own(["number", "going"]), ids, *own(inside), *decoder.caches, *own(search.states)],
        [*own(["goes_on", "ids"]), *outside, *own([*caches, *nexts])],
    )
    operands = [*own(["trips", "goes_on", "ids"]), *outside, *own([*caches, *nexts])]
    unread = [f"last_{name}" for name in ("ids", *inside, *caches)]
    results = own([*unread, *(f"last_{state}" for state in search.states)])
    graph.add("Loop", operands, results, body=proto)


def _end(graph: SearchGraph, search: steps.Search) -> list[str]:
    """Names of the results."""
    if not search.beams:
        return ["last_sequence"]
    function = steps.beam_end(search)
    operands = [name if name == "fall" else f"last_{name}" for name in function.input]
    graph.call(function, graph.own(operands), graph.own(["sequences", "scores"]))
    return ["sequences", "scores", *(["last_history"] if search.keeps_scores else [])]


RULES: Final = microsoft_domain(
    {
        "BeamSearch": _beam_search,
        "GreedySearch": _greedy_search,
        "WhisperBeamSearch": _whisper_beam_search,
    }
)
