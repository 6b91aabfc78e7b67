"""Add the updates of all weights to a graph that computes their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from popc.ir import Graph, Op, OpSettings, Tensor, TensorType
from popc.ops.build import build
from popc.optimizers.adam import update_by_adam
from popc.optimizers.adaptive import update_by_adaptive
from popc.optimizers.loss_scaling import LOSS_SCALING, add_loss_scale_update
from popc.optimizers.mapping import FunctionCall, map_gradient, without_scale
from popc.optimizers.merged import MergedUpdate
from popc.optimizers.merging import NOT_MERGED, Merging, finish_parts, merged_updates
from popc.optimizers.resolve import Resolution
from popc.optimizers.scalars import Scalar, Scalars
from popc.optimizers.sgd import accumulates_into_velocity, update_by_sgd
from popc.optimizers.sharded import ShardedUpdate
from popc.optimizers.spec import SGD, Adam, Adaptive, OptimizerSpec
from popc.optimizers.update import Division, Sharing, UpdateRule, WeightUpdate
from popc.options import MeanStrategy, Reduction
from popc_runtime.errors import ModelError, OptionError
from popc_runtime.format import DType, HyperParameter

__all__ = [
    "ACCUMULATED",
    "STATE_PREFIXES",
    "UpdateContext",
    "UpdateResult",
    "UpdatedWeight",
    "add_updates",
]

# PopART's reserved prefixes.
ACCUMULATED: Final = "Accum___"
_COUNTER: Final = "Counter___"
_NORM: Final = "GlobalNorm___"
_REDUCED: Final = "FinalReducedGradient___"

_SCALAR: Final = TensorType(DType.FLOAT32, ())

# What precedes the name of a weight in those of its states.
STATE_PREFIXES: Final = ("Accl___", "Accl1___", "Accl2___", "Accl3___")


def _numbered(word: str, number: int | None) -> str:
    return "" if number is None else f"{word}{number}"


def _whole(weight: Tensor) -> Division:
    del weight
    return Division()


def _no_function(name: str, graph: Graph, inputs: Sequence[Tensor]) -> tuple[Tensor, list[Op]]:
    del graph, inputs
    raise ModelError(f"there is no function {name!r}")


@dataclass(frozen=True, slots=True)
class UpdateContext:
    """The facts about the program that updates have to know.

    Attributes:
        accumulation_factor: How many micro-batches there are per update.
        reduction: What is made of their gradients.
        reduction_of_replicas: What is made of the gradients of replicas.
        mean_strategy: How: POST divides the sum at the end, RUNNING keeps the mean of those
            so far, which cannot overflow.
        loss_scale: What the gradients are multiplied by: see `loss_scale`.
        largest_loss_scale: What it may grow to if it adapts itself.
        replicas: How many replicas have gradients of their own.
        sharing: Which of them share the weight of a name; ``None``: all.
        divided: What replicas divide among them of a weight that all share.
        merging: Which updates are made together.
        call: Calls functions of the model that change gradients.
    """

    accumulation_factor: int = 1
    reduction: Reduction = Reduction.SUM
    reduction_of_replicas: Reduction = Reduction.SUM
    mean_strategy: MeanStrategy = MeanStrategy.POST
    loss_scale: Tensor | float = 1.0
    largest_loss_scale: float = 2.0**15
    replicas: int = 1
    sharing: Callable[[str], Sharing] | None = None
    divided: Callable[[Tensor], Division] = _whole
    merging: Merging = NOT_MERGED
    call: FunctionCall = _no_function

    def shared_by(self, weight: str) -> Sharing:
        """The replicas that share a weight."""
        return Sharing(self.replicas) if self.sharing is None else self.sharing(weight)

    @property
    def kind(self) -> str:
        """The operation of an ``Accumulate`` on gradients."""
        return "mean" if self._runs(self.reduction) else "sum"

    @property
    def kind_of_replicas(self) -> str:
        """The operation of an all-reduce of gradients over replicas."""
        return "mean" if self._runs(self.reduction_of_replicas) else "add"

    def divisor(self, sharing: Sharing) -> float:
        """The number to divide gradients by that have been added up, beside the loss scale.

        ``sharing``: the replicas that they are reduced over.
        """
        micro_batches = self.accumulation_factor if self._divides(self.reduction) else 1
        replicas = sharing.size if self._divides(self.reduction_of_replicas) else 1
        return float(micro_batches * replicas)

    def _runs(self, reduction: Reduction) -> bool:
        """True if the mean of those so far is kept."""
        return reduction == Reduction.MEAN and self.mean_strategy == MeanStrategy.RUNNING

    def _divides(self, reduction: Reduction) -> bool:
        """True if gradients are added up, and divided only when the weight is updated."""
        return reduction == Reduction.MEAN and self.mean_strategy == MeanStrategy.POST


@dataclass(frozen=True, slots=True)
class UpdatedWeight:
    """A weight, and the variables with the optimizer's state for it."""

    weight: str
    states: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """The facts about the optimizer for the archive.

    Attributes:
        hyper_parameters: Those that matter, constant ones too.
        clip_norms: The bound and the tensors of each group of gradients, as text.
        weights: The weights that are updated.
        known: Numbers of the updates, by names of PopART's, where tensors have others or none.
    """

    hyper_parameters: tuple[HyperParameter, ...]
    clip_norms: tuple[str, ...]
    weights: tuple[UpdatedWeight, ...]
    known: Mapping[str, Scalar]


