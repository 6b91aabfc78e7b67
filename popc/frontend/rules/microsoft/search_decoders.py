"""Operands of the decoders that searches run: those of GPT-2, and those behind an encoder (T5).

Names and order of their inputs are those that onnxruntime asks for (contrib_ops/cpu/transformers:
subgraph_gpt.cc, subgraph_t5_decoder.cc, subgraph_t5_encoder.cc).  B, N: samples, and sequences with
all beams.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np

from popc.frontend import messages as onnx
from popc.frontend.node import Node
from popc.frontend.rules.common import converted, graph_attribute, standard_op
from popc.frontend.rules.microsoft import search_steps as steps
from popc.frontend.rules.microsoft.search_graph import SearchGraph
from popc.frontend.rules.microsoft.search_steps import Search
from popc.frontend.tensors import dtype_from_onnx
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.format import DType

__all__ = ["Decoder", "EncodedDecoder", "GptDecoder"]

_GPT_FEEDS: Final = ("input_ids", "position_ids", "attention_mask")
_MASK, _STATES = "encoder_attention_mask", "encoder_hidden_states"


class Decoder(ABC):
    """A decoder that gives scores of the next token [N, T, V], and caches.

    Attributes:
        graph: Its graph, with the scores first among its results.
        tokens: The tokens [B, T] that sequences begin with.
        caches: The inputs that take back the caches which it gives.
        row_axis: The axis of caches that sequences lie along.
        carried: Operands beside tokens and caches that grow with each token, as names of what they
            are in front of the loop and in its body.
    """

    carried: Sequence[tuple[str, str]] = ()

    def __init__(
        self,
        node: Node,
        tokens: Tensor,
        caches: Sequence[str],
        row_axis: int,
        mask: Tensor | None = None,
    ) -> None:
        self.graph = graph_attribute(node, "decoder")
        self.tokens = tokens
        self.caches = list(caches)
        self.row_axis = row_axis
        self._node = node
        self._mask = mask  # [B, S], of the tokens that sequences begin with

    @property
    def vocabulary(self) -> int:
        """V."""
        dims = self.graph.output[0].type.tensor_type.shape.dim
        if len(dims) != 3 or dims[2].dim_value < 1:
            raise ModelError("the decoder's first result must be scores [sequences, tokens, words]")
        return int(dims[2].dim_value)

    @abstractmethod
    def values(self, search: Search) -> dict[str, Tensor]:
        """Operands of the search that the decoder needs, by their own names."""

    @abstractmethod
    def begin(self, graph: SearchGraph, search: Search, presents: Sequence[str]) -> None:
        """Give the first scores, caches (as ``presents``), and all states of the search."""

    @abstractmethod
    def feed(self, body: SearchGraph) -> None:
        """Give operands in the body of the loop that are neither tokens nor caches."""

    def _first_feeds(self, graph: SearchGraph, search: Search, feeds: Sequence[str]) -> None:
        has_mask = self._mask is not None
        function = steps.first_feeds(search, has_mask=has_mask)
        operands = graph.own(["tokens", *(["mask"] if has_mask else [])])
        graph.call(function, operands, [*feeds, *graph.own(search.states)])

    def _empty_cache(self, search: Search) -> Tensor:
        """A cache without tokens, whose number is the axis before the last one."""
        (info,) = (info for info in self.graph.input if info.name == self.caches[0])
        dims = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        if len(dims) < 4 or not dims[-1] or not dims[-3]:
            raise ModelError(
                f"heads and depth of the decoder's input {self.caches[0]!r} must be numbers"
            )
        dims[self.row_axis], dims[-2] = search.rows, 0
        dtype = dtype_from_onnx(info.type.tensor_type.elem_type)
        return self._node.constant(np.zeros(dims, np.float32), dtype)


class GptDecoder(Decoder):
    """(tokens, positions [N, T], mask [N, P + T], caches [2, N, heads, P, depth])."""

    def __init__(self, node: Node, mask: Tensor | None) -> None:
        graph = graph_attribute(node, "decoder")
        names = [info.name for info in graph.input]
        self._first = graph_attribute(node, "init_decoder") if node.has("init_decoder") else None
        if self._first is not None and [info.name for info in self._first.input] != names:
            raise ModelError("its init_decoder must take what its decoder takes")
        if tuple(names[:3]) != _GPT_FEEDS or len(names) != len(graph.output) + 2:
            raise ModelError(
                f"its decoder must take {', '.join(_GPT_FEEDS)}, and a cache for each that it "
                f"gives, not {', '.join(names[:5])}, ..."
            )
        super().__init__(node, node.input(0), names[3:], 1, mask)
        self.carried = (("attention_mask", "shown"),)

    def values(self, search: Search) -> dict[str, Tensor]:
        """See `Decoder.values`."""
        column = self._node.constant(np.ones((search.rows, 1), np.int32))
        values = {"tokens": self.tokens, "empty": self._empty_cache(search), "column": column}
        return values if self._mask is None else {**values, "mask": self._mask}

    def begin(self, graph: SearchGraph, search: Search, presents: Sequence[str]) -> None:
        """See `Decoder.begin`."""
        self._first_feeds(graph, search, _GPT_FEEDS)
        for cache in self.caches:
            graph.add("Identity", graph.own(["empty"]), [cache])
        graph.run_decoder([*graph.own(["logits"]), *presents], self._first)

    def feed(self, body: SearchGraph) -> None:
        """See `Decoder.feed`."""
        body.add("Identity", body.own(["position"]), ["position_ids"])
        body.add("Concat", body.own(["shown", "column"]), ["attention_mask"], axis=1)


class EncodedDecoder(Decoder):
    """(token [N, 1], mask? [N, S], states? [N, S, D], caches of its own, caches of the encoder).

    Caches are [N, heads, P, depth].  An encoder may run the decoder's first step itself.
    """

    def __init__(self, node: Node, mask: Tensor | None, *, takes_sound: bool) -> None:
        graph = graph_attribute(node, "decoder")
        names = [info.name for info in graph.input]
        rest = [name for name in names[1:] if name not in (_MASK, _STATES)]
        caches = len(graph.output) - 1
        if names[:1] != ["input_ids"] or not caches or len(rest) != 2 * caches:
            raise ModelError(
                "its decoder must take input_ids, what the encoder gives, and two caches for each "
                f"that it gives, not {', '.join(names[:5])}, ..."
            )
        _require_single_tokens(graph)
        super().__init__(node, _first_tokens(node), rest[:caches], 0)
        self._kept = [name for name in names[1:] if name not in self.caches]
        self._encoder = graph_attribute(node, "encoder")
        self._mask_of_encoder = None if takes_sound else _encoder_mask(node, mask)
        self._encoded: dict[str, Tensor] = {}

    def values(self, search: Search) -> dict[str, Tensor]:
        """See `Decoder.values`."""
        given = {
            "encoder_input_ids": self._node.input(0),
            _MASK: self._mask_of_encoder,
            "decoder_input_ids": self.tokens,
        }
        operands: list[Tensor] = []
        for info in self._encoder.input:
            value = given.get(info.name)
            if value is None:
                raise ModelError(f"its encoder takes {info.name!r}, which is unknown")
            operands.append(value)
        results = self._node.importer.inline(self._encoder, operands)
        tensors = [result for result in results if isinstance(result, Tensor)]
        self._encoded = self._named(tensors)
        rows = self._node.constant(np.array(search.samples, np.int64))
        spread = {
            name: self._node.emit("Gather", [value, rows], {"axis": 0})
            for name, value in self._encoded.items()
        }
        values = {"tokens": self.tokens, **spread}
        return values if "logits" in spread else {**values, "empty": self._empty_cache(search)}

    def _named(self, results: Sequence[Tensor]) -> dict[str, Tensor]:
        """Results of the encoder by name: first scores and caches of the decoder's own, or not."""
        own, others = len(self.caches), list(results)
        named: dict[str, Tensor] = {}
        if self._mask_of_encoder is not None:
            named[_MASK] = self._mask_of_encoder
        if len(others) == 2 + 2 * own:
            named["logits"], named[_STATES], *others = others
            named |= {f"present_{number}": others[number] for number in range(own)}
            others = others[own:]
        cross = [name for name in self._kept if name not in (_MASK, _STATES)]
        if len(others) != len(cross):
            raise ModelError(f"its encoder gives {len(results)} results, which fit no decoder")
        return named | dict(zip(cross, others, strict=True))

    def begin(self, graph: SearchGraph, search: Search, presents: Sequence[str]) -> None:
        """See `Decoder.begin`."""
        self._first_feeds(graph, search, ["input_ids", *graph.own(["positions", "words"])])
        for name in self._kept:
            if name not in self._encoded:
                raise ModelError(f"its decoder takes {name!r}, which the encoder does not give")
            graph.add("Identity", graph.own([name]), [name])
        if "logits" not in self._encoded:
            for cache in self.caches:
                graph.add("Identity", graph.own(["empty"]), [cache])
            graph.run_decoder([*graph.own(["logits"]), *presents])

    def feed(self, body: SearchGraph) -> None:
        """See `Decoder.feed`: what the encoder gave does not change."""


