"""Passes that take more of the options than one argument each."""

from __future__ import annotations

from collections.abc import Iterator

from popc.options import FloatingPointException, Options
from popc.transforms.base import Pass
from popc.transforms.fuse_elementwise import FuseElementwise
from popc.transforms.merge_collectives import MergeCollectives
from popc.transforms.name_results import NameResults
from popc.transforms.outlining import Outlining, Terms
from popc.transforms.recompute import Orders
from popc.transforms.round_alike import RoundAlike
from popc.transforms.round_results import RoundResults

__all__ = ["chains", "floating_point_passes", "merge_collectives", "outlining"]


def merge_collectives(options: Options, orders: Orders) -> MergeCollectives:
    """Those kinds that are wanted."""
    wanted = {
        "ReplicatedAllGather": options.merge_all_gather_collectives,
        "ReplicatedAllReduce": options.merge_all_reduce_collectives,
        "ReplicatedReduceScatter": options.merge_reduce_scatter_collectives,
    }
    chosen = frozenset(name for name, is_wanted in wanted.items() if is_wanted)
    return MergeCollectives(chosen, options.prepare_schedule_for_merging_collectives, orders)


def outlining(options: Options, orders: Orders) -> Outlining:
    """What is worth a graph of its own."""
    terms = Terms(
        options.outline_threshold,
        options.outline_sequence_break_cost,
        options.enable_outlining_copy_cost_pruning,
    )
    return Outlining(options.enable_outlining, terms, orders)


def chains(options: Options) -> Iterator[Pass]:
    """Not where each result is looked at, or rounded, by itself."""
    if not options.enable_stochastic_rounding and not options.enable_floating_point_checks:
        yield FuseElementwise()


def floating_point_passes(options: Options) -> Iterator[Pass]:
    """How results are rounded, and how they are named where they are looked at."""
    checks = options.enable_floating_point_checks
    nan = checks and FloatingPointException.NAN_ON_OVERFLOW in options.floating_point_exceptions
    yield RoundResults(options.enable_stochastic_rounding, nan)
    if options.enable_stochastic_rounding and options.replicated_graph_count > 1:
        yield RoundAlike(options.replicated_graph_count)
    if checks:
        yield NameResults()
