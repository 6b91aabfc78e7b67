"""From a scheduled graph to what it costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from popc.cost.beside import cycles_beside, meets
from popc.cost.calls import bytes_of_copies, call_phases
from popc.cost.chips import chip_of
from popc.cost.execution import Execution
from popc.cost.machine import CostMemo, Machine
from popc.cost.mapping import LINEAR, Layout, layout_of, placed_for_first
from popc.cost.memory import MemoryWalk
from popc.cost.phases import Cycles, Phase
from popc.cost.pipeline import Timeline, pipeline_step
from popc.cost.places import Places
from popc.cost.planner import Plan, Planner
from popc.cost.report import BETWEEN_MEETINGS, CostReport, OpCost
from popc.cost.rules import RULES
from popc.cost.samples import samples_of
from popc.cost.settings import CostSettings
from popc.cost.transfers import find_hidden, merged_copies, merged_transfers, op_cycles, times_taken
from popc.cost.uses import CodeUses, StageCall
from popc.cost.work import Work
from popc.ir import Graph, Op, Recompute, StepPart, Tensor
from popc.ir.attributes import integers
from popc.memory import MemoryPlan
from popc.ops.control import callee_of
from popc.ops.main_loops import PIPELINE, is_pipeline
from popc.schedule import Schedule
from popc.target import Target, select_ipus
from popc_runtime.ground.frozen import frozen

__all__ = ["estimate_costs", "estimate_execution"]

# Cycles of a step of a loop, or of a choice between branches, beside its body; and of the copies in
# front of a call.  Both are guesses, as nobody has published them: a few calls of the supervisor
# (11 cycles each) and a branch.  They count little beside syncs and the 237 cycles that setting up
# an exchange takes: a loop over a hundred phases takes a thousandth longer if they are doubled.
_LOOP_CYCLES = 60
_PREDICATE_BYTES = 4  # a word
_PLANNED_AGAIN = 4  # times at most that ops are planned for what memory others leave them


def estimate_costs(
    graph: Graph,
    schedule: Schedule,
    plan: MemoryPlan,
    target: Target,
    settings: CostSettings | None = None,
    known: CostMemo | None = None,
) -> CostReport:
    """The costs of one run of ``graph`` on ``target``; what runs at load time does not count.

    ``known`` is what estimates before have found of the same graph with the same settings.
    """
    machine = _machine(target, schedule, settings)
    if known is not None:
        machine = replace(machine, known=known)
    found = _settled(graph, schedule, plan, machine)
    estimator, hidden = found.estimator, found.estimator.hidden(graph)
    ops = tuple(_without(hidden.get(op, 0), cost) for op, cost in found.costs)
    plans, assumed = estimator.planned, tuple(estimator.assumed)
    pipeline = estimator.timeline.cost()
    beside = estimator.beside(graph, hidden)
    memory = tuple(walk.report() for walk in found.walks)
    return CostReport(target, ops, memory, samples_of(graph), plans, assumed, pipeline, beside)


def estimate_execution(
    graph: Graph,
    schedule: Schedule,
    plan: MemoryPlan,
    target: Target,
    settings: CostSettings | None = None,
) -> Execution:
    """The costs of every op of ``graph`` when it runs once on ``target``."""
    estimator = _settled(graph, schedule, plan, _machine(target, schedule, settings)).estimator
    hidden = estimator.hidden(graph)
    pipeline, beside = estimator.timeline.cost(), estimator.beside(graph, hidden)
    beside = beside + pipeline.hidden if pipeline else beside
    return Execution(graph, schedule, target, estimator.phases, hidden, beside)


@frozen
class _Found:
    """An estimator that has seen a whole program, and what it has found."""

    estimator: _Estimator
    costs: list[tuple[Op, OpCost]]
    walks: tuple[MemoryWalk, ...]  # of every chip

    def lower_bounds(self) -> dict[Op, int]:
        """Bytes for the plans of ops during which a tile lacks some, where that leaves any."""
        planned = self.estimator.planned_bytes
        over = dict(chain.from_iterable(walk.over.items() for walk in self.walks))
        bounds = {op: planned.get(op, 0) - lacking for op, lacking in over.items()}
        return {op: bound for op, bound in bounds.items() if bound > 0}


def _settled(graph: Graph, schedule: Schedule, plan: MemoryPlan, machine: Machine) -> _Found:
    """The costs when ops that make a tile run over have been planned again, for less memory."""
    places = Places(graph, schedule, plan, machine.target)
    found = _once(graph, schedule, plan, machine, places)
    for _ in range(_PLANNED_AGAIN):
        bounds = found.lower_bounds()
        if bounds.items() <= machine.bounds.items():  # nothing, or what has been tried
            break
        machine = replace(machine, bounds={**machine.bounds, **bounds})
        found = _once(graph, schedule, plan, machine, places)
    return found


def _once(
    graph: Graph, schedule: Schedule, plan: MemoryPlan, machine: Machine, places: Places
) -> _Found:
    """The costs, and walks over the memory of every chip, with plans within what bounds say."""
    estimator = _Estimator(machine, schedule, plan)
    costs = list(estimator.run(graph, 1))
    phases, uses, target = estimator.phases, estimator.uses, machine.target
    chips = range(target.num_ipus)
    shares = machine.settings.outlines
    walks = (
        MemoryWalk(graph, schedule, places, phases, uses.of(n), target, n, shares=shares)
        for n in chips
    )
    return _Found(estimator, costs, tuple(walks))


def _machine(target: Target, schedule: Schedule, settings: CostSettings | None) -> Machine:
    settings = settings or CostSettings()
    merges = settings.merge_exchange
    most = settings.merge_exchange_bytes
    merged = merged_transfers(schedule, most) if merges else frozenset[Op]()
    merged |= merged_copies(schedule, settings.merge_copies_bytes)
    known = CostMemo(Planner(target))
    return Machine(target, settings, known, merged, _selected(target, schedule))


def _selected(target: Target, schedule: Schedule) -> tuple[int, ...]:
    """The chips along the ladder, in the order in which the program counts them."""
    closing = (target.num_ipus - 1, 0)
    closed = any(
        (op.attributes["source"], op.attributes["destination"]) == closing
        for order in schedule.orders.values()
        for op in order
        if op.op_type == "IpuCopy"
    )
    return select_ipus(target.num_ipus, target.selection_order, closed=closed)


class _Estimator:
    """Costs of ops in order, and how their results lie."""

    def __init__(self, machine: Machine, schedule: Schedule, plan: MemoryPlan) -> None:
        self._machine = machine
        self._io_machine: Machine | None = None
        self._schedule = schedule
        self._plan = plan
        # What is computed at load lies as it is wanted, like weights.
        self._layouts: dict[Tensor, Layout] = {
            tensor: placed_for_first(tensor) for op in schedule.load for tensor in op.outputs
        }
        self._chips = machine.target.num_ipus
        self.uses = CodeUses(machine.known.kinds, outlines=machine.settings.outlines)
        self.planned_bytes: dict[Op, int] = {}  # temporary ones, of plans
        self._stage: StageCall | None = None  # of the pipeline, if one is looked into
        self._backward = False  # whether a call of the backward pass is
        self._meetings = 0  # of chips, so far
        self._copies: dict[Op, int] = {}  # of operands and results of calls, while an op runs
        self.timeline = Timeline()
        self.phases: dict[Op, tuple[Phase, ...]] = {}
        self.assumed: list[str] = []

    @property
    def planned(self) -> int:
        """The number of different convolutions and products that were planned."""
        return len(self._machine.problems)

    def hidden(self, graph: Graph) -> dict[Op, int]:
        """Cycles of a single run of transfers that pass meanwhile; when all costs are known."""
        machine = self._machine
        merges = machine.settings.merge_exchange
        return find_hidden(graph, self._schedule, self.phases, machine.target, merges=merges)

    def beside(self, graph: Graph, hidden: Mapping[Op, int]) -> Cycles:
        """Cycles of the whole run that pass while a slower chip works, outside of pipelines."""

        def cost(op: Op) -> Cycles:
            cycles = op_cycles(self.phases.get(op, ()), self._machine.target)
            return replace(cycles, host=cycles.host - hidden.get(op, 0))

        return cycles_beside(graph, self._schedule, cost, self._chips)

    def run(self, graph: Graph, times: int) -> Iterator[tuple[Op, OpCost]]:
        """The costs of a graph that runs ``times`` times."""
        for op in self._schedule.orders[graph]:
            before = self._stage
            number = pipeline_step(graph, op)
            if number is not None and before is None:
                cycle = (graph.name == PIPELINE, number)
                self._stage = StageCall(cycle, op.settings.pipeline_stage)
            meeting = int(self._chips > 1 and meets(graph, op))
            self._meetings += meeting
            callee = callee_of(op)
            if callee is not None:
                yield from self._call(op, callee, times)
            elif op.subgraphs:
                yield from self._control(op, times)
            else:
                yield op, self._op(op, times)
            self._meetings += meeting
            self._stage = before

    def _machine_of(self, op: Op) -> Machine:
        """The tiles that ``op`` runs on; copies between sets of tiles look at both."""
        target = self._machine.target
        if op.settings.tile_set != "io" or op.op_type == "IoTileCopy" or not target.num_io_tiles:
            return self._machine
        if self._io_machine is None:
            own = replace(target, num_io_tiles=target.compute_tiles)
            known = CostMemo(Planner(own))
            self._io_machine = replace(self._machine, target=own, known=known, problems=set())
        return self._io_machine

    def _op(self, op: Op, times: int) -> OpCost:
        work = self._work(op)
        held = work.held + self._copies.get(op, 0)
        phases = tuple(replace(phase, temporary=phase.temporary + held) for phase in work.phases)
        self._note(op, phases, work.plans)
        self.planned_bytes[op] = work.planned_bytes
        self._lay_out(op, work)
        plans = (*(str(plan) for plan in work.plans), *([work.steps] if work.steps else []))
        return self._cost(op, times, phases, plans)

    def _work(self, op: Op) -> Work:
        """The phases of an op, found before if nothing that they follow from is new."""
        machine = self._machine_of(op)
        layouts = {tensor: layout_of(self._layouts, tensor) for tensor in op.present_inputs}
        known = machine.known.works
        backward = self._backward or _is_of_backward(op)
        key = op, machine.bounds.get(op), op in machine.merged, backward, (*layouts.values(),)
        work = known.get(key)
        if work is None:
            work = known[key] = Work(op, machine, layouts, backward)
            if not op.attributes.get("unrolled"):  # iterations that would have been written out
                RULES[op.op_type](work)
        machine.problems.update(work.problems)
        return work

    def _note(self, op: Op, phases: tuple[Phase, ...], plans: Sequence[Plan] = ()) -> None:
        is_known = bool(self.phases.get(op))  # of a graph that has been called before
        self.phases[op] = phases
        if phases and not is_known:
            chip, machine = chip_of(op, self._chips), self._machine_of(op)
            self.uses.note(op, chip, phases, plans, machine, self._layouts, self._stage)

    def _cost(
        self, op: Op, times: int, phases: Sequence[Phase], plans: tuple[str, ...] = ()
    ) -> OpCost:
        cycles = op_cycles(phases, self._machine.target)
        name = op.outputs[0].name if op.outputs else _first_name(op)
        origin, chip = op.settings.origin, chip_of(op, self._chips)
        step = (BETWEEN_MEETINGS, self._meetings) if self._chips > 1 else None
        if self._stage is not None:
            in_loop, number = self._stage.cycle
            self.timeline.note(self._stage.cycle, op, chip, (cycles, times))
            step = int(in_loop), number
        total = cycles * times
        return OpCost(name, op.op_type, origin, times, total, tuple(phases), plans, chip, step=step)

    def _lay_out(self, op: Op, work: Work) -> None:
        """Results lie like operand 0 unless the rule, or the kind of op, says otherwise."""
        first = _leading(op)
        inherited = layout_of(self._layouts, first) if first is not None else LINEAR
        layout = work.layout or inherited
        if work.layout is None and op.op_type == "Transpose":
            layout = _turned(op, inherited)
        elif work.layout is None and op.op_type in _SCATTERED:
            layout = LINEAR
        for tensor in op.outputs:
            self._layouts[tensor] = layout

    def _call(self, op: Op, callee: Graph, times: int) -> Iterator[tuple[Op, OpCost]]:
        """The copies, then what the callee does; its code is there once, however often it runs."""
        phases = tuple(call_phases(op, self._machine))
        self._note(op, phases)
        yield op, self._cost(op, times, phases)
        for tensor, inner in zip(op.present_inputs, callee.inputs, strict=True):
            self._layouts[inner] = layout_of(self._layouts, tensor)
        order = self._schedule.orders[callee]
        strategy = self._machine.settings.copying_strategy
        copies = bytes_of_copies(callee, order, self._machine, strategy)
        # Of the copies of the call around this one, nothing is given back meanwhile.
        outer = self._copies.get(op, 0)
        self._copies.update({op: outer + own for op, own in zip(order, copies, strict=True)})
        before, self._backward = self._backward, self._backward or _is_of_backward(op)
        yield from self.run(callee, times)
        self._backward = before
        for tensor, inner in zip(op.outputs, callee.outputs, strict=True):
            self._layouts[tensor] = layout_of(self._layouts, inner)

    def _control(self, op: Op, times: int) -> Iterator[tuple[Op, OpCost]]:
        work = Work(op, self._machine, self._layouts)
        if not op.attributes.get("unrolled"):
            work.receive("predicate", _PREDICATE_BYTES)
            work.phases.append(Phase("control", compute=_LOOP_CYCLES))
        trips = self._trips(op)
        for nested in op.subgraphs.values():
            for tensor, inner in zip(reversed(op.inputs), reversed(nested.inputs), strict=False):
                if tensor is not None:
                    self._layouts[inner] = layout_of(self._layouts, tensor)
        phases = tuple(work.phases)
        self._note(op, phases)
        if is_pipeline(op):
            self.timeline.enter(self._stage.cycle[1] if self._stage else 0, trips)
            self._stage = None  # its body has steps of its own
        yield op, self._cost(op, times * trips, phases)
        bodies = [
            list(self.run(nested, times_taken(op, name, times * trips)))
            for name, nested in op.subgraphs.items()
        ]
        if "taken" in op.attributes:
            yield from chain.from_iterable(bodies)
            return
        # Of branches, the slowest one counts.
        yield from max(bodies, key=_total, default=[])

    def _trips(self, op: Op) -> int:
        if op.op_type != "Loop":
            return 1
        count = op.attributes.get("trip_count", -1)
        if isinstance(count, int) and count >= 0:
            return count
        self.assumed.append(op.outputs[0].name if op.outputs else op.op_type)
        return 1


def _total(costs: Sequence[tuple[Op, OpCost]]) -> int:
    return sum(cost.cycles.total for _, cost in costs)


def _without(hidden: int, cost: OpCost) -> OpCost:
    """``cost`` without ``hidden`` cycles for the host in each run."""
    if not hidden:
        return cost
    cycles = replace(cost.cycles, host=cost.cycles.host - hidden * cost.times)
    return replace(cost, cycles=cycles, hidden=hidden * cost.times)


# Ops whose results do not lie like their operand: they collect elements from everywhere.
_SCATTERED = frozenset(
    {
        "Gather",
        "GatherElements",
        "GatherND",
        "HostLoad",
        "IoTileCopy",
        "OneHot",
        "Resize",
        "ScatterND",
        "TopK",
    }
)


def _leading(op: Op) -> Tensor | None:
    """The operand that results lie like: the first, but for constants beside as large a tensor."""
    first = op.optional(0)
    if first is None or not first.is_constant:
        return first
    size = op.outputs[0].type.size if op.outputs else -1
    others = (tensor for tensor in op.present_inputs if not tensor.is_constant)
    return next((tensor for tensor in others if tensor.type.size == size), first)


def _is_of_backward(op: Op) -> bool:
    """True if ``op``, perhaps a call, belongs to the backward pass, and not as a repetition."""
    settings = op.settings
    again = settings.recompute is Recompute.RECOMPUTED
    return settings.part is StepPart.BACKWARD and not again


def _turned(op: Op, layout: Layout) -> Layout:
    """The layout after a Transpose: it matters where the axis of the channels has gone."""
    perm = integers(op.attributes, "perm", ())
    rank, key = len(perm), f"{layout.key} {perm}"
    weights = layout.placed and not layout.left
    channels = rank - 2 if layout.turned or weights else rank - 1
    place = perm.index(channels) if channels in perm else channels
    if place >= rank - 2:
        turned = place == rank - 2
        return replace(layout, key=key, turned=turned, placed=False, left=False, image=False)
    return Layout(key, layout.tiles, turned=True)


def _first_name(op: Op) -> str:
    return op.present_inputs[0].name if op.present_inputs else op.op_type
