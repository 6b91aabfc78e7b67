"""A program as a sequence of symbols: equal symbols stand for ops that do the same.

Ops that are views do not count: they cost nothing, so each part gets views of its own of what it
reads.  What an op reads is known by the views that lead to it from a tensor with memory of its own,
its root.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b
from typing import Final, NamedTuple

from popc.ir import CallSite, Graph, Op, Tensor, TensorKind
from popc.ops import OPS
from popc.ops.aliases import Aliases
from popc.ops.control import callee_of
from popc.ops.load import find_load_ops
from popc_runtime.ground.frozen import mutable

__all__ = [
    "BOUND_TO_PLACE",
    "Entry",
    "Program",
    "Sequenced",
    "calls_around",
    "code_value",
    "digest_of",
    "exchange_of",
]

# How much it is worth that the code of an op is there once: much for what needs a plan or exchange
# of its own, next to nothing for all else.  A call of what is outlined already saves no code.
_PLANNED: Final = frozenset(
    {
        *("Attention", "AttentionGrad", "MultiHeadAttention", "GroupQueryAttention"),
        *("BatchNormalization", "BatchNormalizationTraining", "BatchNormalizationGrad"),
        *("Conv", "ConvGradData", "ConvGradWeights", "ConvInteger", "ConvTranspose"),
        *("DeformConv", "DeformConvGrad", "QLinearConv"),
        *("DynamicQuantizeLSTM", "GRU", "GRUGrad", "LSTM", "LSTMGrad", "RNN", "RNNGrad"),
        *("LinearAttention", "LinearAttentionGrad"),
        *("Gemm", "MatMul", "MatMulInteger", "MatMulNBits", "QLinearMatMul"),
        *("GroupNormalization", "GroupNormalizationGrad"),
        *("InstanceNormalization", "InstanceNormalizationGrad"),
        *("LayerNormalization", "LayerNormalizationGrad"),
        *("RMSNormalization", "RMSNormalizationGrad"),
        *("AdamUpdater", "LambR1Sq", "LambR2Sq"),
    }
)
_HOST: Final = ("HostLoad", "HostStore")
# Ops that are about the graph that they stand in.
BOUND_TO_PLACE: Final = frozenset({*_HOST, "Accumulate", "CopyVarUpdate"})
# PopART's high and low value of an op, which its option outlineThreshold is compared with.
_PLANNED_VALUE: Final = 1000.0
_OTHER_VALUE: Final = 0.1


def code_value(op: Op) -> float:
    """The worth of sharing the code of ``op``, in PopART's units."""
    if callee_of(op) is not None:
        return 0.0
    return _PLANNED_VALUE if exchange_of(op) is not None or op.op_type in _PLANNED else _OTHER_VALUE


def digest_of(tensor: Tensor) -> bytes:
    """A digest of the data of a constant."""
    assert tensor.data is not None
    return blake2b(tensor.data.tobytes(), digest_size=16).digest()


def calls_around(op: Op) -> tuple[CallSite, ...]:
    """The calls of the model that ``op`` is part of, the outermost first; it is none of them."""
    return op.settings.call if callee_of(op) is None else op.settings.call[:-1]


def exchange_of(op: Op) -> Op | None:
    """The op that moves data between chips, or from and to streaming memory or the host.

    That is ``op``, or what it holds if it chooses whether to move some; ``None`` for other ops.
    """
    spec = OPS.get(op.op_type)
    if op.op_type in _HOST or (spec is not None and (spec.collective or spec.transfer)):
        return op
    if op.op_type != "If":
        return None
    inner = (exchange_of(each) for graph in op.subgraphs.values() for each in graph.ops)
    return next((found for found in inner if found is not None), None)


_NO_MODELS: Final[Mapping[Op, Op]] = {}


class Entry(NamedTuple):
    """An op in the sequence, or what keeps parts of the sequence apart.

    That is an exchange that must stay where it is, without its graph; the end of a graph, without
    an op; or anything else, without either.
    """

    graph: Graph | None = None
    op: Op | None = None


