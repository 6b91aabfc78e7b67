"""The gradients that automatic loss scaling looks at."""

from __future__ import annotations

from typing import Any

import pytest

from popc.ir import Graph, OpSettings, StepPart, TensorType
from popc.ops.build import build
from popc.optimizers import add_loss_scale_update, loss_scale, parse_optimizer
from popc_runtime.errors import OptionError
from popc_runtime.format import DType


def _watched(*ops: tuple[str, StepPart], **settings: Any) -> list[str]:
    """The gradients that are counted in a graph of such ops, each of which makes one."""
    graph = Graph("gradients")
    left, right = (graph.add_input(name, TensorType(DType.FLOAT16, (2, 2))) for name in "ab")
    for op_type, part in ops:
        names = [f"Gradient___{op_type}.{part.name}"]
        settings_of_op = OpSettings(part=part)
        build(graph, op_type, [left, right], output_names=names, settings=settings_of_op)
    spec = parse_optimizer(
        {"type": "sgd", "loss_scaling": [8.0, False], "automatic_loss_scaling": settings}
    )
    loss_scale(graph, spec)
    add_loss_scale_update(graph, spec, accumulation_factor=1)
    return [op.operand(0).name for op in graph.ops if op.op_type == "Histogram"]


_PRODUCTS = (("MatMul", StepPart.FORWARD), ("MatMul", StepPart.BACKWARD))
_OTHER = ("Mul", StepPart.BACKWARD)


def test_those_of_products_alone() -> None:
    products = {"tracked_gradients": "products"}
    assert _watched(*_PRODUCTS, _OTHER, **products) == ["Gradient___MatMul.BACKWARD"]
    assert len(_watched(*_PRODUCTS, _OTHER)) == 3


def test_there_must_be_one() -> None:
    with pytest.raises(OptionError, match="no gradient of a product"):
        _watched(_OTHER, tracked_gradients="products")
