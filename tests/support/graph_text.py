"""Graphs from text: what `format_graph` prints, and in front of it the constants.

    @w: float32[3,2] = [0.5, 1.0, 1.5, -0.5, -1.0, -1.5]
    @bias: float32[2]
    graph main(%x: float32[4,3]) {
      $v: float32[2], weight
      %y: float32[4,2] = MatMul(%x, @w)
      %z: float32[4,2] = Mul(%y, float32(2.0))  # virtual_graph=1
      return z
    }

A constant without values gets random ones, which its name and type decide; a variable begins with
such.  Printed again, a graph gives the same text.
"""

from __future__ import annotations

import itertools
import re
import zlib
from ast import literal_eval
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from popc.ir import (
    Graph,
    Op,
    OpSettings,
    ProductCut,
    Recompute,
    StepPart,
    Tensor,
    TensorType,
    VariableRole,
)
from popc.ir.ordering import OrderedPair
from popc.ops import OPS
from popc.ops.build import infer_types
from popc.ops.main_loops import ACCUMULATION_LOOP, STEP_LOOP
from popc_runtime.format import Array, DType

__all__ = ["format_constants", "parse_graph", "random_values"]

_TYPED: Final = re.compile(r"[%@$](\S+): (\w+\[[\d,]*\])")
_SCALAR: Final = re.compile(r"(\w+)(\[[\d,]*\])?\((.*)\)")
_MAIN_LOOPS: Final = (STEP_LOOP, ACCUMULATION_LOOP)
_ORDERED: Final = re.compile(r"(\w+)\((.*?)\) before (\w+)\((.*?)\)(, tied)?(, if that can be)?")


def random_values(name: str, type_: TensorType) -> Array:
    """Numbers that the name decides: floats of both signs, small whole numbers, truth values."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    if type_.dtype.is_float:
        values = random.uniform(-2, 2, type_.shape)
        return values.astype(np.float32).astype(type_.dtype.storage)
    return random.integers(0, 2, type_.shape).astype(type_.dtype.storage)


def format_constants(graph: Graph) -> str:
    """The lines that `parse_graph` needs in front of a print of ``graph``."""
    found = {
        tensor.name: f"@{tensor.name}: {tensor.type} = {tensor.data.ravel().tolist()}"
        for nested in graph.walk()
        for tensor in nested.constants
        if tensor.data is not None and tensor.type.size != 1
    }
    return "".join(f"{line}\n" for line in found.values())


def parse_graph(text: str) -> Graph:
    """The graph that ``text`` shows.

    Raises:
        AssertionError: a line is not understood, or an op has other results than its operands
            give it.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    reader = _Reader(lines)
    while reader.lines and reader.lines[0].startswith("@"):
        reader.declare(reader.lines.pop(0))
    top = reader.graph(reader.lines.pop(0))
    while reader.lines:
        reader.graph(reader.lines.pop(0))
    for op, branch, name in reader.shared:
        op.subgraphs[branch] = reader.graphs[name]
    return top


@dataclass
class _Reader:
    """Reads lines one after the other."""

    lines: list[str]
    constants: dict[str, tuple[TensorType, Array]] = field(default_factory=dict)
    graphs: dict[str, Graph] = field(default_factory=dict)
    shared: list[tuple[Op, str, str]] = field(default_factory=list)

    def declare(self, line: str) -> None:
        """A constant, with values or without."""
        head, _, values = line.partition(" = ")
        ((name, type_),) = _typed(head)
        if values:
            data = np.array(_literal(values), type_.dtype.storage).reshape(type_.shape)
        else:
            data = random_values(name, type_)
        self.constants[name] = (type_, data)

    def graph(self, header: str) -> Graph:
        """A graph with all that is nested in it; ``header`` is its first line."""
        found = re.fullmatch(r"\s*graph (\S+?)\((.*)\) {", header)
        assert found, f"not the beginning of a graph: {header}"
        graph = self.graphs[found[1]] = Graph(found[1])
        for name, type_ in _typed(found[2]):
            graph.add_input(name, type_)
        while (line := self.lines.pop(0).strip()) != "}":
            if line.startswith("$"):
                _add_variable(graph, line)
            elif line.startswith("return"):
                self._results(graph, line.removeprefix("return").strip())
            elif ordered := _ORDERED.fullmatch(line):
                first, second = (_find(graph, ordered[i], ordered[i + 1]) for i in (1, 3))
                tied, wished = ordered[5] is not None, ordered[6] is not None
                graph.ordering.add(OrderedPair(first, second, tied, wished))
            else:
                self._op(graph, line)
        return graph

    def _op(self, graph: Graph, line: str) -> Op:
        line, _, notes = line.partition("  # ")
        outputs, head = _split_outputs(line)
        op_type, inner, attributes = _split_call(head)
        inputs = [self._operand(graph, part) for part in _split(inner)]
        names, types = zip(*outputs, strict=True) if outputs else ((), ())
        read = _attributes(attributes)
        if op_type in OPS:
            given = [None if operand is None else operand.type for operand in inputs]
            inferred = infer_types(op_type, given, read)
            assert inferred == types, f"{line}: the results are {[*map(str, inferred)]}"
        settings = _settings(notes)
        nested, shared = self._subgraphs()
        main_loops = [inner.name for inner in nested.values() if inner.name in _MAIN_LOOPS]
        if main_loops:  # by which a main loop is known
            settings.origin = main_loops[0]
        op = graph.add_op(
            *(op_type, inputs, types, read),
            output_names=names,
            settings=settings,
            subgraphs=nested,
        )
        self.shared += [(op, branch, name) for branch, name in shared.items()]
        return op

    def _subgraphs(self) -> tuple[dict[str, Graph], dict[str, str]]:
        """The subgraphs whose text comes next, and the names of those that are held elsewhere."""
        nested: dict[str, Graph] = {}
        shared: dict[str, str] = {}
        while self.lines and (found := re.match(r"\s*(\w+) = (graph (\S+).*)", self.lines[0])):
            self.lines.pop(0)
            if found[2].endswith("{"):
                nested[found[1]] = self.graph(found[2])
            else:
                nested[found[1]], shared[found[1]] = Graph(found[3]), found[3]
        return nested, shared

    def _results(self, graph: Graph, text: str) -> None:
        for item in _split(text):
            name, _, operand = item.partition(" = ")
            tensor = self._operand(graph, operand) if operand else self._named(graph, name)
            assert tensor is not None
            graph.add_output(name, tensor)

    def _operand(self, graph: Graph, text: str) -> Tensor | None:
        if text == "-":
            return None
        if text[0] in "%@$":
            return self._named(graph, text[1:])
        found = _SCALAR.fullmatch(text)
        assert found, f"not an operand: {text}"
        type_ = _type(f"{found[1]}{found[2] or '[]'}")
        data = np.array(_literal(found[3]), type_.dtype.storage).reshape(type_.shape)
        return graph.add_constant("scalar", type_, data)

    def _named(self, graph: Graph, name: str) -> Tensor:
        if name not in graph.tensors:
            assert name in self.constants, f"{name} is not declared"
            graph.add_constant(name, *self.constants[name])
        return graph.tensors[name]