def add_updates(
    graph: Graph,
    pairs: Sequence[tuple[Tensor, Tensor]],
    spec: OptimizerSpec,
    context: UpdateContext = UpdateContext(),
) -> UpdateResult:
    """Update each weight with its gradient.

    Args:
        graph: The graph; variables for state and hyper-parameters are added, and ops.
        pairs: Weights, which are variables, with the gradients of one micro-batch, of their types.
        spec: The optimizer.
        context: What the program does around the updates.

    Each new value is called ``UpdatedVar___`` and the name of its variable, which gets it by a
    ``CopyVarUpdate``.

    Raises:
        OptionError: the optimizer names tensors that are no weights, or bounds one twice.
    """
    return _Updates(graph, pairs, spec, context).run()


class _Updates:
    """The updates of all weights; scalars are shared."""

    def __init__(
        self,
        graph: Graph,
        pairs: Sequence[tuple[Tensor, Tensor]],
        spec: OptimizerSpec,
        context: UpdateContext,
    ) -> None:
        self.graph = graph
        self.spec = spec
        self.context = context
        self.resolution = Resolution(spec, [weight.name for weight, _ in pairs])
        self.scalars = Scalars(graph, spec, self.resolution)
        self.scales: dict[float, Scalar] = {}
        self.weights = [self._prepared(weight, gradient) for weight, gradient in pairs]

    def _prepared(self, weight: Tensor, gradient: Tensor) -> WeightUpdate:
        context, s = self.context, self.scalars
        sharing = context.shared_by(weight.name)
        divisor = context.divisor(sharing)
        if divisor not in self.scales:
            self.scales[divisor] = s.div(1.0, s.mul(context.loss_scale, divisor))
        scale = self.scales[divisor]
        update = WeightUpdate(self.graph, weight, gradient, scale, s, self.resolution, sharing)
        division = self._division(update)
        has_state = not isinstance(self.spec, SGD) or update.uses("momentum")
        domain = (division.state if has_state else None) or division.weight
        # Each replica updates its part only: neither weight nor state is whole then.
        return update if domain is None else ShardedUpdate(update, domain)

    def _division(self, update: WeightUpdate) -> Division:
        if update.sharing.size < self.context.replicas:
            return Division()
        return self.context.divided(update.whole)

    def run(self) -> UpdateResult:
        """Add everything; see `add_updates`."""
        accumulated_later = [u for u in self.weights if self._accumulates_itself(u)]
        for update in self.weights:
            if update not in accumulated_later:
                self._reduce(update)
        self._clip()
        self._update(accumulated_later)
        add_loss_scale_update(
            self.graph,
            self.spec,
            accumulation_factor=self.context.accumulation_factor,
            replicas=self.context.replicas,
            largest=self.context.largest_loss_scale,
        )
        clip_norms = [
            f"{clip.max_norm:g}: {', '.join(clip.tensors) or 'all weights'}"
            for clip in self.spec.clip_norms
        ]
        hyper_parameters = [self._loss_scaling(), *self.scalars.used]
        weights = tuple(
            UpdatedWeight(weight.name, tuple(state.name for state in weight.variables.values()))
            for weight in self.weights
        )
        known = self.scalars.known
        return UpdateResult(tuple(hyper_parameters), tuple(clip_norms), weights, known)

    def _rule(self, *, later: bool) -> UpdateRule:
        if isinstance(self.spec, SGD):
            return partial(update_by_sgd, self.spec, micro_batches=later)
        if isinstance(self.spec, Adam):
            return partial(update_by_adam, self.spec)
        assert isinstance(self.spec, Adaptive), self.spec
        return partial(update_by_adaptive, self.spec)

    def _accumulates_itself(self, update: WeightUpdate) -> bool:
        """True if the rule accumulates the gradients of micro-batches, so that nobody else may."""
        clipped = any(update.name in group for group in self.resolution.clip_groups)
        return (
            not isinstance(update, ShardedUpdate)
            and self._division(update).sums is None
            and isinstance(self.spec, SGD)
            and self.context.accumulation_factor > 1
            and (self.context.kind, self.context.kind_of_replicas) == ("sum", "add")
            and not clipped
            and not self.resolution.functions(update.name)
            and accumulates_into_velocity(self.spec, update)
        )

    def _reduce(self, update: WeightUpdate) -> None:
        """Reduce a gradient over micro-batches and replicas, and let functions change it."""
        accumulates = self.context.accumulation_factor > 1
        domain = self._division(update).sums if accumulates else None
        functions = self.resolution.functions(update.name)
        if accumulates:
            self._accumulate(update, domain)
        if domain is not None:
            self._take_sum(update, domain, whole=bool(functions))
        else:
            reduced = update.reduced_whole if functions else update.reduced
            kind = self.context.kind_of_replicas
            update.gradient = reduced(update.gradient, kind, prefix=_REDUCED)
        if functions:
            map_gradient(update, functions, self.context.call)

    def _take_sum(self, update: WeightUpdate, domain: Sharing, *, whole: bool) -> None:
        """Make what the update needs of a sum of which replicas have a part each."""
        if isinstance(update, ShardedUpdate) and update.domain == domain and not whole:
            return
        gradient = update.gathered(update.gradient, domain, prefix=_REDUCED)
        update.gradient = gradient if whole else update.part(gradient)

    def _accumulate(self, update: WeightUpdate, domain: Sharing | None) -> None:
        """Add up the gradients of micro-batches, or parts of them, reduced over the replicas."""
        gradient, dtype = update.gradient, self.resolution.accum_type(update.name)
        if dtype is not None and dtype is not gradient.type.dtype:
            gradient = update.emit("Cast", [gradient], attributes={"to": dtype.value})
        if self.context.kind == "mean":
            self._count(update)
        if domain is not None:
            gradient = update.reduced_part(gradient, self.context.kind_of_replicas, domain)
        update.gradient = update.emit(
            "Accumulate", [gradient], attributes={"kind": self.context.kind}, prefix=ACCUMULATED
        )

    def _count(self, update: WeightUpdate) -> None:
        """Count the micro-batches of a running mean, once on each chip and in each stage.

        The mean itself takes the number of the iteration; this is for whoever wants to see it.
        """
        source = update.gradient.producer
        place = update.settings if source is None else source.settings
        chip, stage = place.virtual_graph, place.pipeline_stage
        name = f"{_COUNTER}{_numbered('_VGraph', chip)}{_numbered('_PStage', stage)}"
        if name in self.graph.tensors:
            return
        one = self.graph.add_constant("one", _SCALAR, np.ones((), np.float32))
        settings = OpSettings(origin=name, virtual_graph=chip, pipeline_stage=stage)
        build(
            self.graph,
            "Accumulate",
            [one],
            {"kind": "sum"},
            output_names=[name],
            settings=settings,
        )

    def _clip(self) -> None:
        """Scale the gradients of each group by max_norm / max(max_norm, norm)."""
        updates = {update.name: update for update in self.weights}
        for index, group in enumerate(self.resolution.clip_groups):
            settings = OpSettings(origin=f"clip_norm[{index}]")
            without_scale([updates[name] for name in group])
            scale = self._common_scale(index, [updates[name] for name in group])
            squares = [
                updates[name].total(
                    build(
                        self.graph, "LambSquare", [updates[name].gradient], settings=settings
                    ).output
                )
                for name in group
            ]
            total = build(self.graph, "Sum", squares, settings=settings).output
            root = build(self.graph, "Sqrt", [total], settings=settings).output
            norm = self.scalars.mul(root, scale)
            assert isinstance(norm, Tensor)
            self.graph.rename(norm, f"{_NORM}{index}")
            bound = self.spec.clip_norms[index].max_norm
            factor = self.scalars.div(bound, self.scalars.larger(norm, bound))
            for name in group:
                updates[name].scale = self.scalars.mul(scale, factor)

    def _common_scale(self, index: int, updates: Sequence[WeightUpdate]) -> Scalar:
        """The common factor of all gradients of a clipped group.

        Raises:
            OptionError: replicas do not share all the weights alike, so that they would not agree
                about the norm.
        """
        if len({update.sharing for update in updates}) > 1:
            own = [weight.name for weight in updates if weight.sharing.size < self.context.replicas]
            raise OptionError(
                f"clip_norms[{index}] bounds weights that all replicas share together with some "
                f"that they do not: {', '.join(own)}",
                subject="variable_settings",
                hint="list the tensors of each kind in clip norms of their own",
            )
        return updates[0].scale

    def _update(self, accumulated_later: Sequence[WeightUpdate]) -> None:
        """Apply the rules, to weights or several at a time, and store what they return and keep."""
        later = {update: update in accumulated_later for update in self.weights}
        whole = [weight for weight in self.weights if not isinstance(weight, ShardedUpdate)]
        kinds = [later[index] for index in whole]
        merged = merged_updates(self.graph, self.spec, self.context.merging, whole, kinds)
        sharded = [weight for weight in self.weights if isinstance(weight, ShardedUpdate)]
        for update in [*merged, *sharded]:
            of_one = update.members[0].update if isinstance(update, MergedUpdate) else update
            rule = self._rule(later=later[of_one])
            values: dict[Tensor, Tensor | None] = {update.weight: rule(update)}
            values |= update.states
            for target, value in values.items():
                assert value is not None, f"{target!r} has no next value"
                update.store(target, value)
        for update in self.weights:
            finish_parts(self.graph, update)

    def _loss_scaling(self) -> HyperParameter:
        given = self.spec.loss_scaling
        variable = "" if given.const else LOSS_SCALING
        return HyperParameter("loss_scaling", "default", given.value, variable)
