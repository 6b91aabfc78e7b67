"""Scan: a loop whose body gets one element of each scan input per iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from popc.frontend.node import Node, RuleResult
from popc.frontend.problems import DataDependent
from popc.frontend.rules.common import default_domain, graph_attribute
from popc.frontend.rules.onnx.loop import LoopForm, import_loop, stack_rows
from popc.frontend.rules.subgraphs import as_tensors
from popc.frontend.values import Value
from popc.ir import Shape, Tensor
from popc_runtime.errors import ModelError

__all__ = ["RULES"]


def _scan(node: Node) -> RuleResult:
    return _scan_8(node) if node.version < 9 else _scan_9(node, node.tensors())


def _scan_9(node: Node, operands: Sequence[Tensor]) -> list[Value]:
    body = graph_attribute(node, "body")
    scan_inputs = node.integer("num_scan_inputs")
    states = list(operands[: len(operands) - scan_inputs])
    sources = list(operands[len(operands) - scan_inputs :])
    outputs = len(body.output) - len(states)
    axes = node.integers("scan_input_axes", (0,) * scan_inputs)
    directions = node.integers("scan_input_directions", (0,) * scan_inputs)
    if "directions" in node.attributes:  # opset 8
        directions = node.integers("directions")
    scanned = [
        (tensor, axis % tensor.type.rank, bool(direction))
        for tensor, axis, direction in zip(sources, axes, directions, strict=True)
    ]
    lengths = {tensor.type.shape[axis] for tensor, axis, _ in scanned}
    if len(lengths) != 1:
        raise ModelError(f"scan inputs have different lengths: {sorted(lengths)}")
    form = LoopForm(
        body=body,
        trip_count=lengths.pop(),
        trip_operand=None,
        condition=None,
        states=list(states),
        scanned=scanned,
        has_header=False,
    )
    results = import_loop(node, form)
    out_axes = node.integers("scan_output_axes", (0,) * outputs)
    out_directions = node.integers("scan_output_directions", (0,) * outputs)
    stacked = [
        _place_scan(node, tensor, axis, is_reversed=bool(direction))
        for tensor, axis, direction in zip(
            as_tensors(results[len(states) :], "Scan"), out_axes, out_directions, strict=True
        )
    ]
    return [*results[: len(states)], *stacked]


def _place_scan(node: Node, tensor: Tensor, axis: int, *, is_reversed: bool) -> Tensor:
    """Put the stacked axis where the node wants it, in the direction that it wants."""
    shape = tensor.type.shape
    if is_reversed:
        tensor = _reverse_first_axis(node, tensor, shape)
    axis %= len(shape)
    if axis == 0:
        return tensor
    perm = (*range(1, axis + 1), 0, *range(axis + 1, len(shape)))
    return node.emit("Transpose", [tensor], {"perm": perm})


def _reverse_first_axis(node: Node, tensor: Tensor, shape: Shape) -> Tensor:
    return node.emit(
        "Slice",
        [tensor],
        {
            "starts": (shape[0] - 1, *(0 for _ in shape[1:])),
            "sizes": shape,
            "steps": (-1, *(1 for _ in shape[1:])),
        },
    )


def _scan_8(node: Node) -> list[Value]:
    """Opset 8: everything has a leading batch dimension, and each sample is scanned on its own."""
    if node.optional_value(0) is not None:
        raise DataDependent("Scan-8: sequence lengths per sample are not supported")
    operands = [node.input(index) for index in range(1, len(node.inputs))]
    batch = operands[0].type.shape[0]
    rows: list[list[Tensor]] = []
    for number in range(batch):
        index = node.constant(np.int64(number))
        sample = [node.emit("Gather", [tensor, index], {"axis": 0}) for tensor in operands]
        rows.append(as_tensors(_scan_9(node, sample), "Scan"))
    return [stack_rows(node, list(column)) for column in zip(*rows, strict=True)]


RULES: Final = default_domain({"Scan": _scan})