def _require_single_tokens(graph: onnx.GraphProto) -> None:
    dims = graph.input[0].type.tensor_type.shape.dim
    if len(dims) == 2 and dims[1].dim_value != 1:
        raise ModelError("its decoder takes whole sequences in each step; popc gives it one token")


def _first_tokens(node: Node) -> Tensor:
    """The tokens [B, T] that sequences begin with: those given, or the token that starts all."""
    if node.optional(10) is not None:
        return node.input(10)
    batch = node.input(0).type.shape[0]
    start = node.integer("decoder_start_token_id", -1)
    if start < 0:
        raise ModelError("decoder_start_token_id says with which token sequences begin")
    return node.constant(np.full((batch, 1), start, np.int32))


def _encoder_mask(node: Node, mask: Tensor | None) -> Tensor:
    """The tokens of the prompt that count: all behind the padding at its beginning."""
    if mask is not None:
        return mask
    pad = node.constant(np.asarray(node.integer("pad_token_id"), np.int32))
    is_word = node.emit("Not", [node.emit("Equal", [node.input(0), pad])])
    words = converted(node, is_word, DType.INT32)
    before = standard_op(node, "CumSum", [words, node.constant(np.int64(1))])
    zero = node.constant(np.asarray(0, np.int32))
    return converted(node, node.emit("Greater", [before, zero]), DType.INT32)
