"""Products of bytes in a form that other runtimes compute exactly on every processor.

x86-64 processors without VNNI add products of unsigned and signed bytes in pairs, and a pair
saturates at 16 bits.  onnxruntime lets them.  It does not where both operands are unsigned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Final, NamedTuple

from popc.frontend import messages as onnx
from popc.frontend.names import default_domain_name
from popc.frontend.walk import all_nodes, nested_graphs

__all__ = ["with_unsigned_weights"]


class _Product(NamedTuple):
    """Places of a product's operands: the activations and their zero point, and the weights.

    Activations that the node quantises by itself, to unsigned bytes, have no place.
    """

    activations: tuple[int, int] | None
    weights: tuple[tuple[int, int], ...]


_PLAIN: Final = _Product((0, 2), ((1, 3),))
_SCALED: Final = _Product((0, 2), ((3, 5),))
_PRODUCTS: Final = {
    ("", "MatMulInteger"): _PLAIN,
    ("", "QLinearConv"): _SCALED,
    ("", "QLinearMatMul"): _SCALED,
    ("com.microsoft", "DynamicQuantizeLSTM"): _Product(None, ((1, 9), (2, 11))),
    ("com.microsoft", "DynamicQuantizeMatMul"): _Product(None, ((1, 3),)),
    ("com.microsoft", "MatMulIntegerToFloat"): _Product((0, 4), ((1, 5),)),
    ("com.microsoft", "QAttention"): _Product((0, 6), ((1, 7),)),
    ("com.microsoft", "QGemm"): _SCALED,
    ("com.microsoft", "QLinearConv"): _SCALED,
}


def with_unsigned_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model``, or a copy in which what unsigned bytes are multiplied by is unsigned too.

    Weights and their zero points are moved by 128, which changes no result.
    """
    if not any(_product(node) for node in all_nodes(model.graph.node)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    _rewrite(copy.graph, {}, count())
    return copy


def _product(node: onnx.NodeProto) -> _Product | None:
    return _PRODUCTS.get((default_domain_name(node.domain), node.op_type))


def _rewrite(graph: onnx.GraphProto, outside: Mapping[str, int], numbers: Iterator[int]) -> None:
    """Edit a graph and those nested in it.

    ``outside`` are element types that are known there, ``numbers`` tell new names apart.
    """
    types = {**outside, **dict(_element_types(graph))}
    moved: dict[str, str] = {}
    nodes = list[onnx.NodeProto]()
    for node in graph.node:
        for nested in nested_graphs(node):
            _rewrite(nested, types, numbers)
        for weights, zero in _signed_weights(node, types):
            while len(node.input) <= zero:
                node.input.append("")
            for index in (weights, zero):
                name = node.input[index]
                if name not in moved:
                    moved[name] = f"{name}/unsigned{next(numbers)}"
                    nodes += _moved(name, moved[name])
                node.input[index] = moved[name]
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _element_types(graph: onnx.GraphProto) -> Iterator[tuple[str, int]]:
    """The element types of tensors that are declared, or constant."""
    for info in (*graph.input, *graph.value_info):
        yield info.name, info.type.tensor_type.elem_type
    for tensor in graph.initializer:
        yield tensor.name, tensor.data_type
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                yield node.output[0], attribute.t.data_type


def _signed_weights(node: onnx.NodeProto, types: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Places of signed weights, and their zero points, that unsigned bytes are multiplied by."""
    product = _product(node)
    if product is None:
        return
    names = dict(enumerate(node.input))

    def type_of(*places: int) -> int:
        """The first known type; a zero point has that of its tensor."""
        known = (types.get(names.get(place, ""), 0) for place in places)
        return next((found for found in known if found), 0)

    if product.activations is not None and type_of(*product.activations) != onnx.TensorProto.UINT8:
        return
    for places in product.weights:
        if type_of(*places) == onnx.TensorProto.INT8:
            yield places


def _moved(name: str, target: str) -> Iterator[onnx.NodeProto]:
    """Nodes that make unsigned bytes of signed ones; of an absent zero point, that of 0."""
    from onnx import TensorProto, helper

    amount = helper.make_tensor("", TensorProto.INT32, (), [128])
    wide, sum_ = f"{target}/wide", f"{target}/sum"
    if not name:
        yield helper.make_node("Constant", [], [sum_], value=amount)
    else:
        yield helper.make_node("Cast", [name], [wide], to=TensorProto.INT32)
        yield helper.make_node("Constant", [], [f"{target}/amount"], value=amount)
        yield helper.make_node("Add", [wide, f"{target}/amount"], [sum_])
    yield helper.make_node("Cast", [sum_], [target], to=TensorProto.UINT8)
