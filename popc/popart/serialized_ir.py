"""The ops of a program as PopART's JSON shows them: one entry for each of PopART's ops.

What popc does in one op and PopART in several has several entries; what popc does in ops of which
PopART has none (loops over batches, transfers of inputs, the writing of weights) has none, unless
the session's options make PopART have them too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from popc.ir import Graph, Op, OpSettings, Recompute, StepPart, Tensor, TensorType
from popc.ops.main_loops import ACCUMULATION_LOOP, PIPELINE, STEP_LOOP
from popc.popart.options import SessionOptions
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
    orders: Mapping[Graph, Sequence[Op]], main: Graph, options: SessionOptions
) -> str:
    """All graphs as JSON; every value is text."""
    return json.dumps(_Writer(orders, options).graphs(main))


class _Writer:
    """Writes the ops of graphs in the order in which they run."""

    def __init__(self, orders: Mapping[Graph, Sequence[Op]], options: SessionOptions) -> None:
        self._orders = orders
        self._loops = bool(options.enableExplicitMainLoops)
        self._transfers = bool(options.useHostCopyOps)

    def graphs(self, main: Graph) -> dict[str, list[dict[str, Any]]]:
        """The entries of each graph, by its name."""
        inline = {graph for graph in self._orders if not self._loops and graph.name in _LOOPS}
        return {
            "maingraph" if graph is main else graph.name: list(self._of_graph(graph))
            for graph in self._orders
            if graph not in inline
        }

    def _of_graph(self, graph: Graph) -> Iterator[dict[str, Any]]:
        order = self._orders[graph]
        bodies = [op for op in order if self._is_inline(op)]
        pipelined = any(op.subgraphs["body"].name == PIPELINE for op in bodies)
        for op in order:
            if op in bodies:
                yield from self._of_graph(op.subgraphs["body"])
            elif not (pipelined and op.settings.pipeline_stage is not None):  # fills, flushes
                yield from self._entries(op, graph)

    def _is_inline(self, op: Op) -> bool:
        """True if PopART has no op for this one, which is a loop over batches or micro-batches."""
        return not self._loops and op.op_type == "Loop" and op.subgraphs["body"].name in _LOOPS

    def _entries(self, op: Op, graph: Graph) -> Iterator[dict[str, Any]]:
        if op.op_type in ("HostLoad", "HostStore"):
            if self._transfers:
                yield from _transfer(op)
        elif op.op_type == "CopyVarUpdate" and op.settings.part is StepPart.UPDATE:
            return  # the op of the optimizer writes the weight itself
        elif op.op_type == _FUSED:
            yield from _steps(op)
        else:
            yield from _op(op, _type(op, graph))


def _type(op: Op, graph: Graph) -> str:
    sums = graph.name in (ACCUMULATION_LOOP, PIPELINE) and op.op_type == "Add"
    if sums and op.settings.origin.startswith("Optimizer_"):
        return "Accumulate"
    return _TYPES.get(op.op_type, op.op_type)


def _transfer(op: Op) -> Iterator[dict[str, Any]]:
    """A transfer; what is loaded goes to where an Init has made room for it."""
    if op.op_type == "HostStore":
        yield _entry(op, "HostStore", [op.operand(0)], [])
        return
    room = f"{op.output.name}__init"
    yield _named(op, "Init", [], [room])
    operand = _operand(room, op.output.type, 0)
    yield {**_named(op, "HostLoad", [], [op.output.name]), "inputs": [operand]}


def _op(op: Op, kind: str) -> Iterator[dict[str, Any]]:
    """An op, what follows it as part of it (additions, an activation) as ops of their own."""
    activation = str(op.attributes.get("activation") or "")
    parts = op.op_type in ("Conv", "ConvTranspose", "MatMul")
    extra = [tensor for tensor in op.inputs[_BIAS:] if tensor is not None] if parts else []
    added = "Add" if op.op_type == "MatMul" else "AddBias"
    own = [tensor for tensor in op.inputs if tensor is not None and tensor not in extra]
    kinds = [kind, *(added for _ in extra), *([activation] if activation else [])]
    result = op.outputs[0].name if op.outputs else ""
    names = [f"{result}__{number}" for number in range(len(kinds) - 1)]
    if len(kinds) == 1:
        yield _entry(op, kind, own, list(op.outputs))
        return
    yield {**_named(op, kind, own, [names[0]]), "attributes": _attributes(op, plain=True)}
    type_ = op.outputs[0].type
    for number, part in enumerate(kinds[1:]):
        others = [extra[number]] if number < len(extra) else []
        entry = _named(op, part, others, [(*names, result)[number + 1]])
        entry["inputs"].insert(0, _operand(names[number], type_, 0))
        for place, operand in enumerate(entry["inputs"]):
            operand["index"] = str(place)
        yield entry


def _steps(op: Op) -> Iterator[dict[str, Any]]:
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


def _entry(
    op: Op, kind: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> dict[str, Any]:
    return _named(op, kind, inputs, [tensor.name for tensor in outputs])


def _named(op: Op, kind: str, inputs: Sequence[Tensor], names: Sequence[str]) -> dict[str, Any]:
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
    shape = f"[{' '.join(map(str, type_.shape))}]"
    return {"name": name, "shape": shape, "type": _kind(type_.dtype), "index": str(place)}


def _kind(dtype: DType) -> str:
    names = {DType.FLOAT32: "FLOAT", DType.FLOAT64: "DOUBLE"}
    return names.get(dtype, dtype.value.upper())


def _attributes(op: Op, *, plain: bool = False) -> dict[str, str]:
    found = {
        name: _text(value)
        for name, value in op.attributes.items()
        if not (plain and name.startswith("activation"))
    }
    for key, nested in op.subgraphs.items():
        found["callee" if len(op.subgraphs) == 1 else key] = nested.name
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