@mutable
class Program:
    """The program to outline: the order of every graph without ops that are views, and these.

    Attributes:
        orders: Of every graph, without views and without what runs at load time.
        views: The ops that are views.
        strided: Tensors that are not contiguous, and so cannot be handed over.
        carried: What ops compute where it is going to be kept.
        models: Ops of the loop of a pipeline, by the ops of other cycles that do the same.
        keys: Those of `key` that are known.
        replaced: Ops that are gone since `renew`, and the calls in their places.
        substitutes: Tensors that are gone since then, and the results of calls in their places.
    """

    orders: dict[Graph, list[Op]]
    views: set[Op]
    strided: frozenset[Tensor]
    carried: frozenset[Tensor]
    models: dict[Op, Op] = field(default_factory=dict[Op, Op])
    keys: dict[Op, Hashable] = field(default_factory=dict[Op, Hashable])
    replaced: dict[Op, Op] = field(default_factory=dict[Op, Op])
    substitutes: dict[Tensor, Tensor] = field(default_factory=dict["Tensor", "Tensor"])

    @classmethod
    def of(
        cls,
        graph: Graph,
        orders: Mapping[Graph, Sequence[Op]],
        aliases: Aliases,
        models: Mapping[Op, Op] = _NO_MODELS,
        shown: Collection[Op] = (),
    ) -> Program:
        """The program below ``graph``, in the given orders, without what load time does.

        What is ``shown`` is as good as a view: it costs nothing.
        """
        views = aliases.views.union(shown)
        left_out = views.union(find_load_ops(graph))
        found = cls(
            {graph: [op for op in order if op not in left_out] for graph, order in orders.items()},
            set(views),
            frozenset(t for t, place in aliases.places.items() if place.strides is not None),
            _find_carried(graph, aliases),
            dict(models),
        )
        found._hold_alike()
        return found

    def _hold_alike(self) -> None:
        """Let what stays where it is in one cycle of a pipeline stay in all of them."""
        held = {model for op, model in self.models.items() if None in map(self.key, (op, model))}
        self.keys.update(dict.fromkeys(held))
        self.keys.update({op: None for op, model in self.models.items() if model in held})

    def renew(self) -> None:
        """Put calls in the orders, in the places of the ops that they have replaced."""
        for order in self.orders.values():
            order[:] = dict.fromkeys(self.replaced.get(op, op) for op in order)
        for op, model in list(self.models.items()):
            if op in self.replaced:
                self.models[self.replaced[op]] = self.replaced.get(model, model)
        self.replaced.clear()
        self.substitutes.clear()

    def current(self, tensor: Tensor) -> Tensor:
        """The tensor that stands for ``tensor`` now."""
        return self.substitutes.get(tensor, tensor)

    def root(self, tensor: Tensor) -> tuple[Tensor, tuple[tuple[Op, int], ...]]:
        """The tensor that ``tensor`` is a view of, and the views on the way, the last one first."""
        path: list[tuple[Op, int]] = []
        op = tensor.producer
        while op is not None and op in self.views and op.op_type not in _STORING:
            path.append((op, op.outputs.index(tensor)))
            tensor = op.operand(0)
            op = tensor.producer
        return tensor, tuple(path)

    def key(self, op: Op) -> Hashable:
        """Equal for ops that do the same; ``None`` if ``op`` must stay where it is."""
        if op not in self.keys:
            self.keys[op] = self.kind(op) if self._may_move(op) else None
        return self.keys[op]

    def _may_move(self, op: Op) -> bool:
        """True if calling a graph that holds ``op`` is as good as running it here.

        What draws random numbers or does more than compute stays, and so does what computes a
        value where it is going to be kept: a variable, or a state of a loop.  Transfers happen at
        times of their own.
        """
        if callee_of(op) is not None:
            return not any(tensor in self.carried for tensor in op.outputs)
        spec = OPS.get(op.op_type)
        if spec is None or op.subgraphs or spec.random or spec.side_effect or spec.transfer:
            return False
        if op.settings.inplace:
            return False  # the user wants operands to be overwritten, which a callee may not do
        return not (self.reads_strided(op) or any(tensor in self.carried for tensor in op.outputs))

    def reads_strided(self, op: Op) -> bool:
        """True if ``op`` reads what is not contiguous, and so cannot be handed over."""
        return any(self.root(tensor)[0] in self.strided for tensor in op.present_inputs)

    def kind(self, op: Op) -> Hashable:
        """Equal for ops that do the same, but for what is in graphs that they do not call."""
        attributes = tuple(
            (name, type(value).__name__, repr(value))
            for name, value in sorted(op.attributes.items())
            if name not in _NAMES
        )
        operands = tuple(None if t is None else self._operand_key(t) for t in op.inputs)
        results = tuple(str(tensor.type) for tensor in op.outputs)
        settings = op.settings
        where = (settings.virtual_graph, settings.tile_set, settings.outline)
        what = callee_of(op) or op.op_type
        return what, attributes, operands, results, where, settings.exclude_patterns

    def _operand_key(self, tensor: Tensor) -> Hashable:
        root, path = self.root(tensor)
        views = tuple(
            (
                op.op_type,
                repr(sorted(op.attributes.items())),
                index,
                str(op.outputs[index].type),
                tuple(digest_of(tensor) for tensor in op.present_inputs[1:]),
            )
            for op, index in path
        )
        return str(root.type), views


