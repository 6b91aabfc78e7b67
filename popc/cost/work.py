"""The words of rules about an op: the primitives of poplibs that it is made of, in order.

A `Work` belongs to one op.  Its methods add phases; each knows the formula, the exchange and the
temporary memory of its primitive.  Sizes are those of whole tensors; `share` says what of it falls
on the busiest tile.
"""

from __future__ import annotations

from collections.abc import Mapping as Table
from dataclasses import field
from math import prod

from popc.cost.chips import chip_of
from popc.cost.formulas import elementwise, movement
from popc.cost.formulas.numbers import WORKERS, ceil_div
from popc.cost.machine import Machine
from popc.cost.mapping import LINEAR, Layout, cast_lanes_of, device_bytes, lanes_of, layout_of
from popc.cost.parts import part_of
from popc.cost.phases import Phase
from popc.cost.planner import (
    PLACED,
    TURNED,
    ConvProblem,
    Dims,
    GatherPlan,
    GatherProblem,
    OperandLayout,
    Plan,
    matmul_problem,
    plan_gather,
    plan_reduction,
    plan_scatter,
    vertex_of,
)
from popc.cost.quarters import multiplies_quarters
from popc.ir import Op, Tensor, TensorType
from popc.ir.attributes import integer, integers, text
from popc.ops.partials import PARTIALS, SUMS_OF_PRODUCTS
from popc_runtime.format import DType
from popc_runtime.ground.frozen import mutable

__all__ = ["Work"]


