"""The order of the passes, each with the reason for its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from popc.progress import Snapshot
from popc.transforms.annotate_places import AnnotatePlaces
from popc.transforms.base import Pass
from popc.transforms.batch_serialization import (
    BatchSchedule,
    BatchSerialization,
    FillPhases,
    SumParts,
)
from popc.transforms.combine_convolutions import CombineConvolutions
from popc.transforms.combine_lookups import CombineLookups
from popc.transforms.combine_products import CombineProducts
from popc.transforms.common_subexpressions import CommonSubexpressions
from popc.transforms.constant_folding import ConstantFolding
from popc.transforms.dead_code import DeadCode
from popc.transforms.distribute_batch_norm import DistributeBatchNorm
from popc.transforms.early_slices import EarlySlices
from popc.transforms.fold_batch_norm import FoldBatchNorm
from popc.transforms.fold_channel_ops import FoldChannelOps
from popc.transforms.fuse_byte_epilogues import FuseByteEpilogues
from popc.transforms.fuse_elementwise import FuseElementwise
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
from popc.transforms.merge_collectives import MergeCollectives
from popc.transforms.merge_copies import MergeCopies
from popc.transforms.name_results import NameResults
from popc.transforms.outlining import Outlining
from popc.transforms.overlap_io import GroupHostSync, IoTileCopies, OverlapIo
from popc.transforms.partials_type import PartialsType
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
from popc.transforms.recompute import Recomputation
from popc.transforms.round_alike import RoundAlike
from popc.transforms.round_results import RoundResults
from popc.transforms.rules import RULES
from popc.transforms.serialize_lookups import SerializeLookups
from popc.transforms.serialize_products import SerializeProducts
from popc.transforms.set_precision import SetPrecision
from popc.transforms.simplify import LateSimplify, Simplify
from popc.transforms.stage_sums import SumsOfStages
from popc.transforms.streaming import MergeExchange, StreamingMemory
from popc.transforms.subgraph_outputs import SubgraphOutputs
from popc.transforms.update_priorities import UpdatePriorities
from popc.transforms.winograd import Winograd
from popc_runtime.ground.frozen import frozen

__all__ = ["PIPELINE", "PassPhase", "excludable_passes", "optional_passes"]


@frozen
class PassPhase:
    """Passes that run in order.

    Attributes:
        name: What the phase is called.
        passes: The classes; `Pass.of` makes passes of them.
        repeat: Whether they run again and again until none of them changes anything.
        snapshot: What the graph is called afterwards.
        before_gradients: Whether the phase also runs before differentiation: gradients of
            recognised ops (attention, normalisation, activations) are one op each; those of the
            formulas that they stand for are many.
    """

    name: str
    passes: tuple[type[Pass], ...]
    repeat: bool = False
    snapshot: Snapshot | None = None
    before_gradients: bool = False


PIPELINE: Final[tuple[PassPhase, ...]] = (
    # First, so that every later pass sees plain ops with side effects and no graph outputs.
    PassPhase("explicit io", (HostIo,)),
    # Before anything simplifies or fuses sums: what belongs to a part stays with it.
    PassPhase("gradients of parts", (FillPhases, SumParts)),
    # Before anything else: what follows works in the types that the program computes in.
    PassPhase("precision", (SetPrecision,), before_gradients=True),
    # Before anything is fused: no op may do what belongs to two chips.
    PassPhase("placement", (Placement,), before_gradients=True),
    # Before differentiation, for gradients flow through what replicas exchange.
    PassPhase("replicas", (DistributeBatchNorm,), before_gradients=True),
    # At any time: products of float16 stay products.
    PassPhase("partial sums", (PartialsType,)),
    # Before anything looks for products, and before differentiation, which cuts theirs.
    PassPhase("cut products", (SerializeProducts, SerializeLookups), before_gradients=True),
    # Before folding, which makes floats of quantised weights; never before differentiation,
    # for integers have no gradients.
    PassPhase("integer products", (IntegerProducts,)),
    PassPhase(
        "clean up",
        (
            DeadCode,  # first: nothing below should spend time on it
            InvariantStates,  # before folding: it makes constants of what loops carry
            HoistRowProducts,  # once weights are no states; before products get epilogues
            ConstantFolding,  # before merging: it makes more things equal
            CommonSubexpressions,
            Simplify,
        ),
        repeat=True,
        before_gradients=True,
    ),
    PassPhase(
        "recognise",
        (
            FuseQuantization,  # gives the others plain floating-point ops to look at
            RecogniseLayerNorm,
            RecogniseAttention,  # before epilogues: they would take the mask and the scale
            RecogniseActivations,  # HardSigmoid first appears here, and then HardSwish
            FuseLossGradients,
            DeadCode,  # the formulas that were replaced; they would hide sole users below
        ),
        repeat=True,
        snapshot=Snapshot.FWD1,
        before_gradients=True,
    ),
    # When attention and normalisation are one op each.  Before differentiation: rows that nobody
    # reads have no gradients.
    PassPhase(
        "early slices",
        (
            EarlySlices,
            CommonSubexpressions,  # two that read the same rows of a tensor
            ConstantFolding,  # rows of constants
            DeadCode,  # what made all rows
        ),
        repeat=True,
        before_gradients=True,
    ),
    # When the ops are those that gradients are taken of; gradients are placed beside them.
    PassPhase("automatic placement", (AutomaticPlacement,), before_gradients=True),
    # When all ops are placed, and those of the backward pass are there.
    PassPhase("annotations of places", (AnnotatePlaces,)),
    # When stages are settled.  Before fusions, which make epilogues of additions.
    PassPhase(
        "sums of stages",
        (
            SumsOfStages,
            DeadCode,  # sums of what is added up apart
        ),
    ),
    # Before differentiation too: one lookup has one gradient.
    PassPhase(
        "combine lookups",
        (
            CombineLookups,
            ConstantFolding,  # lists of rows
        ),
        before_gradients=True,
    ),
    PassPhase(
        "fold into weights",
        (
            FoldBatchNorm,  # makes the scales and offsets that the next pass folds
            FoldChannelOps,
            DeadCode,
        ),
        repeat=True,
    ),
    PassPhase(
        "fuse",
        (
            # After everything that looks for separate activations and additions.
            FuseEpilogues,
            FuseByteEpilogues,
            LateSimplify,
            CommonSubexpressions,
            DeadCode,
        ),
        repeat=True,
        snapshot=Snapshot.PRE_ALIAS,
    ),
    # When products have their biases and activations.
    PassPhase(
        "combine products",
        (
            CombineConvolutions,
            CombineProducts,
            ConstantFolding,  # weights side by side
            DeadCode,
        ),
    ),
    PassPhase(
        "parts of batches",
        (
            # Behind the fusions: what is repeated are the fused ops.  Before the main loops,
            # for inputs and weights are at one level.
            BatchSerialization,
            DeadCode,  # slices of what only ops that stay whole need
        ),
    ),
    # While the sums of gradients still are ops of their own.
    PassPhase(
        "priorities",
        (UpdatePriorities,),
    ),
    PassPhase(
        "loops",
        (
            # After the fusions, which look at one graph at a time.
            MainLoops,
            # After the loops exist; what it moves to the top level runs at load time.
            HoistInvariants,
            CommonSubexpressions,  # branches and iterations often hoist the same thing
            # After recognition and fusion, which look for sole users: what is repeated are the
            # fused ops, with the same kernels and so the same results.  After the loops: what
            # has been hoisted out of them is kept anyway.
            Recomputation,
            DeadCode,  # what hoisting leaves behind, and what only repetitions need now
            FinalPlacement,  # sums and states, which loops have added
            # When it is settled which results are repeated: others are kept for later stages.
            Pipelining,
            # When it is settled which results the backward pass reads.
            StreamingMemory,
            DeadCode,  # wholes of which only parts are kept
            # Nothing is repeated any more that would have to read what other tiles hold.
            IoTileCopies,
            OverlapIo,  # carries what the copies read or make
            GroupHostSync,
            MergeCollectives,  # when the order of all else is settled
            MergeExchange,  # likewise
            MergeCopies,  # behind it: it only says in which order copies run
            SubgraphOutputs,  # last: nothing may redirect a subgraph's outputs after it
        ),
        snapshot=Snapshot.MAIN_LOOPS,
    ),
    # When no op is computed, merged or replaced any more.
    PassPhase("exceptions and rounding", (RoundResults, RoundAlike, NameResults)),
    # When all ops are there.
    PassPhase("late placement", (LatePlacement,)),
    # When it is known on which chips updates and their transfers are.
    PassPhase(
        "outer fragment",
        (OuterFragment,),
    ),
    # When all ops are there, and all that keeps them apart: no pass has to know chains.  Before
    # orders are settled, which are about ops that run.
    PassPhase("chains", (FuseElementwise,)),
    # When all ops are there, and all that keeps them apart.
    PassPhase(
        "order of parts",
        (
            FillPhases,  # equal ops of several parts have been merged
            BatchSchedule,
        ),
    ),
    # When all ops are there: it compares those that read a tensor.
    PassPhase(
        "in place",
        (InplaceOrder,),
    ),
    # When all ops are there: gradients are convolutions too.
    PassPhase("algorithms", (Winograd,)),
    # At the very end: what is called from several places is not edited any more.
    PassPhase("outlining", (Outlining,)),
)


def _names(passes: Iterable[type[Pass]]) -> set[str]:
    return {pass_.name for pass_ in passes if pass_.optional} | {rule.name for rule in RULES}


@cache
def optional_passes() -> tuple[str, ...]:
    """Names of the passes and local rules that a user may disable, sorted."""
    return tuple(sorted(_names(_passes())))


@cache
def excludable_passes() -> tuple[str, ...]:
    """Names of the passes and rules that leave ops as they are if these say so, sorted."""
    return tuple(sorted(_names(pass_ for pass_ in _passes() if pass_.excludable)))


def _passes() -> Iterator[type[Pass]]:
    return (pass_ for phase in PIPELINE for pass_ in phase.passes)
