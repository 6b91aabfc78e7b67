"""The cycles of a pipeline, in each of which a stage does the same.

Those that fill and flush the pipeline are scheduled apart from the loop in which all stages run.
For a stage to become the same calls everywhere, its ops have to follow each other in one order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

from popc.ir import Graph, Op
from popc.ops.constraints import Barrier, Node, Precedence
from popc.ops.main_loops import PIPELINE, step_of_pipeline
from popc.transforms.outlining.together import together
from popc_runtime.ground.frozen import frozen

__all__ = ["InStep", "in_step"]


@frozen
class InStep:
    """The orders of the graphs of a program in which every cycle runs a stage in the same way.

    Attributes:
        orders: Those orders.
        models: The ops of the loop, by the ops of other cycles that do the same.
    """

    orders: Mapping[Graph, Sequence[Op]]
    models: Mapping[Op, Op]


def in_step(orders: Mapping[Graph, Sequence[Op]]) -> InStep:
    """``orders`` in which stages run one after the other, in every cycle as in the loop.

    A graph in which that is not possible keeps its order.
    """
    loop = next((graph for graph in orders if graph.name == PIPELINE), None)
    if loop is None:
        return InStep(orders, {})
    members: dict[int, list[Op]] = defaultdict(list)
    for op in orders[loop]:
        turn = _turn(op)
        if turn is not None:
            members[turn[1]].append(op)
    wanted = {stage: _keys(ops) for stage, ops in members.items()}
    models: dict[Op, Op] = {}
    found = {graph: _followed(graph, order, wanted, models) for graph, order in orders.items()}
    return InStep(found, {op: model for op, model in models.items() if op is not model})


def _followed(
    graph: Graph,
    order: Sequence[Op],
    wanted: Mapping[int, Mapping[Op, Hashable]],
    models: dict[Op, Op],
) -> Sequence[Op]:
    """The order of one graph; adds to ``models``."""
    precedence = Precedence.required(order, [pair for pair in graph.ordering if not pair.wished])
    turns = {op: _turn(op) for op in order}
    units = {op: op if turn is None else turn for op, turn in turns.items()}
    found: list[Op] = []
    pairs: dict[Op, Op] = {}
    for ops in together(order, precedence.successors, units).values():
        turn = turns[ops[0]]
        like = wanted.get(turn[1], {}) if turn is not None else {}
        matched = _matched(ops, like)
        found += matched or ops
        pairs.update(zip(matched, like, strict=False))
    if not _is_allowed(precedence, found):
        return order
    models.update(pairs)
    return found


def _turn(op: Op) -> tuple[int, int] | None:
    """The step of the pipeline and the stage that ``op`` computes something for."""
    stage = op.settings.pipeline_stage
    step = step_of_pipeline(op)
    return None if stage is None or step is None or step % 2 else (step, stage)  # odd: copies


def _matched(ops: Sequence[Op], models: Mapping[Op, Hashable]) -> list[Op]:
    """``ops`` in the order of ``models``, each in the place of what it is like; or none of them."""
    alike: dict[Hashable, list[Op]] = defaultdict(list)
    for op, key in _keys(ops).items():
        alike[key].append(op)
    turns = {key: iter(found) for key, found in alike.items()}
    nobody: Iterator[Op] = iter(())
    matched = [next(turns.get(key, nobody), None) for key in models.values()]
    found = [op for op in matched if op is not None]
    return found if len(found) == len(ops) == len(models) else []


def _keys(ops: Sequence[Op]) -> dict[Op, Hashable]:
    """A key for each op of a stage, equal for ops that do the same for those that do the same."""
    own = set(ops)
    keys: dict[Op, Hashable] = {}
    for op in ops:
        # A hash, since keys that hold those of all ops before would grow without bound.
        sources = tuple(
            (hash(keys[tensor.producer]), tensor.producer.outputs.index(tensor))
            if tensor is not None and tensor.producer in keys
            else None
            for tensor in op.inputs
        )
        users = sorted(
            (user.op_type, user.settings.origin, user.inputs.index(tensor))
            for tensor in op.outputs
            for user in tensor.users
            if user in own
        )
        types = tuple(str(tensor.type) for tensor in op.outputs)
        keys[op] = (op.op_type, op.settings.origin, types, sources, tuple(users))
    return keys


def _is_allowed(precedence: Precedence, order: Sequence[Op]) -> bool:
    """True if no op of ``order`` comes before one that it has to wait for."""
    waiting = dict(precedence.waiting)
    for op in order:
        if waiting[op]:
            return False
        released: list[Node] = [op]
        for node in released:  # grows while it is walked
            for later in precedence.successors[node]:
                waiting[later] -= 1
                if not waiting[later] and isinstance(later, Barrier):
                    released.append(later)
    return True
