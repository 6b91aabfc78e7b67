"""Give a part a graph of its own, and call that wherever the part occurs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from popc.ir import AttributeMap, CallSite, Graph, Op, OpSettings, Recompute, StepPart, Tensor
from popc.ops.control import callee_of
from popc.transforms.outlining.instances import Instance, equal_constants
from popc.transforms.outlining.labels import InstanceLabels, common_origin
from popc.transforms.outlining.sequence import Program, calls_around
from popc_runtime.ground.frozen import mutable

__all__ = ["outline"]

_TEXTS: Final = ("labels", "results")


def outline(
    program: Program,
    instances: Sequence[Instance],
    name: str,
    sites: Sequence[CallSite] = (),
) -> Graph:
    """Replace ``instances`` by calls of a new graph; ``program`` is kept up to date.

    ``sites`` are the calls of the model that the instances are.
    """
    needed = (occurrence.results(program) for occurrence in instances)
    wanted = [any(column) for column in zip(*needed, strict=True)]
    constants = equal_constants(instances)
    labels = InstanceLabels(len(instances))
    callee = _Template(program, instances, labels, Graph(name)).build(constants, wanted)
    for number, instance in enumerate(instances):
        externals = [program.current(tensor) for tensor in instance.externals]
        operands = [tensor for n, tensor in enumerate(externals) if n not in constants]
        site = sites[number] if sites else None
        call = _add_call(instance, operands, callee, tuple(labels.of[number]), site)
        results = [tensor for op in instance.ops for tensor in op.outputs]
        kept = [tensor for tensor, is_wanted in zip(results, wanted, strict=True) if is_wanted]
        _replace(program, instance, call, kept)
    return callee


@mutable
class _Template:
    """Copies the ops of the first instance."""

    program: Program
    instances: Sequence[Instance]
    labels: InstanceLabels
    graph: Graph

    def build(self, constants: set[int], wanted: Sequence[bool]) -> Graph:
        """The graph; its inputs are the externals that are no ``constants``, in order."""
        program, graph, first = self.program, self.graph, self.instances[0]
        twins: dict[Tensor, Tensor] = {}
        for number, tensor in enumerate(map(program.current, first.externals)):
            if number in constants and tensor.data is not None:
                twins[tensor] = graph.add_constant(tensor.name, tensor.type, tensor.data)
            else:
                twins[tensor] = graph.add_input(tensor.name, tensor.type)
        order: list[Op] = []
        pairs: dict[Op, Op] = {}
        for number, op in enumerate(first.ops):
            operands = [None if t is None else self._operand(t, twins) for t in op.inputs]
            copy = graph.add_op(
                op.op_type,
                operands,
                [tensor.type for tensor in op.outputs],
                self._attributes(number),
                output_names=[tensor.name for tensor in op.outputs],
                settings=self._settings(number),
                subgraphs=op.subgraphs,
            )
            twins.update(zip(op.outputs, copy.outputs, strict=True))
            pairs[op] = copy
            order.append(copy)
        self._order(pairs)
        results = (tensor for op in first.ops for tensor in op.outputs)
        for tensor, is_wanted in zip(results, wanted, strict=True):
            if is_wanted:
                graph.add_output(twins[tensor].name, twins[tensor])
        program.orders[graph] = order
        program.keys.update({copy: program.key(op) for op, copy in pairs.items()})
        return graph

    def _operand(self, tensor: Tensor, twins: dict[Tensor, Tensor]) -> Tensor:
        """The twin of ``tensor``; views that lead to it are copied."""
        if tensor in twins:
            return twins[tensor]
        view = tensor.producer
        assert view is not None, tensor
        source = self._operand(view.operand(0), twins)
        others = [None if t is None else self._constant(t, twins) for t in view.inputs[1:]]
        copy = self.graph.add_op(
            view.op_type,
            [source, *others],
            [output.type for output in view.outputs],
            dict(view.attributes),
            output_names=[output.name for output in view.outputs],
            settings=_plain(view),
        )
        self.program.views.add(copy)
        twins.update(zip(view.outputs, copy.outputs, strict=True))
        return twins[tensor]

    def _constant(self, tensor: Tensor, twins: dict[Tensor, Tensor]) -> Tensor:
        """The twin of a constant that a view reads."""
        assert tensor.data is not None, tensor
        if tensor not in twins:
            twins[tensor] = self.graph.add_constant(tensor.name, tensor.type, tensor.data)
        return twins[tensor]

    def _attributes(self, number: int) -> AttributeMap:
        """The attributes of the first instance, with patterns for names."""
        attributes = dict(self.instances[0].ops[number].attributes)
        for key in _TEXTS:
            texts = [instance.ops[number].attributes.get(key) for instance in self.instances]
            columns = [tuple(map(str, text)) for text in texts if isinstance(text, tuple)]
            if len(columns) == len(texts):
                attributes[key] = tuple(map(self.labels.pattern, zip(*columns, strict=True)))
        return attributes

    def _settings(self, number: int) -> OpSettings:
        all_settings = [instance.ops[number].settings for instance in self.instances]
        origin = self.labels.pattern([settings.origin for settings in all_settings])
        return replace(_plain(self.instances[0].ops[number]), origin=origin)

    def _order(self, pairs: dict[Op, Op]) -> None:
        """Require what is required within any of the instances."""
        for instance in self.instances:
            own = dict(zip(instance.ops, pairs.values(), strict=True))
            instance.graph.ordering.copy(own, self.graph.ordering)


def _plain(op: Op) -> OpSettings:
    """Settings of an op that is called: when it runs is the business of the call."""
    settings = op.settings
    return replace(
        settings,
        pipeline_stage=None,
        execution_phase=None,
        batch_phase=None,
        bins=(),
        call=() if callee_of(op) is None else settings.call[-1:],
        part=StepPart.FORWARD,
        recompute=Recompute.UNDEFINED,
    )


def _add_call(
    instance: Instance,
    operands: Sequence[Tensor],
    callee: Graph,
    labels: tuple[str, ...],
    site: CallSite | None,
) -> Op:
    own = [op.settings for op in instance.ops]
    common = common_origin([settings.origin for settings in own]) or callee.name
    settings = replace(
        own[0],
        origin=common if site is None else site.name,
        call=() if site is None else calls_around(instance.ops[0]),
        schedule_priority=max(settings.schedule_priority for settings in own),
    )
    return instance.graph.add_op(
        "Call",
        operands,
        [tensor.type for tensor in callee.outputs],
        {"labels": labels} if labels else {},
        settings=settings,
        subgraphs={"callee": callee},
    )


def _replace(program: Program, instance: Instance, call: Op, results: Sequence[Tensor]) -> None:
    """Let everything read the results of ``call`` instead; what nobody needs then disappears."""
    graph = instance.graph
    for old, new in zip(results, call.outputs, strict=True):
        graph.replace_uses(old, new)
        program.substitutes[old] = new
    names = [tensor.name for tensor in results]
    for op in reversed(instance.ops):
        program.replaced[op] = call
        graph.ordering.replace(op, call)
        for tensor in op.outputs:
            _drop_views(program, graph, tensor)
        operands = op.present_inputs
        graph.remove_op(op)
        for tensor in operands:
            _drop_unread(program, graph, tensor)
    for name, new in zip(names, call.outputs, strict=True):
        graph.rename(new, name)


def _drop_views(program: Program, graph: Graph, tensor: Tensor) -> None:
    """Remove views of ``tensor`` that nobody reads."""
    for op in tensor.users:
        if op in program.views:
            for shown in op.outputs:
                _drop_views(program, graph, shown)
            _drop_unread(program, graph, op.output)


def _drop_unread(program: Program, graph: Graph, tensor: Tensor) -> None:
    """Remove ``tensor`` if it is a constant or shown by a view, and nobody reads it any more."""
    if tensor.uses or graph.is_output(tensor) or graph.tensors.get(tensor.name) is not tensor:
        return
    op = tensor.producer
    if tensor.is_constant:
        graph.remove_tensor(tensor)
    is_view = op is not None and op in program.views
    if (
        op is None
        or not is_view
        or any(output.uses or graph.is_output(output) for output in op.outputs)
    ):
        return
    operands = op.present_inputs
    graph.remove_op(op)
    for operand in operands:
        _drop_unread(program, graph, operand)
