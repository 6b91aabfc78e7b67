"""The graph: tensors, ops and the edits that keep their links consistent.

Links are changed only through `Graph`, for every edit touches several: producer and users of a
tensor, operands of an op, names of a graph.  So passes are short, and the verifier stays quiet.

Values flow only along operands: a subgraph does not see its parent's tensors.  What the body of
an ``If`` or ``Loop`` needs from outside is an explicit operand (a capture) of the op and an input
of the body.  Several ops may hold the same graph: it is there once, and does for each of them the
same with other operands.  Constants are not captured: each graph holds its own, of the same data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice, repeat, takewhile
from typing import ClassVar

from popc.ir.ordering import Ordering, find_reached, order_by_links
from popc.ir.settings import OpSettings
from popc.ir.types import AttributeMap, TensorKind, TensorType, require_possible
from popc_runtime.format import Array, VariableRole
from popc_runtime.ground.frozen import distinct, field

__all__ = ["Graph", "Op", "Tensor"]

_ACTIVATION, _INPUT, _CONSTANT, _VARIABLE = TensorKind  # looking them up takes long


@distinct
class Tensor:
    """A value.

    ``data`` is the value of a constant, ``initial`` that of a variable before the first run
    (``None``: zeros), per `DType.storage`.  ``role`` is set for variables.  ``rows`` is empty for a
    variable that all replicas share; else it says which of several values each of them holds.  If
    these are parts of one flat value, padded at the end, ``whole`` is the shape of that, and
    ``initial`` is the whole.  A variable may be kept ``off_chip``, in streaming memory.
    """

    name: str
    type: TensorType
    kind: TensorKind
    data: Array | None = None
    initial: Array | None = None
    role: VariableRole | None = None
    rows: tuple[int, ...] = ()
    whole: tuple[int, ...] = ()
    producer: Op | None = None
    off_chip: bool = False
    # op -> number of operand positions that read this tensor, in order of first use
    uses: dict[Op, int] = field(default_factory=dict)

    @property
    def is_constant(self) -> bool:
        """True if the value is known at compile time."""
        return self.kind is _CONSTANT

    @property
    def users(self) -> tuple[Op, ...]:
        """Ops that read this tensor, each once, in order of first use."""
        return tuple(self.uses)

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@distinct
class Op:
    """One operation.  ``inputs`` and ``outputs`` are changed only through `Graph`."""

    op_type: str
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    attributes: AttributeMap
    settings: OpSettings
    subgraphs: dict[str, Graph]

    @property
    def output(self) -> Tensor:
        """The first output."""
        return self.outputs[0]

    def operand(self, index: int) -> Tensor:
        """A required input; asking for an absent one is a bug."""
        tensor = self.inputs[index]
        assert tensor is not None, f"{self.op_type} has no operand {index}"
        return tensor

    def optional(self, index: int) -> Tensor | None:
        """An input that may be absent or beyond the end."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def present_inputs(self) -> list[Tensor]:
        """The inputs that are not absent, in order."""
        if all(self.inputs):  # tensors are true
            return self.inputs.copy()  # type: ignore[return-value]
        return [tensor for tensor in self.inputs if tensor is not None]

    def __repr__(self) -> str:
        return f"{self.op_type}({', '.join(t.name for t in self.outputs)})"


