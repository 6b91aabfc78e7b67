"""Find scaled dot-product attention that exporters have written out."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from popc.ir import AttributeMap, Graph, Op, OpSettings, Tensor
from popc.ops.build import build
from popc.ops.constants import scalar_value
from popc.ops.infer import broadcast_shapes
from popc.transforms.base import RewritePass
from popc.transforms.match import are_moderate, only_user, sole_output
from popc_runtime.errors import ModelError
from popc_runtime.format import DType
from popc_runtime.ground.frozen import frozen

__all__ = ["RecogniseAttention"]

_RANK = 4  # of the op's operands
_HEADS_LAST = (0, 2, 1, 3)  # from [batch, length, heads, width] to [batch, heads, length, width]
_DTYPES = (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64)


@frozen
class RecogniseAttention(RewritePass):
    """softmax(scale * Q K^T + mask) V on [batch, heads, rows, depth], or fewer dimensions.

    The scale may be a factor or a divisor of Q, of K^T or of their product.  The scores are then
    computed block by block and never stored as a whole, which halves the time of long sequences.

    Before::

        %s = MatMul(%q, %kt)
        %d = Div(%s, float32(8.0))
        %m = Add(%d, %mask)
        %p = Softmax(%m) axis=3
        %o = MatMul(%p, %v)
        %y = Transpose(%o) perm=[0, 2, 1, 3]

    After::

        %k = Transpose(%kt) perm=[0, 1, 3, 2]
        %y = Attention(%q, %k, %v, %mask) heads_last=1 scale=0.125

    Keys whose number data decides are seen as far as they count: what hides the others (padding
    replaced in scores, and by zeros in weights and V) becomes the operand for lengths.  Heads that
    are repeated, for groups of queries to share them, are read where they lie.

    Results are the same up to rounding, except where a mask of -inf hides all keys from a query:
    the formula gives NaN there, `Attention` 0, as the formula does that replaces NaN by 0.
    """

    name: ClassVar[str] = "recognise_attention"
    rewrites: ClassVar[frozenset[str]] = frozenset({"MatMul"})

    def rewrite(self, graph: Graph, op: Op) -> bool:
        """Match backwards from the product with V, then take a transpose along."""
        match = _match(graph, op)
        if match is None:
            return False
        attributes: AttributeMap = {"scale": match.scale}
        last = only_user(graph, op.output)
        if _is_heads_last(last):
            attributes["heads_last"] = 1
        else:
            last = op
        assert last is not None, "a transpose or the product"
        parts = (match.scores, match.softmax, op, last)
        nodes = dict.fromkeys(part.settings.origin for part in parts if part.settings.origin)
        settings = op.settings.fused(last.settings, origin=", ".join(nodes))
        name = last.output.name
        keys = _keys(graph, match.transposed_keys, settings)
        from popc.transforms.attention_parts import without_repeated_heads

        keys, values = without_repeated_heads(keys, match.values)
        factors = [_lifted(graph, part, settings) for part in (match.queries, keys, values)]
        operands: list[Tensor | None] = [*factors]
        if match.mask or match.count:
            operands.append(match.mask)
        if match.count:
            operands.append(_lengths(graph, match.count, factors[0].type.shape[0], settings))
        new = build(graph, "Attention", operands, attributes, settings=settings)
        if new.output.type != last.output.type:
            shape: AttributeMap = {"shape": last.output.type.shape}
            new = build(graph, "Reshape", [new.output], shape, settings=settings)
        graph.replace_op(last, new.outputs)
        graph.rename(new.output, name)
        return True


def _lifted(graph: Graph, tensor: Tensor, settings: OpSettings) -> Tensor:
    """``tensor`` with the dimensions of a batch, or of heads, that it lacks."""
    shape = (*(1,) * (_RANK - tensor.type.rank), *tensor.type.shape)
    if shape == tensor.type.shape:
        return tensor
    return build(graph, "Reshape", [tensor], {"shape": shape}, settings=settings).output


def _keys(graph: Graph, transposed: Tensor, settings: OpSettings) -> Tensor:
    """The keys [..., keys, depth]."""
    from popc.transforms.attention_parts import untransposed

    plain = untransposed(transposed)
    shape = transposed.type.shape
    if plain is None:
        order = tuple(range(len(shape)))
        swap: AttributeMap = {"perm": (*order[:-2], order[-1], order[-2])}
        return build(graph, "Transpose", [transposed], swap, settings=settings).output
    wanted = (*shape[:-2], shape[-1], shape[-2])
    if plain.type.shape == wanted:
        return plain
    return build(graph, "Reshape", [plain], {"shape": wanted}, settings=settings).output


def _lengths(graph: Graph, count: Tensor, batch: int, settings: OpSettings) -> Tensor:
    """The number of keys, for each sample."""
    one = build(graph, "Reshape", [count], {"shape": (1,)}, settings=settings).output
    return build(graph, "Expand", [one], {"shape": (batch,)}, settings=settings).output


@frozen
class _Match:
    scores: Op
    softmax: Op
    queries: Tensor
    transposed_keys: Tensor
    values: Tensor
    scale: float
    mask: Tensor | None
    count: Tensor | None


def _match(graph: Graph, op: Op) -> _Match | None:
    """The attention that ends with ``op``, a product with V."""
    if op.op_type != "MatMul" or len(op.present_inputs) != 2:
        return None
    rank = op.output.type.rank
    from popc.transforms.attention_parts import sole_softmax, without_padding

    weights, of_weights = without_padding(graph, op.operand(0), 0, -1)
    softmax = sole_softmax(graph, weights)
    if not 2 <= rank <= _RANK or softmax is None or softmax.attributes["axis"] != rank - 1:
        return None
    values, of_values = without_padding(graph, op.operand(1), 0, -2)
    hidden, count = without_padding(graph, softmax.operand(0), -np.inf, -1)
    scores, mask = _without_mask(graph, hidden)
    scores, scale = _without_scale(graph, scores)
    product = sole_output(graph, scores, "MatMul")
    same_padding = all(own in (None, count) for own in (of_weights, of_values))
    if product is None or len(product.present_inputs) != 2 or not same_padding:
        return None
    queries, of_queries = _without_scale(graph, product.operand(0))
    keys, of_keys = _without_scale(graph, product.operand(1))
    if not _fit(queries, keys, values) or queries.type.dtype not in _DTYPES:
        return None
    factors = np.array([scale, of_queries, of_keys])
    whole = np.array([*factors, scale * of_queries * of_keys])
    if not (factors.all() and are_moderate(whole, queries.type.dtype)):
        return None
    return _Match(product, softmax, queries, keys, values, float(whole[-1]), mask, count)


def _without_mask(graph: Graph, tensor: Tensor) -> tuple[Tensor, Tensor | None]:
    """The scores without the mask that is added to them, and the mask."""
    add = sole_output(graph, tensor, "Add")
    if add is None:
        return tensor, None
    for scores, mask in (add.inputs, reversed(add.inputs)):
        if scores is None or mask is None or not _is_mask(mask, scores):
            continue
        if sole_output(graph, scores, "MatMul", "Mul", "Div") is not None:
            return scores, mask
    return tensor, None


def _is_mask(mask: Tensor, scores: Tensor) -> bool:
    """True if ``mask`` broadcasts to the scores."""
    if mask.type.rank == 0 or mask.type.dtype is not scores.type.dtype:
        return False
    try:
        return broadcast_shapes([mask.type.shape, scores.type.shape]) == scores.type.shape
    except ModelError:
        return False


def _without_scale(graph: Graph, tensor: Tensor) -> tuple[Tensor, float]:
    """The tensor without a constant factor or divisor, and the factor."""
    op = sole_output(graph, tensor, "Mul", "Div")
    if op is None:
        return tensor, 1.0
    first, second = op.operand(0), op.operand(1)
    value = scalar_value(second)
    if value is None and op.op_type == "Mul":
        first, value = second, scalar_value(first)
    if value is None or first.type != tensor.type or (op.op_type == "Div" and value == 0):
        return tensor, 1.0
    return first, 1 / value if op.op_type == "Div" else value


def _fit(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """True if all have one batch and one set of heads (the op does not broadcast them)."""
    shapes = [tensor.type.shape for tensor in (queries, keys, values)]
    rank = len(shapes[2])
    return all(len(shape) == rank and shape[:-2] == shapes[0][:-2] for shape in shapes)


def _is_heads_last(op: Op | None) -> bool:
    return op is not None and op.op_type == "Transpose" and op.attributes["perm"] == _HEADS_LAST
