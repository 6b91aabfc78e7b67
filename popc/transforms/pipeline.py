"""The order of the passes, each with the reason for its place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from popc.ir import Graph, Op, Tensor
from popc.options import Options
from popc.progress import Checkpoint
from popc.transforms.base import Pass, PassReport, run_to_fixed_point
from popc.transforms.batch_serialization import (
    BatchSchedule,
    BatchSerialization,
    FillPhases,
    SumParts,
)
from popc.transforms.chosen import (
    chains,
    floating_point_passes,
    merge_collectives,
    outlining,
)
from popc.transforms.combine_convolutions import CombineConvolutions
from popc.transforms.combine_lookups import CombineLookups
from popc.transforms.combine_products import CombineProducts
from popc.transforms.common_subexpressions import CommonSubexpressions
from popc.transforms.constant_folding import ConstantFolding
from popc.transforms.dead_code import DeadCode
from popc.transforms.distribute_batch_norm import DistributeBatchNorm
from popc.transforms.fold_batch_norm import FoldBatchNorm
from popc.transforms.fold_channel_ops import FoldChannelOps
from popc.transforms.fuse_byte_epilogues import FuseByteEpilogues
from popc.transforms.fuse_epilogues import FuseEpilogues
from popc.transforms.fuse_loss_gradients import FuseLossGradients
from popc.transforms.fuse_quantization import FuseQuantization
from popc.transforms.hoist_invariants import HoistInvariants
from popc.transforms.hoist_row_products import HoistRowProducts
from popc.transforms.host_io import HostIo
from popc.transforms.inplace_order import InplaceOrder
from popc.transforms.integer_products import IntegerProducts
from popc.transforms.invariant_states import InvariantStates
from popc.transforms.main_loops import MainLoops
from popc.transforms.outlining import Outlining
from popc.transforms.overlap_io import GroupHostSync, IoTileCopies, OverlapIo
from popc.transforms.partials_type import PartialsType
from popc.transforms.patterns import chosen_rules, is_on
from popc.transforms.pipelining import OuterFragment, Pipelining
from popc.transforms.placement import (
    AutomaticPlacement,
    FinalPlacement,
    LatePlacement,
    Placement,
)
from popc.transforms.recognise_activations import RecogniseActivations
from popc.transforms.recognise_attention import RecogniseAttention
from popc.transforms.recognise_layer_norm import RecogniseLayerNorm
from popc.transforms.recompute import Orders, Recomputation, insertion_orders
from popc.transforms.round_results import rounds
from popc.transforms.rules import RULES
from popc.transforms.serialize_products import SerializeProducts
from popc.transforms.simplify import Simplify
from popc.transforms.streaming import MergeExchange, StreamingMemory
from popc.transforms.subgraph_outputs import SubgraphOutputs
from popc.transforms.update_priorities import UpdatePriorities
from popc.transforms.winograd import Winograd

__all__ = [
    "Phase",
    "Transformation",
    "build_pipeline",
    "cut_before_gradients",
    "excludable_passes",
    "optional_passes",
    "prepare_for_training",
    "transform",
]


@dataclass(frozen=True, slots=True)
class Phase:
    """Passes that run in order: once, or again and again until none of them changes anything."""

    name: str
    passes: tuple[Pass, ...]
    repeat: bool = False
    checkpoint: Checkpoint | None = None  # what the graph is called afterwards


def build_pipeline(
    options: Options, orders: Orders = insertion_orders, *, trains: bool = False
) -> tuple[Phase, ...]:
    """All phases for ``options``, in order.  Disabled passes are left out by `transform`.

    ``orders`` tells passes in which order ops are going to run; ``trains`` whether a backward pass
    is still to come.
    """
    dead_code = DeadCode()
    folding = ConstantFolding(options.fold_limit_bytes)
    merging = CommonSubexpressions()
    simplify = Simplify(chosen_rules(options, late=False))
    tidy = Simplify(chosen_rules(options, late=True))
    return (
        # First, so that every later pass sees plain ops with side effects and no graph outputs.
        Phase("explicit io", (HostIo(options),)),
        # Before anything simplifies or fuses sums: what belongs to a part stays with it.
        Phase("gradients of parts", (FillPhases(), SumParts())),
        # Before anything is fused: no op may do what belongs to two chips.
        Phase("placement", (Placement(),)),
        # Before differentiation, for gradients flow through what replicas exchange.
        Phase(
            "replicas",
            (DistributeBatchNorm(options.distributed_batch_norm_replica_group_size),),
        ),
        # At any time: products of float16 stay products.
        Phase(
            "partial sums", (PartialsType(options.partials_type_matmuls, options.partials_type),)
        ),
        # Before anything looks for products, and before differentiation, which cuts theirs.
        Phase("cut products", (SerializeProducts(options.enable_serialized_matmuls),)),
        # Before folding, which makes floats of quantised weights; never before differentiation,
        # for integers have no gradients.
        Phase("integer products", () if trains else (IntegerProducts(),)),
        Phase(
            "clean up",
            (
                dead_code,  # first: nothing below should spend time on it
                InvariantStates(),  # before folding: it makes constants of what loops carry
                HoistRowProducts(),  # once weights are no states; before products get epilogues
                folding,  # before merging: it makes more things equal
                merging,
                simplify,
            ),
            repeat=True,
        ),
        Phase(
            "recognise",
            (
                FuseQuantization(),  # gives the others plain floating-point ops to look at
                RecogniseLayerNorm(),
                RecogniseAttention(),  # before epilogues: they would take the mask and the scale
                RecogniseActivations(),  # HardSigmoid first appears here, and then HardSwish
                FuseLossGradients(),
                dead_code,  # the formulas that were replaced; they would hide sole users below
            ),
            repeat=True,
            checkpoint=Checkpoint.FWD1,
        ),
        # When the ops are those that gradients are taken of; gradients are placed beside them.
        Phase("automatic placement", (AutomaticPlacement(options, trains),)),
        # Before differentiation too: one lookup has one gradient.
        Phase(
            "combine lookups",
            (
                CombineLookups(options.combine_embedding_lookups),
                *((folding,) if options.combine_embedding_lookups else ()),  # lists of rows
            ),
        ),
        Phase(
            "fold into weights",
            (
                FoldBatchNorm(),  # makes the scales and offsets that the next pass folds
                FoldChannelOps(),
                dead_code,
            ),
            repeat=True,
        ),
        Phase(
            "fuse",
            (
                # After everything that looks for separate activations and additions.
                FuseEpilogues(),
                FuseByteEpilogues(),
                tidy,
                merging,
                dead_code,
            ),
            repeat=True,
            checkpoint=Checkpoint.PRE_ALIAS,
        ),
        # When products have their biases and activations.
        Phase(
            "combine products",
            (
                CombineConvolutions(options.combine_convolutions),
                CombineProducts(options.combine_matmuls),
                *_folded_weights(options, folding, dead_code),
            ),
        ),
        Phase(
            "parts of batches",
            (
                # Behind the fusions: what is repeated are the fused ops.  Before the main loops,
                # for inputs and weights are at one level.
                BatchSerialization(options),
                dead_code,  # slices of what only ops that stay whole need
            ),
        ),
        # While the sums of gradients still are ops of their own.
        Phase(
            "priorities",
            (
                UpdatePriorities(
                    options.delay_var_updates,
                    options.schedule_non_weight_update_gradient_consumers_early,
                ),
            ),
        ),
        Phase(
            "loops",
            (
                # After the fusions, which look at one graph at a time.
                MainLoops(options.batches_per_step, options.accumulation_factor),
                # After the loops exist; what it moves to the top level runs at load time.
                HoistInvariants(),
                merging,  # branches and iterations often hoist the same thing
                # After recognition and fusion, which look for sole users: what is repeated are the
                # fused ops, with the same kernels and so the same results.  After the loops: what
                # has been hoisted out of them is kept anyway.
                Recomputation(options.auto_recomputation, orders, _rounds_at_random(options)),
                dead_code,  # what hoisting leaves behind, and what only repetitions need now
                FinalPlacement(),  # sums and states, which loops have added
                # When it is settled which results are repeated: others are kept for later stages.
                Pipelining(
                    options.enable_pipelining, options.pipeline_schedule, _repeats_stages(options)
                ),
                # When it is settled which results the backward pass reads.
                StreamingMemory(options, orders),
                dead_code,  # wholes of which only parts are kept
                # Nothing is repeated any more that would have to read what other tiles hold.
                IoTileCopies(options.num_io_tiles),
                OverlapIo(),  # carries what the copies read or make
                GroupHostSync(options.group_host_sync),
                merge_collectives(options, orders),  # when the order of all else is settled
                MergeExchange(options.enable_merge_exchange, orders),  # likewise
                SubgraphOutputs(),  # last: nothing may redirect a subgraph's outputs after it
            ),
            checkpoint=Checkpoint.MAIN_LOOPS,
        ),
        # When no op is computed, merged or replaced any more.
        Phase("exceptions and rounding", tuple(floating_point_passes(options))),
        # When all ops are there.
        Phase("late placement", (LatePlacement(),)),
        # When it is known on which chips updates and their transfers are.
        Phase(
            "outer fragment",
            (
                OuterFragment(
                    options.enable_pipelining,
                    options.accumulate_outer_fragment_schedule,
                    options.accumulate_outer_fragment_excluded_virtual_graphs,
                ),
            ),
        ),
        # When all ops are there, and all that keeps them apart: no pass has to know chains.  Before
        # orders are settled, which are about ops that run.
        Phase("chains", tuple(chains(options))),
        # When all ops are there, and all that keeps them apart.
        Phase(
            "order of parts",
            (
                FillPhases(),  # equal ops of several parts have been merged
                BatchSchedule(options.batch_serialization_batch_schedule, orders),
            ),
        ),
        # When all ops are there: it compares those that read a tensor.
        Phase(
            "in place",
            (InplaceOrder(options.enable_inplace, options.enable_inplace_ambiguity_checking),),
        ),
        # When all ops are there: gradients are convolutions too.
        Phase("algorithms", (Winograd(options.winograd),)),
        # At the very end: what is called from several places is not edited any more.
        Phase("outlining", (outlining(options, orders),)),
    )


def _folded_weights(options: Options, *passes: Pass) -> tuple[Pass, ...]:
    """``passes``, if weights have been put together."""
    return passes if options.combine_convolutions or options.combine_matmuls else ()


def _repeats_stages(options: Options) -> bool:
    again = options.auto_recomputation == "pipeline"
    return again and not options.stash_all_tensors_inference_pipeline


def _rounds_at_random(options: Options) -> Callable[[Op], bool]:
    return rounds if options.enable_stochastic_rounding else (lambda _: False)


def build_training_preparation(options: Options) -> tuple[Phase, ...]:
    """The phases that a graph goes through before it is differentiated.

    Gradients of recognised ops (attention, normalisation, activations) are one op each; those of
    the formulas that they stand for are many.
    """
    wanted = (
        "placement",
        "replicas",
        "cut products",
        "clean up",
        "recognise",
        "automatic placement",
        "combine lookups",
    )
    phases = build_pipeline(options, trains=True)
    return tuple(phase for phase in phases if phase.name in wanted)


def optional_passes() -> tuple[str, ...]:
    """Names of the passes and local rules that a user may disable, sorted."""
    passes = [one for phase in build_pipeline(Options()) for one in phase.passes]
    return tuple(sorted({one.name for one in passes if one.optional} | _rule_names()))


def excludable_passes() -> tuple[str, ...]:
    """Names of the passes and rules that leave ops as they are if these say so, sorted."""
    passes = [one for phase in build_pipeline(Options()) for one in phase.passes]
    excludable = {one.name for one in passes if one.optional and one.excludable}
    return tuple(sorted(excludable | _rule_names()))


def _rule_names() -> set[str]:
    return {rule.name for rule in RULES}


@dataclass(frozen=True, slots=True)
class Transformation:
    """A run of the pipeline.

    Attributes:
        reports: Of each run of each pass.
        orders_hold: Whether the orders that a pass has asked for last are still those of the graph.
    """

    reports: tuple[PassReport, ...]
    orders_hold: bool


def transform(
    graph: Graph,
    options: Options,
    orders: Orders = insertion_orders,
    on_checkpoint: Callable[[Checkpoint], None] | None = None,
) -> Transformation:
    """Run the pipeline on ``graph``, in place.

    ``on_checkpoint`` is called when the graph has reached one.
    """
    asked: list[Graph] = []

    def watched(edited: Graph) -> Mapping[Graph, Sequence[Op]]:
        asked.append(edited)
        return orders(edited)

    reports = _run(build_pipeline(options, watched), graph, options, on_checkpoint)
    last = reports[-1]
    hold = options.enable_outlining and bool(asked) and last.name == Outlining.name
    return Transformation(tuple(reports), hold and not last.changes)


def prepare_for_training(graph: Graph, options: Options) -> list[PassReport]:
    """Run on ``graph`` what comes before differentiation; what each run of each pass did."""
    return _run(build_training_preparation(options), graph, options)


def cut_before_gradients(
    graph: Graph, options: Options, barriers: Collection[Tensor]
) -> list[PassReport]:
    """Cut the batch of a graph that ends with the loss, if that is wanted before differentiation.

    ``barriers`` are tensors that must stay, since their gradients are asked for.
    """
    if options.batch_serialization_transform_context != "fwd":
        return []
    passes = (BatchSerialization(options, barriers), DeadCode())
    return _run((Phase("parts of batches", passes),), graph, options)


def _run(
    phases: Sequence[Phase],
    graph: Graph,
    options: Options,
    on_checkpoint: Callable[[Checkpoint], None] | None = None,
) -> list[PassReport]:
    check = options.verify_ir
    reports: list[PassReport] = []
    for phase in phases:
        passes = [
            one for one in phase.passes if not one.optional or is_on(one.name, one.level, options)
        ]
        if phase.repeat:
            reports.extend(run_to_fixed_point(passes, graph, check=check))
        else:
            reports.extend(one(graph, check=check) for one in passes)
        if on_checkpoint is not None and phase.checkpoint is not None:
            on_checkpoint(phase.checkpoint)
    return reports
