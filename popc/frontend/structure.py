"""Checks that a model is put together soundly: versions, names, order, nesting, functions.

Everything here is about structure alone; what the nodes mean is the importer's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from typing import Final

from google.protobuf.message import Message  # type: ignore[import-untyped]

from popc.frontend import messages as onnx
from popc.frontend.names import default_domain_name, shown
from popc.frontend.walk import defined_names, direct_reads, nested_graphs, node_name, reads
from popc.ir import order_closely
from popc_runtime.errors import ModelError

__all__ = ["NEWEST_OPSET", "assumed_opset", "check_structure", "sort_nodes"]

# Of ai.onnx.  All its operators are known; those of a later one may mean something else.
NEWEST_OPSET: Final = 26
_OLDEST_IR: Final = 3  # the first that says which opsets a model uses
_DEEPEST: Final = 30  # subgraphs in subgraphs; parsers stop soon after
_DEEPEST_CALLS: Final = 60  # functions in functions

_FunctionKey = tuple[str, str, str]


def check_structure(proto: onnx.ModelProto) -> None:
    """Refuse a model that is not sound, with a reason that names the place.

    Raises:
        ModelError: versions are not supported; names are not text; there are no outputs; a name
            is defined twice; subgraphs or functions are nested too deep; a function calls itself.
    """
    graphs = _all_graphs(proto)
    _check_texts(proto)
    _check_versions(proto)
    if not proto.graph.output:
        raise ModelError("the model has no outputs")
    for graph in graphs:
        _check_unique(graph)
    _check_functions(proto.functions)


# -- versions --------------------------------------------------------------------------------------


def _check_versions(proto: onnx.ModelProto) -> None:
    if proto.ir_version < _OLDEST_IR or proto.ir_version > onnx.IR_VERSION:
        raise ModelError(
            f"the model has IR version {proto.ir_version}; "
            f"versions {_OLDEST_IR} to {onnx.IR_VERSION} are supported",
            hint="install a newer onnx package"
            if proto.ir_version > onnx.IR_VERSION
            else "export the model again with a newer exporter",
        )
    _check_opsets(proto.opset_import, "the model")
    for function in proto.functions:
        _check_opsets(function.opset_import, f"function {function.name!r}")


def assumed_opset(proto: onnx.ModelProto) -> int:
    """The opset of ai.onnx of a model that does not say it but needs one; 0 for other models.

    It is the newest that models of this IR version could use when that was new.
    """
    imported = {default_domain_name(item.domain) for item in proto.opset_import}
    if "" in imported or all(default_domain_name(node.domain) for node in proto.graph.node):
        return 0
    from onnx import helper

    known = (row[2] for row in helper.VERSION_TABLE if row[1] <= proto.ir_version)
    return min(max(known), NEWEST_OPSET)


def _check_opsets(opsets: Iterable[onnx.OperatorSetIdProto], where: str) -> None:
    for item in opsets:
        if not default_domain_name(item.domain) and not 1 <= item.version <= NEWEST_OPSET:
            raise ModelError(
                f"{where} uses opset {item.version} of ai.onnx; "
                f"opsets 1 to {NEWEST_OPSET} are supported",
                hint=f"convert it: onnx.version_converter.convert_version(model, {NEWEST_OPSET})",
            )


# -- names and nesting -----------------------------------------------------------------------------


def _check_texts(proto: onnx.ModelProto) -> None:
    """Protobuf hands out strings that are not valid UTF-8 as bytes; nothing else expects those."""
    for text in _texts(proto):
        if isinstance(text, bytes):
            raise ModelError(f"the model is damaged: the name {text[:80]!r} is not valid UTF-8")


def _texts(message: Message) -> Iterator[str | bytes]:
    """Strings of a message, all that may be no text; of tensors names, for the rest copies data."""
    messages = [message]
    while messages:
        for descriptor, value in messages.pop().ListFields():
            if descriptor.type == descriptor.TYPE_STRING:
                yield from [value] if isinstance(value, (str, bytes)) else value
            elif descriptor.type == descriptor.TYPE_MESSAGE:
                for part in [value] if isinstance(value, Message) else value:
                    if isinstance(part, onnx.TensorProto):
                        yield from _tensor_texts(part)
                    elif not _is_plain(part):
                        messages.append(part)


def _is_plain(message: Message) -> bool:
    """True for nodes without attributes, and declared tensors, if all of their bytes are ASCII.

    It is told for speed: what is in them need not be looked at one by one.
    """
    if isinstance(message, onnx.NodeProto):
        return not message.attribute and message.SerializeToString().isascii()
    return isinstance(message, onnx.ValueInfoProto) and message.SerializeToString().isascii()


def _tensor_texts(tensor: onnx.TensorProto) -> Iterator[str | bytes]:
    yield tensor.name
    for entry in tensor.external_data:
        yield from (entry.key, entry.value)


def _all_graphs(proto: onnx.ModelProto) -> list[onnx.GraphProto]:
    """The main graph and every subgraph, those in functions included, each behind its holder.

    Raises:
        ModelError: subgraphs are nested too deep.
    """
    found = [proto.graph]
    level = [graph for nodes in _node_lists(proto) for n in nodes for graph in nested_graphs(n)]
    for _ in range(_DEEPEST):
        if not level:
            return found
        found += level
        level = [inner for graph in level for n in graph.node for inner in nested_graphs(n)]
    if any(graph.node for graph in level):
        raise ModelError(f"subgraphs are nested more than {_DEEPEST} deep")
    return found + level


def _node_lists(proto: onnx.ModelProto) -> list[Sequence[onnx.NodeProto]]:
    return [proto.graph.node, *(function.node for function in proto.functions)]


def _check_unique(graph: onnx.GraphProto) -> None:
    """Each name has one definition (static single assignment)."""
    names = list(defined_names(graph))
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    for name in names:
        if name in seen:
            repeated[name] = None
        seen.add(name)
    listed = ", ".join(repr(name) for name in repeated)
    raise ModelError(f"graph {graph.name!r} defines names more than once: {listed}")


# -- functions -------------------------------------------------------------------------------------


def _check_functions(functions: Iterable[onnx.FunctionProto]) -> None:
    """No function calls itself, not even through others, and chains of calls are short."""
    bodies: dict[_FunctionKey, onnx.FunctionProto] = {}
    for function in functions:
        key = (default_domain_name(function.domain), function.name, function.overload)
        if key in bodies:
            raise ModelError(f"function {function.name!r} is defined twice")
        bodies[key] = function
    calls = {key: _callees(body.node, bodies) for key, body in bodies.items()}
    depth: dict[_FunctionKey, int] = {}
    for key in calls:
        _measure(key, calls, depth)


def _callees(
    nodes: Iterable[onnx.NodeProto], known: Mapping[_FunctionKey, onnx.FunctionProto]
) -> list[_FunctionKey]:
    called: dict[_FunctionKey, None] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        key = (default_domain_name(node.domain), node.op_type, node.overload)
        if key in known:
            called[key] = None
        waiting.extend(inner for graph in nested_graphs(node) for inner in graph.node)
    return list(called)


def _measure(
    start: _FunctionKey,
    calls: Mapping[_FunctionKey, list[_FunctionKey]],
    depth: dict[_FunctionKey, int],
) -> None:
    """Set ``depth`` of ``start`` and of what it calls, without recursion."""
    path: list[_FunctionKey] = []
    stack = [(start, False)]
    while stack:
        key, done = stack.pop()
        if done:
            path.pop()
            depth[key] = 1 + max((depth[callee] for callee in calls[key]), default=0)
            if depth[key] > _DEEPEST_CALLS:
                raise ModelError(f"functions call functions more than {_DEEPEST_CALLS} deep")
        elif key in path:
            cycle = " -> ".join(shown(name) for _, name, _ in [*path[path.index(key) :], key])
            raise ModelError(f"functions call themselves: {cycle}")
        elif key not in depth:
            path.append(key)
            stack.append((key, True))
            stack.extend((callee, False) for callee in calls[key])


# -- order -----------------------------------------------------------------------------------------


def sort_nodes(proto: onnx.ModelProto, *, owned: bool) -> onnx.ModelProto:
    """``proto`` with producers before users everywhere; a copy if it is not ``owned``.

    Raises:
        ModelError: nodes depend on each other in a cycle; the message names one.
    """
    outermost = (proto.graph.node, *(function.node for function in proto.functions))
    if all(map(_is_sorted, outermost)):
        return proto
    if not owned:
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        proto = copy
    for nodes in _every_node_list(proto):
        _sort(nodes)
    return proto


def _every_node_list(proto: onnx.ModelProto) -> Iterator[MutableSequence[onnx.NodeProto]]:
    """Node lists of all graphs and functions; subgraphs before the graphs that hold them."""
    yield from (graph.node for graph in reversed(_all_graphs(proto)))
    yield from (function.node for function in proto.functions)


def _is_sorted(
    nodes: Sequence[onnx.NodeProto],
    pending: dict[str, bool] | None = None,
    graph: onnx.GraphProto | None = None,
) -> bool:
    """True if no node, or one inside, reads what a node further on defines.

    One walk for all nested graphs.  ``pending`` tells of each name that has been met whether its
    definition is still to come; ``graph``, for whose nodes it is, hides names outside while it is
    walked through.
    """
    pending = {} if pending is None else pending
    here = dict.fromkeys(defined_names(graph), False) if graph is not None else {}
    here |= {name: True for node in nodes for name in node.output if name}
    outside = {name: pending.get(name, False) for name in here} if pending else {}
    pending.update(here)
    for node in nodes:
        for name in direct_reads(node):
            if pending.get(name):
                return False
        for inner in nested_graphs(node) if node.attribute else ():
            if not _is_sorted(inner.node, pending, inner):
                return False
        for name in node.output:
            pending[name] = False
    if graph is not None and any(pending.get(info.name) for info in graph.output):
        return False
    pending.update(outside)
    return True


def _sort(nodes: MutableSequence[onnx.NodeProto]) -> None:
    """Put nodes behind those that they read; else the first in the file comes first."""
    producer = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    sources = [{producer[name] for name in reads(node) if name in producer} for node in nodes]
    users: dict[int, list[int]] = {index: [] for index in range(len(nodes))}
    for user, indices in enumerate(sources):
        for index in indices:
            users[index].append(user)
    order = order_closely(users)
    if len(order) != len(nodes):
        raise ModelError(f"nodes depend on each other: {_cycle(nodes, sources, set(order))}")
    copies = [onnx.NodeProto.FromString(nodes[index].SerializeToString()) for index in order]
    del nodes[:]
    nodes.extend(copies)


def _cycle(
    nodes: Sequence[onnx.NodeProto], sources: Sequence[set[int]], sorted_nodes: set[int]
) -> str:
    """The names of the nodes of one cycle, users last."""
    index = next(i for i in range(len(nodes)) if i not in sorted_nodes)
    path: list[int] = []
    while index not in path:
        path.append(index)
        index = min(source for source in sources[index] if source not in sorted_nodes)
    cycle = [*path[path.index(index) :], index][::-1]
    return " -> ".join(shown(node_name(nodes[i])) for i in cycle)
