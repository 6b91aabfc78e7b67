"""Einsum as matrix products, transposes and sums: fast, and every other stage knows those ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from math import prod

from popc.frontend.node import Node
from popc.ir import Tensor
from popc_runtime.errors import ModelError
from popc_runtime.ground.frozen import frozen

__all__ = ["einsum"]


@frozen
class _Term:
    """A tensor with a label for each dimension; no label twice."""

    tensor: Tensor
    labels: tuple[str, ...]

    __eq__ = object.__eq__  # it is equal to itself alone
    __hash__ = object.__hash__


def einsum(node: Node) -> Tensor:
    """Sum of products of the operands' elements over the labels that the result lacks."""
    tensors = node.tensors()
    inputs, output = _parse(node.text("equation"), [tensor.type.rank for tensor in tensors])
    sizes = _label_sizes(tensors, inputs)
    unknown = [label for label in output if label not in sizes]
    if unknown or len(set(output)) < len(output):
        raise ModelError(f"the result labels {''.join(output)!r} repeat or are not in an operand")
    terms = [_distinct(node, t, labels, sizes) for t, labels in zip(tensors, inputs, strict=True)]
    terms = [_summed(node, term, _needed(terms, output, term)) for term in terms]
    while len(terms) > 1:
        left, right = _cheapest_pair(terms, output, sizes)
        rest = [term for term in terms if term is not left and term is not right]
        terms = [_product(node, left, right, _needed(rest, output), sizes), *rest]
    return _arranged(node, terms[0], output)


