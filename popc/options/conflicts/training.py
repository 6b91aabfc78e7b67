"""Options about training that do not go together with others."""

from __future__ import annotations

from dataclasses import replace

from popc.options.groups.recomputation import AutoRecomputation
from popc.options.groups.training import MergeVarUpdate
from popc.options.options import Options
from popc_runtime.errors import OptionError

__all__ = ["evaluation_options", "refuse_training_options"]


def evaluation_options(options: Options) -> Options:
    """The options of a training step for a program that evaluates the same weights."""
    plain = Options()
    return replace(
        options,
        constant_weights=False,
        accumulation_factor=plain.accumulation_factor,
        anchors=plain.anchors,
        auto_recomputation=options.auto_recomputation
        if options.enable_pipelining
        else plain.auto_recomputation,
        checkpoints=plain.checkpoints,
        merge_var_update=plain.merge_var_update,
        recompute=plain.recompute,
    )


def refuse_training_options(options: Options) -> None:
    """Refuse what only training uses.

    Raises:
        OptionError: this is no program that trains, but there are such options.
    """
    if options.accumulation_factor > 1:
        raise OptionError(
            "accumulation_factor is for training: it adds up gradients",
            subject="accumulation_factor",
            hint="train the model, or use batches_per_step",
        )
    auto = options.auto_recomputation
    of_stages = options.enable_pipelining and auto is AutoRecomputation.PIPELINE
    given = {
        "auto_recomputation": auto is not AutoRecomputation.NONE and not of_stages,
        "checkpoints": options.checkpoints,
        "merge_var_update": options.merge_var_update is not MergeVarUpdate.OFF,
        "recompute": options.recompute,
    }
    useless = [name for name, is_given in given.items() if is_given]
    if useless:
        raise OptionError(
            f"{', '.join(useless)}: for training; this program has no backward pass and no updates",
            subject=useless[0],
            hint="train the model, or leave them out",
        )