def _add_variable(graph: Graph, line: str) -> None:
    head, _, role = line.rpartition(", ")
    ((name, type_),) = _typed(head)
    graph.add_variable(name, type_, VariableRole(role), random_values(name, type_))


def _typed(text: str) -> list[tuple[str, TensorType]]:
    return [(name, _type(shown)) for name, shown in _TYPED.findall(text)]


def _type(text: str) -> TensorType:
    dtype, _, shape = text.rstrip("]").partition("[")
    return TensorType(DType(dtype), tuple(int(part) for part in shape.split(",") if part))


def _literal(text: str) -> Any:
    # Numbers that Python prints without being able to read them: 1e999 is infinite.
    return literal_eval(re.sub(r"(?<![\w'])inf(?![\w'])", "1e999", text))


def _split_outputs(line: str) -> tuple[list[tuple[str, TensorType]], str]:
    if not line.startswith("%"):
        return [], line
    outputs, _, head = line.partition("] = ")
    return _typed(f"{outputs}]"), head


def _split_call(text: str) -> tuple[str, str, str]:
    """Op type, operands and attributes."""
    op_type, _, rest = text.partition("(")
    end = next(_top_level(f"({rest}", ")"))
    return op_type, rest[: end - 1], rest[end:]


def _split(text: str) -> list[str]:
    """Items between commas."""
    cuts = [-1, *_top_level(text, ","), len(text)]
    return [text[a + 1 : b].strip() for a, b in itertools.pairwise(cuts)] if text else []


def _top_level(text: str, wanted: str) -> Iterator[int]:
    """Where ``wanted`` is in no brackets (once they are closed) and in no quotes."""
    depth, quote = 0, ""
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        else:
            depth += (character in "([{") - (character in ")]}")
            if not depth and character == wanted:
                yield index


def _attributes(text: str) -> dict[str, Any]:
    cuts = [*_top_level(text, " "), len(text)]
    found: dict[str, Any] = {}
    for start, end in itertools.pairwise(cuts):
        key, _, value = text[start + 1 : end].partition("=")
        read = _literal(value)
        found[key] = tuple(read) if isinstance(read, list) else read
    return found


def _find(graph: Graph, op_type: str, named: str) -> Op:
    """An op by its results, or by its operands if it has none."""
    (op,) = [
        item
        for item in graph.ops
        if item.op_type == op_type
        and [t.name for t in item.outputs or item.present_inputs]
        == [name.lstrip("%@$") for name in _split(named)]
    ]
    return op


def _settings(text: str) -> OpSettings:
    read = {
        key: value for key, _, value in (part.partition("=") for part in text.split(" ")) if key
    }
    return OpSettings(**{key: _SETTINGS[key](value) for key, value in read.items()})


def _numbered(text: str) -> list[tuple[str, str]]:
    return [
        (name, number) for name, _, number in (part.rpartition(":") for part in text.split(","))
    ]


def _cut(text: str) -> ProductCut:
    mode, factor, *rest = text.split(":")
    return ProductCut(mode, int(factor), bool(rest))


_SETTINGS: Final[Mapping[str, Any]] = {
    "schedule_priority": float,
    "exclude_patterns": lambda text: (*text.split(","),),
    "virtual_graph": int,
    "pipeline_stage": int,
    "execution_phase": int,
    "batch_phase": int,
    "tile_set": str,
    "part": lambda text: StepPart[text.upper()],
    "bins": lambda text: tuple(
        (name.replace("+", " "), int(number)) for name, number in _numbered(text)
    ),
    "recompute": Recompute,
    "cut": _cut,
    "inplace": lambda text: tuple((int(index), float(rank)) for index, rank in _numbered(text)),
    "location": lambda text: text.replace("+", " "),
    "available_memory": float,
    "call": str,
    "stochastic_rounding": lambda text: text == "True",
    "outline": lambda text: (*text.split(","),),
}