@mutable
class Work:
    """The phases of one op, while its rule tells them."""

    op: Op
    machine: Machine
    layouts: Table[Tensor, Layout]
    backward: bool = False  # of the backward pass, and no repetition of the forward pass
    phases: list[Phase] = field(default_factory=list[Phase])
    plans: list[Plan] = field(default_factory=list[Plan])
    problems: list[ConvProblem] = field(default_factory=list[ConvProblem])  # of the plans
    steps: str = ""  # of a chain of elementwise ops, in words
    layout: Layout | None = None  # of the results, if it is not that of operand 0
    held: int = 0  # temporary bytes on the busiest tile beside those of the phases
    planned_bytes: int = 0  # temporary bytes of the plan that needs most, of a product or lookups

    # -- reading ---------------------------------------------------------------------------------

    def input(self, index: int = 0) -> TensorType:
        """Type of a required operand."""
        return self.op.operand(index).type

    def result(self, index: int = 0) -> TensorType:
        """Type of a result."""
        return self.op.outputs[index].type

    def integer(self, name: str, default: int = 0) -> int:
        """An attribute that is a number."""
        return integer(self.op.attributes, name, default)

    def integers(self, name: str, default: tuple[int, ...] = ()) -> tuple[int, ...]:
        """An attribute that is a list of numbers."""
        return integers(self.op.attributes, name, default)

    def text(self, name: str) -> str:
        """An attribute that is text."""
        return text(self.op.attributes, name, "")

    def layout_of(self, tensor: Tensor) -> Layout:
        """The layout of a tensor."""
        return layout_of(self.layouts, tensor)

    def lying(self, tensor: Tensor, *, last: bool) -> OperandLayout:
        """The order of an operand of a product whose channels are its ``last`` axis.

        If not, they are the one before it.
        """
        layout = self.layout_of(tensor)
        if layout.placed:
            return TURNED if layout.left and not last else PLACED
        return TURNED if layout.turned == last else OperandLayout(layout.block)

    def has(self, index: int) -> bool:
        """True if an optional operand is given."""
        return self.op.optional(index) is not None

    def share(self, elements: int, dtype: DType) -> int:
        """Elements on the busiest tile, spread like operand 0 if there are as many as it has."""
        tiles = self._layout_of_elements(elements).tiles
        return -(-elements // tiles) if tiles else self.machine.share(elements, dtype)

    # -- elementwise -----------------------------------------------------------------------------

    def unary(self, *names: str, size: int = -1, dtype: DType | None = None) -> None:
        """One UnaryOp after another over as many elements as the result has."""
        size, dtype = self._shape(size, dtype)
        share = self.share(size, dtype)
        for name in names:
            cycles = elementwise.unary(name, lanes_of(dtype), share)
            self.compute(name, cycles, "UnaryOp")

    def binary(self, *names: str, size: int = -1, dtype: DType | None = None) -> None:
        """One BinaryOp after another; the operands lie together already."""
        size, dtype = self._shape(size, dtype)
        share = self.share(size, dtype)
        for name in names:
            cycles = elementwise.binary(name, lanes_of(dtype), share)
            self.compute(name, cycles, "BinaryOp")

    def scaled(
        self, name: str, *, rows: int = 0, size: int = -1, dtype: DType | None = None
    ) -> None:
        """A BinaryOp with a scalar, or with one scalar for each of ``rows`` rows."""
        size, dtype = self._shape(size, dtype)
        share = self.share(size, dtype)
        local = ceil_div(rows * share, max(size, 1))
        cycles = elementwise.broadcast(name, lanes_of(dtype), share, rows=local)
        self.compute(name, cycles, "BroadcastOp")

    def scaled_add(self) -> None:
        """ScaledAdd in place: the result is operand 0 and a multiple of another one."""
        size, dtype = self._shape(-1, None)
        cycles = elementwise.scaled_add(lanes_of(dtype), self.share(size, dtype))
        self.compute("scaled_add", cycles, "ScaledAdd")

    def non_linear(self, name: str, *, size: int = -1, dtype: DType | None = None) -> None:
        """A non-linearity in place, or its gradient."""
        size, dtype = self._shape(size, dtype)
        cycles = elementwise.non_linear(name, lanes_of(dtype), self.share(size, dtype))
        self.compute(name, cycles, "NonLinearity")

    def cast(self, source: DType, to: DType, size: int) -> None:
        """A change of type; none for types that the device does not tell apart."""
        pair = cast_lanes_of(source), cast_lanes_of(to)
        if "quarter" in pair and pair not in {("quarter", "half"), ("half", "quarter")}:
            self.cast(source, DType.FLOAT16, size)  # there is no other way
            self.cast(DType.FLOAT16, to, size)
        elif pair[0] != pair[1] or device_bytes(source) != device_bytes(to):
            self.compute("cast", elementwise.cast(*pair, self.share(size, to)), "Cast")

    def bias(self, index: int, channels: int) -> None:
        """Adding operand ``index``, one number for each of ``channels`` channels.

        After a product a tile has those channels that the plan has given it.
        """
        type_ = self.result()
        share = self.share_of_result()
        local = min(self.plans[-1].channels_per_tile if self.plans else channels, max(share, 1))
        bytes_ = local * device_bytes(type_.dtype)
        self.receive(f"operand {index}", bytes_, sources=ceil_div(bytes_, 128))
        self.compute("bias", elementwise.bias_add(lanes_of(type_.dtype), share, local), "AddBias")

    def share_of_result(self) -> int:
        """Elements of the result on the busiest tile."""
        type_ = self.result()
        if self.layout is not None and self.layout.tiles:
            return -(-type_.size // self.layout.tiles)
        return self.share(type_.size, type_.dtype)

    def per_element(self, cycles: int, *, size: int = -1) -> None:
        """An op without a vertex of its own: ``cycles`` of a worker for each element."""
        size, dtype = self._shape(size, None)
        per_worker = ceil_div(self.share(size, dtype), WORKERS)
        self.compute(self.op.op_type, WORKERS * (20 + cycles * per_worker), "Custom")

    def on_one_tile(self, elements: int, cycles: int) -> None:
        """Work that one worker does on its own."""
        self.compute(self.op.op_type, WORKERS * (20 + cycles * elements), "Custom")

    # -- data ------------------------------------------------------------------------------------

    def receive(self, name: str, bytes_: int, *, sources: int = 1) -> None:
        """An exchange in which the busiest tile receives ``bytes_`` from some tiles."""
        if bytes_ <= 0:
            return
        payload = movement.exchange_cycles(bytes_, self.machine.target.exchange.bytes_per_cycle)
        # Selecting a source and setting a pointer are one instruction each.
        cycles = max(payload, 2 * sources)
        self.phases.append(
            Phase(name, exchange=cycles, exchanges=1, sources=sources, temporary=bytes_)
        )

    def compute(self, name: str, cycles: int, vertex: str, temporary: int = 0) -> None:
        """A compute set."""
        self.phases.append(
            Phase(name, compute=int(cycles), launches=1, vertex=vertex, temporary=temporary)
        )

    def host(self, bytes_: int) -> None:
        """A transfer between host and tiles."""
        target = self.machine.target
        cycles = int(bytes_ / target.host_bytes_per_cycle) + 2 * target.exchange.global_sync_cycles
        self.phases.append(Phase("host", host=cycles))

    def align(self, index: int, like: Layout | None = None) -> None:
        """Bring operand ``index`` to where ``like`` (operand 0) has the elements it meets."""
        tensor = self.op.optional(index)
        if tensor is None or tensor.is_constant or tensor.type.size <= 1:
            return
        wanted = like if like is not None else self.layout_of(self.op.operand(0))
        if self.layout_of(tensor) != wanted:
            type_ = tensor.type
            share = self.machine.share(type_.size, type_.dtype)
            self.receive(f"operand {index}", share * device_bytes(type_.dtype), sources=4)

    def rearrange(self, type_: TensorType, name: str = "rearrange") -> None:
        """Copy a tensor into another order: an exchange, and a copy on every tile."""
        length = type_.shape[-1] if type_.shape else 1
        self.reorder(type_.size, length, type_.dtype, name, 16)

    def reorder(self, size: int, length: int, dtype: DType, name: str, sources: int) -> None:
        """The same of ``size`` elements in rows of ``length``, which come from some tiles."""
        bytes_ = self.machine.share(size, dtype) * device_bytes(dtype)
        self.receive(name, bytes_, sources=min(sources, ceil_div(bytes_, 8)))
        piece = movement.smallest_piece(length * device_bytes(dtype))
        cycles = movement.copy_cycles((bytes_, piece))
        self.compute(name, cycles, "Copy", temporary=2 * bytes_)

    def bring_rows_together(self, size: int, length: int, dtype: DType, parts: int) -> None:
        """Rows of which ``parts`` tiles have a part each go to one, as profiles show."""
        share, bytes_ = self.machine.share(size, dtype), device_bytes(dtype)
        self.receive("rows", share * bytes_, sources=ceil_div(share, max(length, 1)) * parts)
        cycles = movement.row_cycles(share, length, bytes_)
        self.compute("rows", cycles, "Copy", temporary=2 * share * bytes_)

    def move(self, type_: TensorType, name: str = "copy") -> None:
        """Copy a tensor to other tiles in the order that it has."""
        size = device_bytes(type_.dtype)
        bytes_ = self.machine.share(type_.size, type_.dtype) * size
        self.receive(name, bytes_, sources=4)

    def gather(self, rows: int, length: int, table: int, dtype: DType) -> None:
        """Taking ``rows`` rows of ``length`` elements out of ``table`` by index (multiSlice)."""
        problem = GatherProblem(rows, length, table, device_bytes(dtype))
        plan = plan_gather(problem, self.machine.target, self.bound)
        self._indexed(plan, ("gather", "collect"), (plan.lookups, plan.rows), "MultiSlice")

    def scatter(self, rows: int, length: int, table: int, dtype: DType) -> None:
        """Adding ``rows`` rows of ``length`` elements to rows of ``table`` (multiUpdateAdd)."""
        problem = GatherProblem(rows, length, table, device_bytes(dtype))
        plan = plan_scatter(problem, lanes_of(dtype), self.machine.target, self.bound)
        sources = ceil_div(rows, plan.lookups)
        self._indexed(plan, ("scatter", "sums"), (sources, plan.lookups), "MultiUpdate")

    def _indexed(
        self, plan: GatherPlan, names: tuple[str, str], sources: tuple[int, int], vertex: str
    ) -> None:
        """Both stages of a plan, the second of which it may not have."""
        self.planned_bytes = max(self.planned_bytes, plan.temporary_bytes)
        for stage, compute in enumerate(plan.compute):
            if not compute:
                continue
            count = min(sources[stage], self.machine.target.compute_tiles)
            exchange, bytes_ = max(plan.exchange[stage], 2 * count), plan.temporary_bytes
            self.phases.append(Phase(names[stage], compute, exchange, 1, 1, vertex, count, bytes_))

    @property
    def proportion(self) -> float:
        """The share of a tile's memory that temporary data of this op may take."""
        op, target = self.op, self.machine.target
        chip = chip_of(op, target.num_ipus)
        usual = self.machine.settings.proportion_of(op.settings, op.op_type, chip)
        left = self.machine.bounds.get(op)
        return usual if left is None else min(usual, left / target.tile.memory_bytes)

    @property
    def bound(self) -> float:
        """The bytes of a tile that temporary data of this op may take."""
        return self.proportion * self.machine.target.tile.memory_bytes

    # -- reductions ------------------------------------------------------------------------------

    def reduce(
        self,
        dims: Dims,
        dtype: DType,
        *,
        maximum: bool = False,
        whole: bool = False,
        kinds: int = 1,
        result: DType | None = None,
    ) -> None:
        """Reduce a tensor.

        Args:
            dims: Sizes of its axes as they lie, and whether they are reduced.
            dtype: Of the elements; sums are 32 bits wide on their way.
            maximum: The largest elements are looked for, and not sums.
            whole: Tiles have whole rows.
            kinds: Results of different kinds, such as sums and sums of squares.
            result: Their type, if not that of the elements.
        """
        size = prod(size for size, _ in dims)
        if not size:
            return
        share = self.share(size, dtype)
        layout, tiles = self._layout_of_elements(size), self.machine.target.compute_tiles
        if whole and (rows := prod(size for size, reduced in dims if not reduced)) >= tiles:
            share, layout = ceil_div(rows, tiles) * (size // rows), LINEAR
        lanes = lanes_of(dtype), lanes_of(result or dtype)
        problem = part_of(dims, share, layout, lanes, maximum=maximum)
        for stage in plan_reduction(problem, self.machine.target):
            if stage.exchange:
                cycles = kinds * max(stage.exchange, 2 * stage.sources)
                sources = min(stage.sources, self.machine.target.compute_tiles)
                bytes_ = kinds * stage.bytes
                self.phases.append(
                    Phase("partials", 0, cycles, 1, sources=sources, temporary=bytes_)
                )
            for cycles in stage.compute:
                self.compute("reduce", kinds * cycles, "Reduce", 4 * kinds * stage.results)

    def _layout_of_elements(self, elements: int) -> Layout:
        """The layout of operand 0, if it has so many elements."""
        first = self.op.optional(0)
        return self.layout_of(first) if first and first.type.size == elements else LINEAR

    def spread(self, rows: int, size: int, dtype: DType) -> None:
        """Send one number for each of ``rows`` rows to the tiles with their ``size`` elements."""
        if not size:
            return
        share = self.share(size, dtype)
        length = ceil_div(size, max(rows, 1))
        local = min(ceil_div(share, length) + 1, rows)
        self.receive("broadcast", 4 * local, sources=local)

    # -- convolutions and matrix products ----------------------------------------------------------

    def convolve(self, problem: ConvProblem) -> Plan:
        """Plan a convolution and add its phases."""
        plan = self.machine.known.planner.plan(problem, self.proportion)
        self.plans.append(plan)
        self.problems.append(problem)
        self.planned_bytes = max(self.planned_bytes, plan.temporary_bytes)
        for part in plan.parts:
            vertex = vertex_of(part, problem, plan)
            counts = (part.compute, part.exchange, part.exchanges, part.launches)
            self.phases.append(
                Phase(part.name, *counts, vertex, part.sources, plan.temporary_bytes)
            )
        return plan

    def repeat(self, start: int, times: int) -> None:
        """Let all phases from number ``start`` on happen ``times`` in a row."""
        self.phases[start:] = [phase.times(times) for phase in self.phases[start:]]

    def types(self, dtype: DType) -> tuple[str, str, str]:
        """Types of operands, partial sums and result of a product of ``dtype``."""
        if multiplies_quarters(self.op, self.machine.target):
            return "quarter", "half", "half"
        if lanes_of(dtype) != "half":
            return "float", "float", "float"
        if self.op.op_type in SUMS_OF_PRODUCTS:
            return "half", self.text(PARTIALS) or "float", "half"
        return "half", self.machine.settings.partials_type_matmuls.value, "half"

    def matmul(
        self,
        groups: int,
        rows: int,
        depth: int,
        columns: int,
        dtype: DType,
        *,
        lie: tuple[OperandLayout, OperandLayout] = (PLACED, PLACED),
    ) -> Plan:
        """``groups`` products [rows, depth] by [depth, columns]; how both operands ``lie``."""
        problem = matmul_problem(
            self.types(dtype),
            groups,
            rows,
            depth,
            columns,
            inputs_lie=lie[0],
            weights_lie=lie[1],
            backward=self.backward,
        )
        return self.convolve(problem)

    def _shape(self, size: int, dtype: DType | None) -> tuple[int, DType]:
        type_ = self.result()
        return (type_.size if size < 0 else size), dtype or type_.dtype
