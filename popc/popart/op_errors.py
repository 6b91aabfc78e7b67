"""PopART's words about nodes whose operands do not fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import onnx

from popc.frontend import InferredType, find_attribute
from popc.popart.graph_model import GraphModel

__all__ = ["op_problem", "op_text"]

_Types: TypeAlias = Sequence[InferredType]
_ELEMENTWISE: Final = (
    *("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"),
)


def op_text(node: onnx.NodeProto, opset: int, inputs: Sequence[str] = ()) -> str:
    """A node as PopART prints it: its name or operator, its inputs and its outputs."""
    named = node.name or _operator(node, opset)
    read = ", ".join(inputs or node.input)
    return f"Op({named}, inputs=[{read}], outputs=[{', '.join(node.output)}])"


def _operator(node: onnx.NodeProto, opset: int) -> str:
    """``ai.onnx.Add:7``: domain, type, and the version of the operator."""
    if node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type):
        return f"{node.domain}.{node.op_type}:1"
    version = onnx.defs.get_schema(node.op_type, opset).since_version
    return f"ai.onnx.{node.op_type}:{version}"


def op_problem(model: onnx.ModelProto, folder: str) -> str:
    """The fault of the first node that has one; "" if none has."""
    graph = GraphModel(None, model, folder)
    for node in model.graph.node:
        check = _CHECKS.get(node.op_type)
        types = [graph.type_of(name) for name in node.input]
        known = [type_ for type_ in types if type_ is not None]
        if check is not None and len(known) == len(types):
            text = next(check(node, known, graph.opsets.get("", 1)), "")
            if text:
                return text
    return ""


def _broadcasting(node: onnx.NodeProto, types: _Types, opset: int) -> Iterator[str]:
    first, second = (type_.shape for type_ in types[:2])
    pairs = zip(reversed(first), reversed(second), strict=False)
    if any(one != other and 1 not in (one, other) for one, other in pairs):
        named = f"{node.name} ({_operator(node, opset)})" if node.name else _operator(node, opset)
        yield (
            f"np broadcasting failed on 'Op {named}', frames {list(first)} and {list(second)} are "
            f"not aligned"
        )


def _product(node: onnx.NodeProto, types: _Types, opset: int) -> Iterator[str]:
    left, right = (type_.shape for type_ in types[:2])
    yield from _cut(node, left, right)
    text = op_text(node, opset)
    for shape, side in ((left, "lhs"), (right, "rhs")):
        if not shape:
            yield f"{text} doesn't support scalar tensor input as the {side} input"
    if left and right and left[-1] != right[max(len(right) - 2, 0)]:
        yield (
            f"{text} contracting dimensions unequal: lhs '{node.input[0]}' {_spaced(left)}, rhs "
            f"'{node.input[1]}' {_spaced(right)}"
        )


def _cut(node: onnx.NodeProto, left: Sequence[int], right: Sequence[int]) -> Iterator[str]:
    """A product is cut into parts of equal size."""
    said = {item.name: item for item in node.attribute if item.name.startswith("__serialize_")}
    mode, factor = (said.get(f"__serialize_matmul_{name}") for name in ("mode", "factor"))
    if mode is None or factor is None or len(left) < 2 or len(right) < 2:
        return
    sizes = {"input_channels": left[-2], "reducing_dim": left[-1], "output_channels": right[-1]}
    what = mode.s.decode()
    if sizes.get(what, 0) % max(factor.i, 1):
        spoken = what.removesuffix("_dim").replace("_", " ")
        yield (
            f"Invalid serialisation factor {factor.i} for {spoken} dim {sizes[what]}. {what} dim "
            f"should be a multiple of the serialisation factor "
        )


def _transposition(node: onnx.NodeProto, types: _Types, opset: int) -> Iterator[str]:
    del opset
    shape = types[0].shape
    said = find_attribute(node, "perm")
    perm = list(said.ints) if said else []
    if perm and len(perm) != len(shape):
        yield (
            f"Rank of permutation tensor {_spaced(perm)}, rank {len(perm)} must be equal to rank "
            f"of input tensor, shape {_spaced(shape)}, rank {len(shape)}."
        )


def _reversal(node: onnx.NodeProto, types: _Types, opset: int) -> Iterator[str]:
    del opset
    rank = len(types[0].shape)
    said = find_attribute(node, "dimensions")
    for dim in said.ints if said else ():
        if dim >= rank:
            yield f"Reverse has invalid dimension '{dim}' for input tensor of rank {rank}"


def _spaced(sizes: Sequence[int]) -> str:
    return f"[{' '.join(map(str, sizes))}]"


_CHECKS: Final[dict[str, Callable[[onnx.NodeProto, _Types, int], Iterator[str]]]] = {
    **dict.fromkeys(_ELEMENTWISE, _broadcasting),
    "MatMul": _product,
    "Reverse": _reversal,
    "Transpose": _transposition,
}
