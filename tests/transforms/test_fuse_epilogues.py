"""The pass that lets products finish their results, where something is required of the order."""

from __future__ import annotations

import numpy as np
import pytest

from popc.ir import Op, OrderedPair, Tensor, TensorType
from popc.transforms.base import run_to_fixed_point
from popc.transforms.dead_code import DeadCode
from popc.transforms.fuse_epilogues import FuseEpilogues
from popc_runtime.format import DType
from tests.transforms.building import Builder


def _product(b: Builder) -> Tensor:
    return b.emit("MatMul", [b.x, b.constant(np.eye(4))])


def _op(tensor: Tensor) -> Op:
    assert tensor.producer is not None
    return tensor.producer


@pytest.fixture
def builder() -> Builder:
    """An input [4, 4]."""
    return Builder(TensorType(DType.FLOAT32, (4, 4)))


def test_a_product_that_runs_before_an_addend_stays_before_it(builder: Builder) -> None:
    """As one op they would wait for each other."""
    b = builder
    product, other = _product(b), b.emit("Neg", [b.x])
    b.graph.ordering.add(OrderedPair(_op(product), _op(other)))
    b.graph.add_output("y", b.emit("Relu", [b.emit("Add", [product, other])]))
    run_to_fixed_point([FuseEpilogues(), DeadCode()], b.graph, check=True)
    types = sorted(op.op_type for op in b.graph.topological())
    assert types == ["Add", "MatMul", "Neg", "Relu"]


def test_an_activation_that_waits_stays_behind(builder: Builder) -> None:
    """What it waits for does so for the product."""
    b = builder
    product, other = _product(b), b.emit("Neg", [b.x])
    y = b.emit("Relu", [product])
    b.graph.ordering.add(OrderedPair(_op(product), _op(other)))
    b.graph.ordering.add(OrderedPair(_op(other), _op(y)))
    for name, tensor in (("other", other), ("y", y)):
        b.graph.add_output(name, tensor)
    run_to_fixed_point([FuseEpilogues(), DeadCode()], b.graph, check=True)
    assert sorted(op.op_type for op in b.graph.topological()) == ["MatMul", "Neg", "Relu"]


def test_the_order_of_what_follows_is_that_of_the_product(builder: Builder) -> None:
    b = builder
    first, last, product = b.emit("Neg", [b.x]), b.emit("Exp", [b.x]), _product(b)
    y = b.emit("Add", [product, b.constant(np.ones(4))])
    b.graph.ordering.add(OrderedPair(_op(first), _op(y)))
    b.graph.ordering.add(OrderedPair(_op(y), _op(last)))
    for name, tensor in (("first", first), ("last", last), ("y", y)):
        b.graph.add_output(name, tensor)
    run_to_fixed_point([FuseEpilogues(), DeadCode()], b.graph, check=True)
    pairs = {(pair.first, pair.second) for pair in b.graph.ordering}
    assert pairs == {(_op(first), _op(product)), (_op(product), _op(last))}