class Graph:
    """A set of ops over tensors with inputs and outputs.

    ``output_names`` are the public names of the outputs; they stay when a pass replaces the tensor
    behind an output.  ``ordering`` says which ops must run before which others.
    """

    # Renewed when ops with subgraphs come or go, in any graph and thread: no number comes twice.
    _nestings: ClassVar[int] = 0
    _numbers: ClassVar[Iterator[int]] = count(1)

    def __init__(self, name: str) -> None:
        self.name = name
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.output_names: list[str] = []
        self.ordering: Ordering[Op] = Ordering()
        self._ops: dict[Op, None] = {}
        self._op_types: set[str] = set()  # also of ops that have been removed
        self._holders: dict[Op, None] = {}  # the ops with subgraphs, in the same order
        self._tensors: dict[str, Tensor] = {}
        self._name_counts: dict[str, int] = {}
        self._sorted: list[Op] | None = None  # topologically, with some that have been removed
        self._walked: tuple[int, tuple[Graph, ...]] = (-1, ())  # and at which number

    # -- reading ---------------------------------------------------------------------------------

    @property
    def ops(self) -> tuple[Op, ...]:
        """All ops in order of insertion, which need not be topological."""
        return tuple(self._ops)

    def _nested(self) -> list[Graph]:
        return [graph for op in self._holders for graph in op.subgraphs.values()]

    @property
    def holders(self) -> tuple[Op, ...]:
        """The ops that hold graphs, in order of insertion."""
        return tuple(self._holders)

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """All tensors by name."""
        return self._tensors

    @property
    def constants(self) -> list[Tensor]:
        """The constants in order of insertion."""
        return [tensor for tensor in self._tensors.values() if tensor.kind is _CONSTANT]

    @property
    def variables(self) -> list[Tensor]:
        """The variables in order of insertion; only the top graph has any."""
        return [tensor for tensor in self._tensors.values() if tensor.kind is _VARIABLE]

    def may_have(self, op_types: Collection[str]) -> bool:
        """False if there has never been an op of one of these types, so that none is there."""
        return not self._op_types.isdisjoint(op_types)

    def newest(self, count: int) -> list[Op]:
        """The ``count`` ops inserted last, the last one first."""
        return list(islice(reversed(self._ops), count))

    def newest_since(self, op: Op) -> list[Op]:
        """The ops inserted after ``op``, the last one first."""
        return list(takewhile(lambda other: other is not op, reversed(self._ops)))

    def __len__(self) -> int:
        return len(self._ops)

    def __contains__(self, op: Op) -> bool:
        return op in self._ops

    def topological(self) -> list[Op]:
        """All ops, producers before users; among ready ops, in order of insertion.

        Raises:
            ValueError: the graph has a cycle.
        """
        if self._sorted is None:
            self._sorted = self.sort()
        if len(self._sorted) > len(self._ops):
            self._sorted = [op for op in self._sorted if op in self._ops]
        return self._sorted.copy()

    def sort(self) -> list[Op]:
        """The same order as `topological`, found again from the links; so are the errors."""
        order = order_by_links(self._ops)
        if len(order) != len(self._ops):
            raise ValueError(f"graph {self.name!r} has a cycle")
        return order

    def walk(self) -> Iterator[Graph]:
        """This graph and every graph nested in its ops, each once, after all that hold it."""
        if self._walked[0] != Graph._nestings:
            self._walked = Graph._nestings, find_reached(self, Graph._nested)
        return iter(self._walked[1])

    # -- adding ----------------------------------------------------------------------------------

    def fresh_name(self, base: str) -> str:
        """``base`` if it is free, else ``base`` with the lowest free number appended."""
        if base and base not in self._tensors:
            return base
        count = self._name_counts.get(base, 0)
        while (name := f"{base}_{count + 1}") in self._tensors:
            count += 1
        self._name_counts[base] = count + 1
        return name

    def _add_tensor(self, tensor: Tensor) -> Tensor:
        assert tensor.name not in self._tensors, f"tensor {tensor.name!r} exists"
        self._tensors[tensor.name] = tensor
        return tensor

    def add_input(self, name: str, type_: TensorType) -> Tensor:
        """Append a graph input."""
        self.inputs.append(Tensor(self.fresh_name(name), type_, _INPUT))
        return self._add_tensor(self.inputs[-1])

    def add_output(self, name: str, tensor: Tensor) -> None:
        """Append a graph output under its public name."""
        self.outputs.append(tensor)
        self.output_names.append(name)

    def add_constant(self, name: str, type_: TensorType, data: Array) -> Tensor:
        """Add a constant; ``data`` must have the storage dtype and the shape of ``type_``."""
        assert data.shape == type_.shape, (name, type_, data.shape)
        assert data.dtype == type_.dtype.storage, (name, type_, data.dtype)
        return self._add_tensor(Tensor(self.fresh_name(name), type_, TensorKind.CONSTANT, data))

    def add_variable(
        self,
        name: str,
        type_: TensorType,
        role: VariableRole,
        initial: Array | None = None,
        rows: tuple[int, ...] = (),
    ) -> Tensor:
        """Add a variable that starts as ``initial`` (stored as for constants), or as zeros.

        Only ``CopyVarUpdate`` writes to variables, so every other op that reads one reads the
        value that it had when the run, or the iteration of the main loop, began.
        """
        assert initial is None or initial.shape == type_.shape, (name, type_)
        assert initial is None or initial.dtype == type_.dtype.storage, (name, type_)
        name = self.fresh_name(name)
        return self._add_tensor(Tensor(name, type_, _VARIABLE, None, initial, role, rows))

    def add_op(
        self,
        op_type: str,
        inputs: Sequence[Tensor | None],
        output_types: Iterable[TensorType],
        attributes: AttributeMap | None = None,
        *,
        output_names: Sequence[str] = (),
        settings: OpSettings | None = None,
        subgraphs: dict[str, Graph] | None = None,
    ) -> Op:
        """Add an op and its output tensors.  Names default to the op type, made unique.

        Output types are the caller's: `popc.ops.build` infers them.  Too large ones are refused.
        """
        output_types = tuple(output_types)
        require_possible(op_type, [None if t is None else t.type for t in inputs], output_types)
        op = Op(op_type, [], [], attributes or {}, settings or OpSettings(), subgraphs or {})
        for base, type_ in zip(chain(output_names, repeat(op_type)), output_types, strict=False):
            name = self.fresh_name(base)
            tensor = self._tensors[name] = Tensor(name, type_, _ACTIVATION, producer=op)
            op.outputs.append(tensor)
        self._ops[op] = None
        self._op_types.add(op_type)
        if op.subgraphs:
            self._holders[op] = None
            Graph._nestings = next(Graph._numbers)
        self._sorted = None
        op.inputs.extend(inputs)
        for operand in op.present_inputs:
            operand.uses[op] = operand.uses.get(op, 0) + 1
        return op

    # -- editing ---------------------------------------------------------------------------------

    def append_input(self, op: Op, tensor: Tensor | None) -> None:
        """Give ``op`` one more operand; if it is a capture, the subgraphs need an input for it."""
        self.insert_input(op, len(op.inputs), tensor)

    def insert_input(self, op: Op, index: int, tensor: Tensor | None) -> None:
        """Give ``op`` one more operand, at position ``index``."""
        op.inputs.insert(index, tensor)
        self._read(op, tensor)

    def insert_output(self, op: Op, index: int, name: str, type_: TensorType) -> Tensor:
        """Give ``op`` one more output, at position ``index``."""
        tensor = self._add_tensor(Tensor(self.fresh_name(name), type_, _ACTIVATION, producer=op))
        op.outputs.insert(index, tensor)
        return tensor

    def set_input(self, op: Op, index: int, tensor: Tensor | None) -> None:
        """Replace one operand."""
        _drop_use(op.inputs[index], op)
        op.inputs[index] = tensor
        self._read(op, tensor)

    def _read(self, op: Op, tensor: Tensor | None) -> None:
        """Note that ``op`` has come to read ``tensor``."""
        assert op in self._ops, f"{op!r} is not in graph {self.name!r}"
        self._sorted = None
        if tensor is not None:
            tensor.uses[op] = tensor.uses.get(op, 0) + 1

    def replace_uses(self, old: Tensor, new: Tensor) -> None:
        """Make every user of ``old``, and every graph output, read ``new`` instead.

        What is read keeps type and shape: whoever reads it was built for those.
        """
        is_read = old.type != new.type and (old.uses or self.is_output(old))
        assert not is_read, f"{old!r} is read, but {new!r} is to take its place"
        for op in old.users:
            for index, tensor in enumerate(op.inputs):
                if tensor is old:
                    self.set_input(op, index, new)
        self.outputs = [new if tensor is old else tensor for tensor in self.outputs]

    def remove_op(self, op: Op) -> None:
        """Remove an op whose outputs nobody reads, and its output tensors."""
        for tensor in op.outputs:
            assert not tensor.uses, f"{tensor!r} is still used"
            del self._tensors[tensor.name]
            tensor.producer = None  # no circle: both are gone as soon as nobody holds them
        for operand in op.inputs:
            _drop_use(operand, op)
        op.inputs.clear()
        self.ordering.remove(op)
        del self._ops[op]
        if op.subgraphs:
            del self._holders[op]
            Graph._nestings = next(Graph._numbers)

    def replace_op(self, op: Op, outputs: Sequence[Tensor]) -> None:
        """Redirect every use of ``op``'s outputs to ``outputs`` and remove ``op``.

        What has been required of its place in the order is from now on required of the op that
        computes the first of ``outputs``, if that op has been added after ``op``.
        """
        for old, new in zip(op.outputs, outputs, strict=True):
            self.replace_uses(old, new)
        successor = outputs[0].producer if op in self.ordering and outputs else None
        if successor is not None and successor in self.newest_since(op):
            self.ordering.replace(op, successor)
        self.remove_op(op)

    def remove_input(self, tensor: Tensor) -> None:
        """Remove a graph input that nobody reads."""
        assert not tensor.uses, f"{tensor!r} is still used"
        self.inputs.remove(tensor)
        del self._tensors[tensor.name]

    def remove_tensor(self, tensor: Tensor) -> None:
        """Remove a constant or variable that nobody reads."""
        assert not tensor.uses, f"{tensor!r} is still used"
        assert tensor.producer is None, f"{tensor!r} is the result of an op"
        del self._tensors[tensor.name]

    def rename(self, tensor: Tensor, name: str) -> None:
        """Give ``tensor`` another name (made unique if it is taken)."""
        if tensor.name != name:
            del self._tensors[tensor.name]
            tensor.name = self.fresh_name(name)
            self._tensors[tensor.name] = tensor

    def move_variable(self, variable: Tensor, other: Graph) -> None:
        """Hand a variable that nobody reads here over to another graph."""
        assert not variable.uses, f"{variable!r} is still used"
        del self._tensors[variable.name]
        variable.name = other.fresh_name(variable.name)
        other._add_tensor(variable)

    def split_off(self, name: str) -> Graph:
        """Move everything into a new graph, leaving this one empty."""
        other = Graph(name)
        vars(other).update(vars(self), name=name)
        vars(self).update(vars(Graph(self.name)))
        Graph._nestings = next(Graph._numbers)
        return other

    def is_output(self, tensor: Tensor) -> bool:
        """True if ``tensor`` is an output of the graph."""
        return any(tensor is output for output in self.outputs)


def _drop_use(tensor: Tensor | None, op: Op) -> None:
    if tensor is not None:
        tensor.uses[op] -= 1
        if tensor.uses[op] == 0:
            del tensor.uses[op]
