"""Compute only the rows of which something is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import ClassVar, Final, TypeAlias

from popc.ir import AttributeMap, Graph, Op, Tensor
from popc.ir.attributes import integer, integers
from popc.ops import OPS
from popc.ops.build import build
from popc.ops.infer import normal_axis
from popc.transforms.base import RewritePass
from popc.transforms.match import is_read_once
from popc_runtime.ground.frozen import frozen

__all__ = ["EarlySlices"]

# Operands of an op of whose result only a part along an axis is read, and along which axis only a
# part of each is read then; none if that cannot be told.
_Cuts: TypeAlias = Mapping[int, int]

_WORTH: Final = ("Attention", "LayerNormalization", "MatMul", "RMSNormalization")
_FAR: Final = 64  # ops, at most, that a Slice moves past to one of these


@frozen
class EarlySlices(RewritePass):
    """A Slice of rows moves in front of what makes each row by itself.

    Classifiers read one token of all that a transformer makes: its last layer is computed for that
    one alone, and so are its gradients.

    Before::

        %a = MatMul(%x, @w)
        %b = Gelu(%a)
        %y = Slice(%b) starts=[0, 0, 0] sizes=[8, 1, 192] steps=[1, 1, 1]

    After::

        %c = Slice(%x) starts=[0, 0, 0] sizes=[8, 1, 64] steps=[1, 1, 1]
        %a = MatMul(%c, @w)
        %y = Gelu(%a)

    Only if it comes to a product, a normalisation or attention: the other ops are part of what is
    computed before them.  The first or the last step of a recurrent layer is the state after some
    steps of each direction: others are not computed.
    """

    name: ClassVar[str] = "early_slices"
    rewrites: ClassVar[frozenset[str]] = frozenset({"Slice"})

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Move a Slice, and those that come of it, as far as they save time."""
        if op.op_type != "Slice":
            return False
        pending, moved = [op], False
        while pending:
            slice_ = pending.pop()
            axis = _narrowed_axis(slice_)
            if axis is not None and _is_worth(graph, slice_, axis):
                pending += _exchanged(graph, slice_, axis)
                moved = True
        return moved


def _exchanged(graph: Graph, op: Op, axis: int) -> list[Op]:
    """Exchange a Slice and the op before it; Slices of what that reads."""
    inner = op.operand(0).producer
    assert inner is not None, "an op is worth a Slice in front of it"
    from popc.transforms.layer_steps import LAYERS, one_step

    if inner.op_type in LAYERS:
        graph.replace_op(op, [one_step(graph, inner, _window(op, axis).start, op.output.type)])
        return []
    operands, slices = list(inner.inputs), list[Op]()
    for index, along in _cuts(graph, inner, axis).items():
        slices.append(_part(graph, inner.operand(index), op, axis, along, inner))
        operands[index] = slices[-1].output
    attributes: AttributeMap = {**inner.attributes}
    if inner.op_type == "Reshape":
        attributes["shape"] = op.output.type.shape
    new = build(graph, inner.op_type, operands, attributes, settings=inner.settings)
    graph.replace_op(op, new.outputs[:1])
    graph.remove_op(inner)
    return slices


def _narrowed_axis(op: Op) -> int | None:
    """The only axis along which a Slice leaves something out."""
    before, after = op.operand(0).type.shape, op.output.type.shape
    axes = [
        axis for axis, (all_, some) in enumerate(zip(before, after, strict=True)) if all_ != some
    ]
    reversed_ = any(step < 0 for step in integers(op.attributes, "steps"))
    return axes[0] if len(axes) == 1 and op.output.type.size and not reversed_ else None


def _window(op: Op, axis: int) -> range:
    """The places along an axis that a Slice reads."""
    start, size, step = (integers(op.attributes, key)[axis] for key in ("starts", "sizes", "steps"))
    return range(start, start + size * step, step)


