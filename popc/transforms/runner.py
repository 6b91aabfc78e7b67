"""Run the pipeline on a graph, or what of it comes before gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from popc.ir import Graph, Op, Tensor
from popc.options import Options, PartsContext
from popc.progress import Snapshot
from popc.transforms.base import Pass, PassReport, State, run_to_fixed_point, state_of
from popc.transforms.batch_serialization import BatchSerialization
from popc.transforms.context import Orders, PassContext, insertion_orders
from popc.transforms.dead_code import DeadCode
from popc.transforms.patterns import is_on
from popc.transforms.pipeline import PIPELINE, PassPhase
from popc_runtime.ground.frozen import frozen, replace

__all__ = ["Transformation", "cut_before_gradients", "prepare_for_training", "transform"]

_BATCH_BEFORE_GRADIENTS: Final = PassPhase("parts of batches", (BatchSerialization, DeadCode))


@frozen
class Transformation:
    """The work of the passes on a graph.

    Attributes:
        reports: What each run of each pass did, in order.
        orders_hold: Whether what ``orders`` said last is still true of the graph: it has been
            asked, and no pass has changed anything since.
    """

    reports: tuple[PassReport, ...]
    orders_hold: bool


def transform(
    graph: Graph,
    options: Options,
    orders: Orders = insertion_orders,
    on_snapshot: Callable[[Snapshot], None] | None = None,
) -> Transformation:
    """Run the pipeline on ``graph``, in place.

    ``orders`` tells passes in which order ops are going to run.  ``on_snapshot`` is called when
    the graph has reached one.
    """
    return _Runner(graph, PassContext(options, orders), on_snapshot).run(PIPELINE)


def prepare_for_training(graph: Graph, options: Options) -> Transformation:
    """Run on ``graph``, in place, what comes before differentiation."""
    context = PassContext(options, before_gradients=True)
    return _Runner(graph, context).run(pass_ for pass_ in PIPELINE if pass_.before_gradients)


def cut_before_gradients(
    graph: Graph, options: Options, barriers: Collection[Tensor]
) -> Transformation:
    """Cut the batch of a graph that ends with the loss, if that is wanted before differentiation.

    ``barriers`` are tensors that must stay, since their gradients are asked for.
    """
    if options.batch_serialization_transform_context is not PartsContext.FWD:
        return Transformation((), orders_hold=False)
    context = PassContext(options, before_gradients=True, barriers=barriers)
    return _Runner(graph, context).run([_BATCH_BEFORE_GRADIENTS])


class _Runner:
    """Runs phases on one graph, and remembers whether what was said of its order still holds.

    A pass that has found nothing is not run again until something has changed.
    """

    def __init__(
        self,
        graph: Graph,
        context: PassContext,
        on_snapshot: Callable[[Snapshot], None] | None = None,
    ) -> None:
        self._graph = graph
        self._orders = context.orders
        self._context = replace(context, orders=self._ask)
        self._on_snapshot = on_snapshot
        self._orders_hold = False
        self._changes = 0  # of all passes so far
        self._state: State | None = None  # of the graph, where a check has asked since it changed
        self._idle: dict[type[Pass], tuple[int, PassReport]] = {}  # at so many changes

    def run(self, phases: Iterable[PassPhase]) -> Transformation:
        """Run ``phases`` in order, but not the passes that are switched off."""
        reports: list[PassReport] = []
        for phase in phases:
            reports.extend(self._run_phase(phase))
            if self._on_snapshot is not None and phase.snapshot is not None:
                self._on_snapshot(phase.snapshot)
        return Transformation(tuple(reports), self._orders_hold)

    def _run_phase(self, phase: PassPhase) -> list[PassReport]:
        options = self._context.options
        passes = [
            partial(self._run_pass, pass_.of(self._context))
            for pass_ in phase.passes
            if not pass_.optional or is_on(pass_.name, pass_.level, options)
        ]
        if phase.repeat:
            return run_to_fixed_point(passes, self._graph, check=options.verify_ir)
        return [run(self._graph, check=options.verify_ir) for run in passes]

    def _run_pass(self, pass_: Pass, graph: Graph, *, check: bool = False) -> PassReport:
        changes, report = self._idle.get(type(pass_), (-1, None))
        if report is not None and changes == self._changes:
            return report
        if check and self._state is None:
            self._state = state_of(graph)
        report = pass_(graph, check=check, before=self._state)
        if report.changes:
            self._state = None
            self._orders_hold = False
            self._changes += report.changes
        else:
            self._idle[type(pass_)] = self._changes, report
        return report

    def _ask(self, graph: Graph) -> Mapping[Graph, Sequence[Op]]:
        self._orders_hold = True
        return self._orders(graph)