def _parse(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Labels of each operand and of the result; the dimensions of "..." are labelled by numbers."""
    text = "".join(equation.split())
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise ModelError(
            f"equation {equation!r} names {len(parts)} operands, but {len(ranks)} are given"
        )
    inputs = [_labels(part, rank) for part, rank in zip(parts, ranks, strict=True)]
    ellipsis = sorted({label for labels in inputs for label in labels if len(label) > 1})
    if arrow:
        head, dots, tail = right.partition("...")
        return inputs, (*head, *(ellipsis if dots else ()), *tail)
    counts = Counter(label for labels in inputs for label in labels)
    once = sorted(label for label, count in counts.items() if count == 1 and len(label) == 1)
    return inputs, (*ellipsis, *once)


def _labels(part: str, rank: int) -> tuple[str, ...]:
    head, dots, tail = part.partition("...")
    hidden = rank - len(head) - len(tail)
    if (not (head + tail).isalpha() and head + tail) or hidden < 0 or (hidden and not dots):
        raise ModelError(f"{part!r} does not label the dimensions of an operand of rank {rank}")
    # Counted from the right, as dimensions broadcast; zero-padded, so that sorting is by position.
    return (*head, *(f".{1000 - place}" for place in range(hidden, 0, -1)), *tail)


def _label_sizes(tensors: Sequence[Tensor], inputs: Sequence[tuple[str, ...]]) -> Mapping[str, int]:
    sizes: dict[str, int] = {}
    for tensor, labels in zip(tensors, inputs, strict=True):
        for label, size in zip(labels, tensor.type.shape, strict=True):
            if sizes.get(label, 1) == 1:
                sizes[label] = size
            elif size not in (1, sizes[label]):
                raise ModelError(f"label {label!r} stands for {sizes[label]} and for {size}")
    return sizes


def _distinct(
    node: Node, tensor: Tensor, labels: tuple[str, ...], sizes: Mapping[str, int]
) -> _Term:
    """The operand without dimensions that broadcast, and with its diagonal for repeated labels."""
    shape = tensor.type.shape
    kept = [i for i, label in enumerate(labels) if shape[i] == sizes[label]]
    tensor = _reshape(node, tensor, [shape[i] for i in kept])
    term = _Term(tensor, tuple(labels[i] for i in kept))
    for label, count in Counter(term.labels).items():
        for _ in range(count - 1):
            term = _diagonal(node, term, label)
    return term


def _diagonal(node: Node, term: _Term, label: str) -> _Term:
    """Two dimensions of the same label, moved to the end and flattened: every (n + 1)th element."""
    first = term.labels.index(label)
    second = term.labels.index(label, first + 1)
    others = [axis for axis in range(len(term.labels)) if axis not in (first, second)]
    moved = _transpose(node, term.tensor, (*others, first, second))
    outer, size = moved.type.shape[:-2], moved.type.shape[-1]
    flat = _reshape(node, moved, (*outer, size * size))
    attributes = {
        "starts": (0,) * (len(outer) + 1),
        "sizes": (*outer, size),
        "steps": (*(1 for _ in outer), size + 1),
    }
    labels = (*(term.labels[axis] for axis in others), label)
    return _Term(node.emit("Slice", [flat], attributes), labels)


def _needed(others: Iterable[_Term], output: Sequence[str], term: _Term | None = None) -> set[str]:
    """Labels that the result or another term still has."""
    return {*output, *(label for other in others if other is not term for label in other.labels)}


def _summed(node: Node, term: _Term, needed: set[str]) -> _Term:
    axes = tuple(axis for axis, label in enumerate(term.labels) if label not in needed)
    if not axes:
        return term
    tensor = node.emit("ReduceSum", [term.tensor], {"axes": axes, "keepdims": 0})
    return _Term(tensor, tuple(label for label in term.labels if label in needed))


def _cheapest_pair(
    terms: Sequence[_Term], output: Sequence[str], sizes: Mapping[str, int]
) -> tuple[_Term, _Term]:
    """The two terms whose product is smallest; the leftmost of equals."""

    def result_size(pair: tuple[_Term, _Term]) -> int:
        needed = _needed((term for term in terms if term not in pair), output)
        return prod(sizes[label] for label in {*pair[0].labels, *pair[1].labels} & needed)

    return min(combinations(terms, 2), key=result_size)


def _product(
    node: Node, left: _Term, right: _Term, needed: set[str], sizes: Mapping[str, int]
) -> _Term:
    """One matrix product per element of the common labels that stay."""
    common = [label for label in left.labels if label in right.labels]
    batch = [label for label in common if label in needed]
    inner = [label for label in common if label not in needed]
    rows = [label for label in left.labels if label not in common]
    columns = [label for label in right.labels if label not in common]
    labels = (*batch, *rows, *columns)
    if not inner:
        operands = [_spread(node, term, labels) for term in (left, right)]
        return _Term(node.emit("Mul", operands), labels)
    groups = [batch, rows, inner, columns]
    b, m, k, n = (prod(sizes[label] for label in group) for group in groups)
    outer = (b,) if batch else ()
    a = _reshape(node, _arranged(node, left, (*batch, *rows, *inner)), (*outer, m, k))
    c = _reshape(node, _arranged(node, right, (*batch, *inner, *columns)), (*outer, k, n))
    result = node.emit("MatMul", [a, c])
    return _Term(_reshape(node, result, [sizes[label] for label in labels]), labels)


def _spread(node: Node, term: _Term, labels: Sequence[str]) -> Tensor:
    """The term broadcastable to ``labels``: in their order, with a 1 for each that it lacks."""
    order = [label for label in labels if label in term.labels]
    tensor = _arranged(node, term, order)
    dims = iter(tensor.type.shape)
    return _reshape(node, tensor, [next(dims) if label in order else 1 for label in labels])


def _arranged(node: Node, term: _Term, labels: Sequence[str]) -> Tensor:
    return _transpose(node, term.tensor, tuple(term.labels.index(label) for label in labels))


def _transpose(node: Node, tensor: Tensor, perm: tuple[int, ...]) -> Tensor:
    if perm == tuple(range(len(perm))):
        return tensor
    return node.emit("Transpose", [tensor], {"perm": perm})


def _reshape(node: Node, tensor: Tensor, shape: Sequence[int]) -> Tensor:
    if tuple(shape) == tensor.type.shape:
        return tensor
    return node.emit("Reshape", [tensor], {"shape": tuple(shape)})