def _part(graph: Graph, tensor: Tensor, op: Op, axis: int, along: int, inner: Op) -> Op:
    """The Slice of an operand of ``inner`` that makes what the Slice ``op`` takes of the result."""
    shape = tensor.type.shape
    window = {key: integers(op.attributes, key)[axis] for key in ("starts", "sizes", "steps")}
    attributes: AttributeMap = {
        key: (*all_[:along], window[key], *all_[along + 1 :])
        for key, all_ in (
            ("starts", (0,) * len(shape)),
            ("sizes", shape),
            ("steps", (1,) * len(shape)),
        )
    }
    return build(graph, "Slice", [tensor], attributes, settings=inner.settings)


def _is_worth(graph: Graph, op: Op, axis: int) -> bool:
    """True if the Slice ``op`` can move along ``axis`` to where it saves time, and that is near."""
    pending = [(op.operand(0), axis)]
    from popc.transforms.layer_steps import LAYERS, step_is_cheap

    for _ in range(_FAR):
        if not pending:
            break
        tensor, along = pending.pop()
        inner = tensor.producer
        if inner is None:
            continue
        if inner.op_type in LAYERS:
            window = _window(op, axis)
            if along == 0 and len(window) == 1 and step_is_cheap(graph, inner, window.start):
                return True
            continue
        cuts = _cuts(graph, inner, along)
        if cuts and inner.op_type in _WORTH:
            return True
        pending += [(inner.operand(index), cut) for index, cut in cuts.items()]
    return False


def _cuts(graph: Graph, op: Op, axis: int) -> _Cuts:
    """The cuts of an op whose first result is only read once, where it is made."""
    spare = any(tensor.uses or graph.is_output(tensor) for tensor in op.outputs[1:])
    if spare or not is_read_once(graph, op.outputs[0]):
        return {}
    rule = _RULES.get(op.op_type)
    if rule is not None:
        return rule(op, axis)
    spec = OPS.get(op.op_type)
    plain = spec is not None and spec.elementwise and not spec.random and not spec.foreign
    return _broadcast(op, axis) if plain else {}


def _broadcast(op: Op, axis: int) -> _Cuts:
    """Operands have the shape of the result, or are repeated."""
    back = axis - op.outputs[0].type.rank
    return {
        index: tensor.type.rank + back
        for index, tensor in enumerate(op.inputs)
        if tensor is not None and -back <= tensor.type.rank and tensor.type.shape[back] != 1
    }


def _normalised(op: Op, axis: int) -> _Cuts:
    rows = normal_axis(integer(op.attributes, "axis"), op.outputs[0].type.rank)
    return _broadcast(op, axis) if axis < rows else {}


def _product(op: Op, axis: int) -> _Cuts:
    left, right = op.operand(0).type, op.operand(1).type
    rank = op.output.type.rank
    plain = len(op.present_inputs) == 2 and left.rank == rank and right.rank == 2
    return {0: axis} if plain and axis < rank - 1 else {}


def _reshaped(op: Op, axis: int) -> _Cuts:
    """The axis of the operand that has the same elements."""
    before, after = op.operand(0).type.shape, op.output.type.shape
    for own, size in enumerate(before):
        if size == after[axis] != 1 and prod(before[:own]) == prod(after[:axis]):
            return {0: own}
    return {}


def _transposed(op: Op, axis: int) -> _Cuts:
    return {0: integers(op.attributes, "perm")[axis]}


def _queries(op: Op, axis: int) -> _Cuts:
    """Queries that see the same keys wherever they stand."""
    attributes = op.attributes
    windows = (integer(attributes, f"{side}_window", -1) for side in ("left", "right"))
    bounded = integer(attributes, "causal", 0) or any(window >= 0 for window in windows)
    rows = 1 if integer(attributes, "heads_last", 0) else 2
    if axis != rows or bounded or integer(attributes, "scores", -1) >= 0:
        return {}
    mask = op.inputs[3] if len(op.inputs) > 3 else None
    if mask is None or mask.type.rank < 2 or mask.type.shape[-2] == 1:
        return {0: 2}
    return {0: 2, 3: mask.type.rank - 2}


_RULES: Final[Mapping[str, Callable[[Op, int], _Cuts]]] = {
    "Attention": _queries,
    "LayerNormalization": _normalised,
    "MatMul": _product,
    "RMSNormalization": _normalised,
    "Reshape": _reshaped,
    "Transpose": _transposed,
}
