"""Families of random graphs, with fixed seeds, as scheduling problems and as ONNX models."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

import onnx
from onnx import helper

from popc.schedule.problem import OrderingProblem

__all__ = ["FAMILIES", "UNIT", "make_model", "make_problem"]

UNIT: Final = 64  # bytes that memory is allocated in
_OF_ONE: Final = ("Tanh", "Neg", "Relu", "Sigmoid", "Exp", "Softmax")
_OF_TWO: Final = ("Add", "Mul", "Sub", "Max")

_Parents = list[list[int]]  # of each node, those whose results it reads


def chain(count: int, draw: random.Random) -> _Parents:
    """Each node reads the one before."""
    del draw
    return [[node - 1] if node else [] for node in range(count)]


def transformer(count: int, draw: random.Random) -> _Parents:
    """Blocks of three branches that meet, beside a residual."""
    del draw
    parents: _Parents = [[]]
    while len(parents) < count:
        start = len(parents) - 1
        block = [[start], [start + 1], [start + 1], [start + 1], [start + 2], [start + 3]]
        block += [[start + 5, start + 6], [start + 7], [start + 8, start + 4], [start + 9]]
        parents += [*block, [start, start + 10]]
    return parents[:count]


def layered(count: int, draw: random.Random) -> _Parents:
    """Layers of about the square root of the nodes; each reads one to three of the layer before."""
    width = max(round(count**0.5), 1)
    parents: _Parents = []
    for node in range(count):
        first = (node // width - 1) * width
        before = range(max(first, 0), first + width)
        parents.append(draw.sample(before, draw.randint(1, min(3, width))) if before else [])
    return parents


def series_parallel(count: int, draw: random.Random) -> _Parents:
    """Graphs one after another and side by side, joined by a node that reads both ends."""
    parents: _Parents = [[]]

    def build(start: int, size: int) -> int:
        """Add ``size`` nodes behind ``start``; the last of them."""
        if size < 3:
            for _ in range(size):
                parents.append([start])
                start = len(parents) - 1
            return start
        if draw.random() < 0.5:
            part = draw.randint(1, size - 1)
            return build(build(start, part), size - part)
        part = draw.randint(1, size - 2)
        ends = [build(start, part), build(start, size - 1 - part)]
        parents.append(ends)
        return len(parents) - 1

    build(0, count - 1)
    return parents


def scattered(count: int, draw: random.Random) -> _Parents:
    """Each node reads one to three of the hundred before."""
    parents: _Parents = []
    for node in range(count):
        before = range(max(node - 100, 0), node)
        parents.append(draw.sample(before, min(draw.randint(1, 3), len(before))))
    return parents


def tree(count: int, draw: random.Random) -> _Parents:
    """Each node reads none to three results that nobody else reads; in the end one is left."""
    parents: _Parents = []
    unread: list[int] = []
    for node in range(count):
        most = draw.choice((0, 0, 1, 2, 2, 3)) if len(unread) < count - node else 2
        parents.append([])
        for _ in range(min(most, len(unread))):
            parents[-1].append(unread.pop(draw.randrange(len(unread))))
        unread.append(node)
    return parents


def fan_out(count: int, draw: random.Random) -> _Parents:
    """A node that three to twelve short chains read, a node that reads all of them, and again."""
    parents: _Parents = [[]]
    while len(parents) < count:
        start, ends = len(parents) - 1, list[int]()
        for _ in range(draw.randint(3, 12)):
            parents.append([start])
            for _ in range(draw.randint(0, 3)):
                parents.append([len(parents) - 1])
            ends.append(len(parents) - 1)
        parents.append(ends)
    return parents[:count]


def butterfly(count: int, draw: random.Random) -> _Parents:
    """Rows of sixteen nodes, as in a Fourier transform; each reads two of the row before."""
    del draw
    rows = [
        [] if node < 16 else [node - 16, (node // 16 - 1) * 16 + (node % 16 ^ 1 << node // 16 % 4)]
        for node in range(count)
    ]
    return [[parent for parent in row if parent < count] for row in rows]


def unrolled(count: int, draw: random.Random) -> _Parents:
    """A recurrent cell step by step, then its gradients, which read all states from the last on."""
    del draw
    steps = max(count // 6, 1)
    parents: _Parents = [[]]
    inputs, states = list[int](), [0]
    for _ in range(steps):
        inputs.append(len(parents))
        parents += [[], [states[-1], len(parents)]]
        states.append(len(parents))
        parents.append([len(parents) - 1])
    gradient, total = list[int](), list[int]()
    for step in reversed(range(steps)):
        here = len(parents)
        parents += [[states[step + 1], *gradient], [here, states[step], inputs[step]]]
        parents += [[here + 1, *total], [here, states[step]]]
        total, gradient = [here + 2], [here + 3]
    return parents[:count]


def grid(count: int, draw: random.Random) -> _Parents:
    """Each node of a square reads those beside it to the left and above."""
    del draw
    width = max(round(count**0.5), 1)
    return [
        [*([node - 1] if node % width else []), *([node - width] if node >= width else [])]
        for node in range(count)
    ]


FAMILIES: Final[Mapping[str, Callable[[int, random.Random], _Parents]]] = {
    "chain": chain,
    "transformer": transformer,
    "layered": layered,
    "series_parallel": series_parallel,
    "scattered": scattered,
    "tree": tree,
    "fan_out": fan_out,
    "butterfly": butterfly,
    "unrolled": unrolled,
    "grid": grid,
}
_MIXED: Final = ("tree", "unrolled", "grid")  # sizes differ a million times, not 64 times


def make_problem(family: str, count: int, seed: int) -> OrderingProblem:
    """A problem of about ``count`` nodes; each makes a buffer of 1 to 64 units, or to a million."""
    draw = random.Random(f"{family} {seed}")
    parents = FAMILIES[family](count, draw)
    successors: list[list[int]] = [[] for _ in parents]
    for node, before in enumerate(parents):
        for other in before:
            successors[other].append(node)
    weights = [UNIT * draw.randint(1, 64) for _ in parents]
    if family in _MIXED:
        weights = [UNIT * int(10 ** draw.uniform(0, 6)) for _ in parents]
    count = len(parents)
    return OrderingProblem(
        members=[(node,) for node in range(count)],
        successors=successors,
        waiting=list(map(len, parents)),
        ranks=[0] * count,
        ties=[],
        weights=weights,
        frees=weights,
        freed_with=list(range(count)),
        stays=[not others for others in successors],
        reads=list(map(tuple, parents)),
        makes=[(node,) for node in range(count)],
        rise=list(weights),
        takes=[()] * count,
        initial=(),
        floor=0,
    )


def make_model(family: str, count: int, seed: int) -> bytes:
    """A model of ``count`` nodes on eight numbers each; what nobody reads is an output."""
    parents = FAMILIES[family](count, random.Random(f"{family} {seed}"))
    read = {parent for before in parents for parent in before}
    nodes: list[onnx.NodeProto] = []
    count = len(parents)
    for node, before in enumerate(parents):
        operands = [f"t{parent}" for parent in before] or ["x"]
        op_type = "Sum"
        if len(operands) < 3:
            types = _OF_ONE if len(operands) == 1 else _OF_TWO
            op_type = types[node % len(types)]
        nodes.append(helper.make_node(op_type, operands, [f"t{node}"]))
    graph = helper.make_graph(
        nodes,
        family,
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 8))],
        [onnx.ValueInfoProto(name=f"t{node}") for node in range(count) if node not in read],
    )
    opsets = [helper.make_opsetid("", 17)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return model
