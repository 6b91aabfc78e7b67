"""The ops of a program as PopART's JSON shows them: one entry for each of PopART's ops.

What popc does in one op and PopART in several has several entries; what popc does in ops of which
PopART has none (loops over batches, transfers of inputs, the writing of weights) has none, unless
the session's options make PopART have them too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Final

from popc.autodiff import GRADIENT_PREFIX
from popc.ir import (
    Graph,
    Op,
    OpSettings,
    Recompute,
    StepPart,
    Tensor,
    TensorType,
    names_of_graphs,
)
from popc.ir.attributes import text
from popc.ops.control import callee_of
from popc.ops.main_loops import ACCUMULATION_LOOP, PIPELINE, STEP_LOOP
from popc.popart.option_enums import VirtualGraphMode
from popc.popart.options import SessionOptions
from popc.popart.serialized_functions import Entry, Shown, with_functions
from popc_runtime.format import DType
from popc_runtime.kernels.parts.fused_steps import steps_of

__all__ = ["serialized_ir"]

# Ops of popc that PopART calls otherwise; of those without an entry the names are the same.
_TYPES: Final = {
    "AccumulateMoment": "Accumulate",
    "Inverse": "Reciprocal",
    "Negative": "Neg",
    "SoftmaxCrossEntropyLossGrad": "NlllWithSoftmaxGradDirect",
}
_LOOPS: Final = (STEP_LOOP, ACCUMULATION_LOOP, PIPELINE)
_BIAS: Final = 2  # the first operand that PopART has ops of their own for
_FUSED: Final = "FusedElementwise"
_RECOMPUTED: Final = (Recompute.RECOMPUTE, Recompute.RECOMPUTED)


def serialized_ir(
    orders: Mapping[Graph, Sequence[Op]],
    main: Graph,
    options: SessionOptions,
    losses: Mapping[str, str],
) -> str:
    """All graphs as JSON; every value is text.

    Args:
        orders: The ops of each graph, as they run.
        main: The graph that is not called.
        options: The options of the session.
        losses: What ops of PopART's only name again, as losses, by the new name.
    """
    return json.dumps(_Writer(orders, options, losses).graphs(main))


class _Writer:
    """Writes the ops of graphs in the order in which they run."""

    def __init__(
        self,
        orders: Mapping[Graph, Sequence[Op]],
        options: SessionOptions,
        losses: Mapping[str, str],
    ) -> None:
        self._orders = orders
        self._names = names_of_graphs(orders, form="{name}({number})")
        self._losses = losses
        self._loops = bool(options.enableExplicitMainLoops)
        self._transfers = bool(options.useHostCopyOps)
        self._threshold = float(options.outlineThreshold) if options.enableOutlining else None
        self._has_places = options.virtualGraphMode is VirtualGraphMode.Auto
        self._anchors = _anchor_names(orders)

    def graphs(self, main: Graph) -> dict[str, list[Entry]]:
        """The entries of each graph, by its name."""
        inline = {graph for graph in self._orders if not self._loops and graph.name in _LOOPS}
        ops = [op for order in self._orders.values() for op in order if not op.settings.call]
        called = {self._names[callee] for op in ops if (callee := callee_of(op)) is not None}
        shown = {
            "maingraph" if graph is main else self._names[graph]: list(self._of_graph(graph))
            for graph in (main, *self._orders)
            if graph not in inline
        }
        by_time = any(graph.name == ACCUMULATION_LOOP for graph in inline)
        shown = {name: self._with_losses(_once(entries)) for name, entries in shown.items()}
        return with_functions(shown, called, self._threshold, by_time=by_time)

    def _of_graph(self, graph: Graph) -> Iterator[Shown]:
        order = self._orders[graph]
        numbers = {op: number for number, op in enumerate(graph.ops)}
        bodies = [op for op in order if self._is_inline(op)]
        pipelined = any(op.subgraphs["body"].name == PIPELINE for op in bodies)
        for op in order:
            if op in bodies:
                yield from self._of_graph(op.subgraphs["body"])
            elif not (pipelined and op.settings.pipeline_stage is not None):  # fills, flushes
                for number, entry in enumerate(self._entries(op, graph)):
                    entry["attributes"].update(self._graphs_of(op))
                    if self._has_places:
                        entry["attributes"].setdefault("__ipu_number", "0")
                    yield Shown(op, numbers[op], self._anchored(entry), number == 0)

    def _graphs_of(self, op: Op) -> dict[str, str]:
        """The names of the graphs that an op holds, as attributes."""
        keys = ["callee"] if len(op.subgraphs) == 1 else list(op.subgraphs)
        return {
            key: self._names[op.subgraphs[own]] for key, own in zip(keys, op.subgraphs, strict=True)
        }

    def _is_inline(self, op: Op) -> bool:
        """True if PopART has no op for this one, which is a loop over batches or micro-batches."""
        return not self._loops and op.op_type == "Loop" and op.subgraphs["body"].name in _LOOPS

    def _with_losses(self, entries: Sequence[Shown]) -> list[Shown]:
        """The entries, and those of losses that are what they read, behind what they read."""
        found: list[Shown] = []
        for shown in entries:
            found.append(shown)
            for result in shown.entry["outputs"]:
                read = self._losses.get(result["name"])
                if read is not None:
                    again = {**result, "name": read}
                    shown.entry["outputs"] = [again]
                    found.extend(_identity_loss(shown, read, result["name"]))
        return found

    def _anchored(self, entry: Entry) -> Entry:
        """The entry with the names that anchors have in the model, which names no tensor twice."""
        for operand in (*entry["inputs"], *entry["outputs"]):
            operand["name"] = self._anchors.get(operand["name"], operand["name"])
        return entry

    def _entries(self, op: Op, graph: Graph) -> Iterator[Entry]:
        if op.op_type in ("HostLoad", "HostStore"):
            if op.op_type == "HostStore" and _is_repeated(op):
                yield _named(op, "Identity", [op.operand(0)], [_stream(op)])
            if self._transfers:
                yield from _transfer(op)
        elif op.op_type == "CopyVarUpdate" and op.settings.part is StepPart.UPDATE:
            return  # the op of the optimizer writes the weight itself
        elif op.op_type == _FUSED:
            yield from _steps(op)
        else:
            yield from _op(op, _type(op, graph))


def _identity_loss(shown: Shown, read: str, name: str) -> Iterator[Shown]:
    """The entries of a loss and of its gradient."""
    operand = _operand(read, shown.op.output.type, 0)
    for kind, prefix in (("IdentityLoss", ""), ("IdentityLossGrad", GRADIENT_PREFIX)):
        names = (read, name) if not prefix else (prefix + name, prefix + read)
        entry = {
            **_named(shown.op, kind, [], [names[1]]),
            "inputs": [{**operand, "name": names[0]}],
        }
        yield Shown(shown.op, shown.number, entry, is_whole=False)


def _once(entries: Sequence[Shown]) -> list[Shown]:
    """Without what is computed again behind a loop that PopART does not have."""
    made: set[str] = set()
    kept: list[Shown] = []
    for shown in entries:
        names = {result["name"] for result in shown.entry["outputs"]}
        if not names or not names <= made:
            kept.append(shown)
        made |= names
    return kept


def _stream(op: Op) -> str:
    return text(op.attributes, "stream")


def _is_repeated(op: Op) -> bool:
    """True if what is stored is an input or a constant under another name, which takes an op."""
    stored = op.operand(0)
    loaded = stored.producer is not None and stored.producer.op_type == "HostLoad"
    return (loaded or stored.is_constant) and _stream(op) != stored.name


def _anchor_names(orders: Mapping[Graph, Sequence[Op]]) -> dict[str, str]:
    """The names under which results of ops are returned, if the program has none of that name."""
    ops = [op for order in orders.values() for op in order]
    taken = {tensor.name for op in ops for tensor in (*op.present_inputs, *op.outputs)}
    stores = [op for op in ops if op.op_type == "HostStore" and not _is_repeated(op)]
    names = {op.operand(0).name: _stream(op) for op in stores if _stream(op) not in taken}
    inner = {tensor.name for graph in orders for tensor in (*graph.inputs, *graph.constants)}
    return {name: stream for name, stream in names.items() if name not in inner}


def _type(op: Op, graph: Graph) -> str:
    sums = graph.name in (ACCUMULATION_LOOP, PIPELINE) and op.op_type == "Add"
    if sums and op.settings.origin.startswith("Optimizer_"):
        return "Accumulate"
    if op.op_type == "LambSquare" and not op.output.name.startswith("LambR"):
        return "ReduceSumSquare"  # of the norm of all gradients
    return _TYPES.get(op.op_type, op.op_type)


def _transfer(op: Op) -> Iterator[Entry]:
    """A transfer; what is loaded goes to where an Init has made room for it."""
    if op.op_type == "HostStore":
        yield _entry(op, "HostStore", [op.operand(0)], [])
        return
    room = f"{op.output.name}__init"
    yield _named(op, "Init", [], [room])
    operand = _operand(room, op.output.type, 0)
    yield {**_named(op, "HostLoad", [], [op.output.name]), "inputs": [operand]}


def _op(op: Op, kind: str) -> Iterator[Entry]:
    """An op, what follows it as part of it (additions, an activation) as ops of their own."""
    activation = str(op.attributes.get("activation") or "")
    parts = op.op_type in ("Conv", "ConvTranspose", "MatMul")
    extra = [tensor for tensor in op.inputs[_BIAS:] if tensor is not None] if parts else []
    added = "Add" if op.op_type == "MatMul" else "AddBias"
    own = [tensor for tensor in op.inputs if tensor is not None and tensor not in extra]
    kinds = [kind, *(added for _ in extra), *([activation] if activation else [])]
    result = op.outputs[0].name if op.outputs else ""
    names = [f"{result}__{number}" for number in range(len(kinds) - 1)]
    outputs = [names[0]] if names else [tensor.name for tensor in op.outputs]
    first = _named(op, kind, own, outputs)
    if op.op_type == "MatMul":
        _in_groups(first, own)
    if not names:
        yield first
        return
    yield {**first, "attributes": _attributes(op, plain=True)}
    type_ = op.outputs[0].type
    for number, part in enumerate(kinds[1:]):
        others = [extra[number]] if number < len(extra) else []
        entry = _named(op, part, others, [(*names, result)[number + 1]])
        entry["inputs"].insert(0, _operand(names[number], type_, 0))
        for place, operand in enumerate(entry["inputs"]):
            operand["index"] = str(place)
        yield entry


def _steps(op: Op) -> Iterator[Entry]:
    """The elementwise ops that one op does together."""
    values = [(tensor.name, tensor.type) for tensor in op.present_inputs]
    steps = steps_of(op.attributes, len(values))
    result = op.outputs[0]
    for number, step in enumerate(steps):
        is_last = number == len(steps) - 1
        name = result.name if is_last else f"{result.name}__{number}"
        inputs = [_operand(*values[index], place) for place, index in enumerate(step.operands)]
        kind = _TYPES.get(step.opcode, step.opcode)
        own = {key: _text(value) for key, value in step.attributes.items()}
        entry = {**_named(op, kind, [], [name]), "inputs": inputs}
        yield {**entry, "attributes": {**own, **_settings(op.settings)}}
        values.append((name, TensorType(step.dtype, result.type.shape)))


def _entry(op: Op, kind: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Entry:
    return _named(op, kind, inputs, [tensor.name for tensor in outputs])


def _named(op: Op, kind: str, inputs: Sequence[Tensor], names: Sequence[str]) -> Entry:
    return {
        "type": kind,
        "name": op.settings.origin,
        "inputs": [
            _operand(tensor.name, tensor.type, place) for place, tensor in enumerate(inputs)
        ],
        "outputs": [{"name": name, "index": str(place)} for place, name in enumerate(names)],
        "attributes": _attributes(op),
    }


def _operand(name: str, type_: TensorType, place: int) -> dict[str, str]:
    return {
        "name": name,
        "shape": _spaced(type_.shape),
        "type": _kind(type_.dtype),
        "index": str(place),
    }


def _spaced(shape: Sequence[int]) -> str:
    return f"[{' '.join(map(str, shape))}]"


def _in_groups(entry: Entry, tensors: Sequence[Tensor]) -> Entry:
    """Operands of a product as PopART has them: of rank 3, with the number of products first."""
    for operand, tensor in zip(entry["inputs"], tensors, strict=True):
        *groups, rows, columns = (1, *tensor.type.shape)[-max(tensor.type.rank, 2) :]
        operand["shape"] = _spaced((prod(groups), rows, columns))
    return entry


def _kind(dtype: DType) -> str:
    names = {DType.FLOAT32: "FLOAT", DType.FLOAT64: "DOUBLE"}
    return names.get(dtype, dtype.value.upper())


def _attributes(op: Op, *, plain: bool = False) -> dict[str, str]:
    found = {
        name: _text(value)
        for name, value in op.attributes.items()
        if not (plain and name.startswith("activation"))
    }
    return {**found, **_settings(op.settings)}


def _settings(settings: OpSettings) -> dict[str, str]:
    kind = settings.recompute
    context = "Normal" if settings.part is not StepPart.UPDATE else "AccumulateOuterFragment"
    found = {
        "recompute": "YES" if kind in _RECOMPUTED else "NO",
        "recomputetype": kind.name.capitalize(),
        "__execution_context": f"ExecutionContext::{context}",
        "scope": "",
        "schedulePriority": f"{settings.schedule_priority:.6f}",
    }
    places = {
        "__ipu_number": settings.virtual_graph,
        "__pipeline_stage": settings.pipeline_stage,
        "__execution_phase": settings.execution_phase,
    }
    return {**found, **{key: str(number) for key, number in places.items() if number is not None}}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, tuple | list):
        return f"[{' '.join(_text(item) for item in value)}]"
    return str(value)
