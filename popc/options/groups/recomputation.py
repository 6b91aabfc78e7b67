"""Options about what the backward pass computes once more."""

from __future__ import annotations

from enum import StrEnum

from popc.options.kinds import Choice, Patterns
from popc.options.schema import option
from popc_runtime.ground.frozen import inheritable

__all__ = ["AutoRecomputation", "RecomputationOptions"]


class AutoRecomputation(StrEnum):
    """The choice of what the backward pass computes once more."""

    NONE = "none"
    STANDARD = "standard"
    NORM_ONLY = "norm_only"
    RECOMPUTE_ALL = "recompute_all"
    PIPELINE = "pipeline"


@inheritable
class RecomputationOptions:
    """The results that the backward pass computes once more."""

    auto_recomputation: AutoRecomputation = option(
        Choice(*AutoRecomputation, synonyms={"norecompute": AutoRecomputation.NONE}),
        AutoRecomputation.NONE,
        "Results of the forward pass that the backward pass computes once more. That takes "
        "less memory than keeping them, and more time. Standard keeps the results that are "
        "live where the forward pass needs the least memory, at intervals that get shorter, "
        "and computes the others; norm_only computes those of normalisations only, "
        "recompute_all computes everything but checkpoints, and pipeline what the stages of a "
        "pipeline compute, but for the last one. Random numbers are always kept; of a "
        "dropout that is its seed. Training only, but for pipeline.",
        popart="autoRecomputation",
    )
    checkpoints: tuple[str, ...] = option(
        Patterns(),
        (),
        "Tensors that are always kept for the backward pass, by name or pattern (block*.out). "
        "They are kept whatever recompute or auto_recomputation say. Training only.",
    )
    recompute: tuple[str, ...] = option(
        Patterns(),
        (),
        "Tensors that the backward pass computes once more, by name or pattern (block*). What "
        "the nodes that make them compute on the way belongs to it. The attribute "
        "__recompute_output_in_backward_pass of a node says the same. Not together with "
        "auto_recomputation. Training only.",
    )