# Views on the host that leave data of its own on the device.
_STORING: Final = frozenset({"Concat", "IpuCopy"})
# Attributes that only say how things are called.
_NAMES: Final = ("labels", "results")


@mutable
class Sequenced:
    """The sequence: entries with equal symbols may be equal; negative ones occur once."""

    entries: list[Entry]
    symbols: list[int]

    @classmethod
    def of(cls, program: Program, *, across_phases: bool = False) -> Sequenced:
        """All graphs one behind the other.

        Between ops of different parts of a step, places or bins there is a barrier, and between the
        phases of a batch unless ``across_phases``.
        """
        found = cls([], [])
        numbers: dict[Hashable, int] = {}
        for graph, order in program.orders.items():
            before: Hashable = None
            for op in order:
                belonging = _belonging(op, across_phases=across_phases)
                if belonging != before:
                    found._part(Entry())
                before = belonging
                key = program.key(op)
                if key is None:
                    found._part(Entry(None, exchange_of(op)))
                else:
                    found.entries.append(Entry(graph, op))
                    found.symbols.append(numbers.setdefault(key, len(numbers)))
            found._part(Entry(graph))
        return found

    def _part(self, barrier: Entry) -> None:
        if barrier != Entry() or (self.symbols and self.symbols[-1] >= 0):
            self.entries.append(barrier)
            self.symbols.append(-1 - len(self.symbols))


def _belonging(op: Op, *, across_phases: bool) -> Hashable:
    """The key that ops of one part have in common; they may differ from part to part."""
    settings = op.settings
    stage, phase, batch = (
        settings.pipeline_stage,
        settings.execution_phase,
        settings.batch_phase,
    )
    place = (stage, phase, None if across_phases else batch)
    return place, settings.part, settings.recompute, settings.bins, calls_around(op)


def _find_carried(graph: Graph, aliases: Aliases) -> frozenset[Tensor]:
    """The tensors copied over a variable or a state, or handed over by a branch."""
    graphs = list(graph.walk())
    values = [
        op.operand(1) for nested in graphs for op in nested.ops if op.op_type == "CopyVarUpdate"
    ]
    outputs: Iterable[Tensor] = (tensor for nested in graphs[1:] for tensor in nested.outputs)
    roots = {aliases.places[tensor].root for tensor in (*values, *outputs)}
    return frozenset(root for root in roots if root.kind is TensorKind.ACTIVATION)
