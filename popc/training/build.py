"""Add the backward pass and the weight updates to an imported model."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Final

import numpy as np

from popc.autodiff import GRADIENT_PREFIX, differentiate
from popc.frontend import ImportedModel, listed
from popc.ir import Graph, OpSettings, StepPart, Tensor, TensorType
from popc.ops.build import build
from popc.optimizers import (
    ACCUMULATED,
    STATE_PREFIXES,
    Division,
    Merging,
    Sharing,
    UpdateContext,
    add_updates,
    loss_scale,
    optimizer_to_mapping,
)
from popc.options import Options, did_you_mean
from popc.placement import mirror_backward
from popc.training.losses import add_loss
from popc.training.names import training_anchors
from popc.training.parts import added_ops_in, mark_forward
from popc.training.preparation import GraphRewrite, rewrite_with_loss
from popc.training.settings import TrainingSettings
from popc.training.state import sharing_of, show_updated, write_updates
from popc_runtime.errors import ModelError, OptionError, UsageError
from popc_runtime.format import DType, TrainingSpec
from popc_runtime.kernels.core.stored import as_stored

__all__ = ["add_training", "require_weights"]

_WILD: Final = frozenset("*?[")  # what makes a name a pattern
_LARGEST_HALF: Final = 65504.0  # the largest finite float16
_LARGEST_SCALE: Final = 2.0**15  # of the loss of a sample: float16 has twice as much, and no more


def add_training(
    model: ImportedModel,
    settings: TrainingSettings,
    options: Options,
    rewrite: GraphRewrite = lambda *_: None,
) -> tuple[ImportedModel, TrainingSpec]:
    """Turn the graph of ``model`` into a training step.

    The first output is the loss; those that the user asked for follow.  ``rewrite`` edits the graph
    when it has a loss and no gradients yet.  A note tells which weights are not trained although
    the settings name them.

    Raises:
        ModelError: the loss is no scalar, no weight influences it, or an op on the way has no
            gradient.
        OptionError: the optimizer names weights that are not trained.
        UsageError: an anchor does not exist.
    """
    graph = model.graph
    in_float32 = options.ensure_fp32_loss_scale_tensor
    loss = add_loss(graph, settings.loss, _finder(model), in_float32=in_float32)
    _require_scalar(loss)
    weights = _weights(model)
    _, added = training_anchors(options.anchors, settings.loss.name)
    anchored = _anchored_tensors(model, added)
    bound = _bound(model, settings, loss)
    model, loss, anchored = rewrite_with_loss(model, loss, anchored, rewrite)
    mark_forward(graph, loss)
    with added_ops_in(graph, StepPart.BACKWARD):
        scale = loss_scale(graph, settings.optimizer)
        gradients = differentiate(
            graph,
            {loss: _seed(graph, loss, scale)},
            dict.fromkeys([*weights, *anchored.values()]),
            decompose_sums=options.decompose_grad_sum,
        )
    mirror_backward(graph)
    pairs = _pairs(weights, gradients, settings)
    with added_ops_in(graph, StepPart.UPDATE):
        context = replace(
            _context(options, loss, scale), largest_loss_scale=bound, call=model.functions.call
        )
        result = add_updates(graph, pairs, settings.optimizer, context)
    write_updates(model, options, StepPart.ASIDE)
    known = _known_tensors(graph, added, result.known)
    added_outputs = _added_outputs(graph, added, gradients, anchored, known)
    _set_outputs(graph, loss, settings.loss.name, added_outputs)
    described = TrainingSpec(
        optimizer=settings.optimizer.type,
        loss=graph.output_names[0],
        settings=json.dumps(optimizer_to_mapping(settings.optimizer), sort_keys=True),
        clip_norms=result.clip_norms,
        hyper_parameters=result.hyper_parameters,
    )
    notes = _untrained(settings, [weight for weight, _ in pairs])
    return replace(model.with_ends_of_graph(), notes=(*model.notes, *notes)), described


def require_weights(settings: TrainingSettings, names: Collection[str]) -> None:
    """Compare the weights that settings speak of with those that there are.

    Raises:
        OptionError: a name or pattern fits none.
    """
    details = [
        f"there is no weight {pattern!r}; {did_you_mean(pattern, names)}".rstrip("; ")
        for pattern in (*settings.trainable, *settings.frozen)
        if not any(fnmatchcase(name, pattern) for name in names)
    ]
    if details:
        raise OptionError(
            "weights to train or to freeze do not exist",
            subject="weights",
            details=tuple(details),
        )


def _untrained(settings: TrainingSettings, trained: Sequence[Tensor]) -> list[str]:
    """A note on weights that are named, not by a pattern, and not trained: at most one."""
    names = {weight.name for weight in trained}
    exact = (name for name in settings.trainable if not _WILD.intersection(name))
    left = [name for name in exact if name not in names]
    if not left:
        return []
    stay = "it stays as it is: it is" if len(left) == 1 else "they stay as they are: each is"
    why = "frozen, not floating-point, a running statistic, or nothing that the loss depends on"
    return [f"trainable names {listed(left)}, but {stay} {why}"]


def _pairs(
    weights: Sequence[Tensor], gradients: Mapping[Tensor, Tensor], settings: TrainingSettings
) -> list[tuple[Tensor, Tensor]]:
    """The weights that influence the loss, with their gradients.

    Without any there must be another gradient that is asked for.
    """
    pairs = [(weight, gradients[weight]) for weight in weights if weight in gradients]
    if not pairs and not gradients and settings.needs_weights:
        loss = settings.loss.name
        raise ModelError(
            f"no weight influences the loss {loss!r}",
            subject=loss,
            hint="name a loss that depends on trainable weights; `popc inspect` lists them",
        )
    return pairs


def _finder(model: ImportedModel) -> Callable[[str], Tensor]:
    def find(name: str) -> Tensor:
        tensor = model.values.get(name) or model.graph.tensors.get(name)
        if tensor is None:
            guess = did_you_mean(name, [*model.values, *model.graph.tensors])
            raise UsageError(f"training: there is no tensor {name!r}", hint=guess)
        return tensor

    return find


def _require_scalar(loss: Tensor) -> None:
    if loss.type.size != 1:
        raise ModelError(
            f"the loss {loss.name!r} is {loss.type}, but must be a single number",
            subject=loss.name,
            hint='add it up: type = "identity" with reduction = "mean" or "sum"',
        )
    if not loss.type.dtype.is_float:
        raise ModelError(
            f"the loss {loss.name!r} is {loss.type}, but must be a floating-point number",
            subject=loss.name,
        )


def _weights(model: ImportedModel) -> list[Tensor]:
    """The variables to train; statistics that the model updates itself are none."""
    updated = {variable for variable, _ in model.updates}
    return [weight for weight in model.graph.variables if weight not in updated]


def _seed(graph: Graph, loss: Tensor, scale: Tensor | float) -> Tensor:
    """The gradient of the loss: the loss scale, in the type of the loss.

    Raises:
        OptionError: the type does not have such a large number.
    """
    type_ = loss.type
    if type_.dtype is DType.FLOAT16 and isinstance(scale, float) and scale > _LARGEST_HALF:
        raise OptionError(
            f"loss_scaling is {scale:g}, but the loss {loss.name!r} is float16, "
            f"whose largest value is {_LARGEST_HALF:g}",
            subject="loss_scaling",
            hint="the option ensure_fp32_loss_scale_tensor = true computes the loss in float32",
        )
    if isinstance(scale, Tensor):
        origin = OpSettings(origin="lossScaling")
        if scale.type.dtype is not type_.dtype:
            to = {"to": type_.dtype.value}
            scale = build(graph, "Cast", [scale], dict(to), settings=origin).output
        return build(graph, "Reshape", [scale], {"shape": type_.shape}, settings=origin).output
    data = as_stored(np.full(type_.shape, scale, np.float32), type_.dtype)
    return graph.add_constant("lossScaling", type_, data)


def _bound(model: ImportedModel, settings: TrainingSettings, loss: Tensor) -> float:
    """The largest value of a loss scale that adapts itself.

    The gradient of a mean over samples is that of each sample over their number: then the scale of
    the mean may be as many times larger, unless it is a float16 itself.
    """
    if loss.type.dtype is DType.FLOAT16 or settings.loss.reduction != "mean":
        return _LARGEST_SCALE
    shape = _finder(model)(settings.loss.input).type.shape
    return _LARGEST_SCALE * (shape[0] if len(shape) > 1 else 1)


def _context(options: Options, loss: Tensor, scale: Tensor | float) -> UpdateContext:
    return UpdateContext(
        accumulation_factor=options.accumulation_factor,
        reduction=options.reduction_of_micro_batches,
        reduction_of_replicas=options.reduction_of_replicas,
        mean_strategy=options.mean_accumulation_and_replication_reduction_strategy,
        loss_scale=scale,
        replicas=options.replicated_graph_count,
        sharing=partial(sharing_of, options),
        divided=partial(_divided, options),
        merging=Merging(
            options.merge_var_update,
            options.merge_var_update_mem_threshold,
            options.loose_threshold_at_peak,
            loss,
        ),
    )


def _divided(options: Options, weight: Tensor) -> Division:
    """The groups of replicas that divide a weight, its state, or the sum of its gradients."""

    def domain(kind: str, *prefixes: str) -> Sharing | None:
        places = (options.tensor_location(kind, f"{prefix}{weight.name}") for prefix in prefixes)
        groups = [place.sharding_domain for place in places if place.divides(weight.type.size)]
        replicas = options.replicated_graph_count
        if not groups or replicas == 1:
            return None
        return Sharing(groups[0].members(replicas), groups[0].stride(replicas))

    return Division(
        domain("weight", ""),
        domain("optimizer_state", *STATE_PREFIXES),
        domain("accumulator", ACCUMULATED),
    )


# -- outputs ---------------------------------------------------------------------------------------


def _anchored_tensors(model: ImportedModel, added: Sequence[str]) -> dict[str, Tensor]:
    """The tensors whose gradients are anchored, by the names of the gradients."""
    find = _finder(model)
    return {
        name: find(name.removeprefix(GRADIENT_PREFIX))
        for name in added
        if name.startswith(GRADIENT_PREFIX)
    }


def _set_outputs(
    graph: Graph,
    loss: Tensor,
    name: str,
    named: Mapping[str, Tensor],
) -> None:
    """The loss first; variables that are outputs give the values that they get."""
    others = list(zip(graph.output_names, graph.outputs, strict=True))
    graph.outputs.clear()
    graph.output_names.clear()
    graph.add_output(name, loss)
    for other, tensor in [*others, *named.items()]:
        if other != name:
            graph.add_output(other, tensor)
    show_updated(graph)


def _known_tensors(
    graph: Graph, names: Sequence[str], known: Mapping[str, Tensor | float]
) -> dict[str, Tensor]:
    """The numbers of the updates among ``names``; constants are added for constant ones."""
    kind, found = TensorType(DType.FLOAT32, ()), dict[str, Tensor]()
    for name in names:
        number = known.get(name)
        if isinstance(number, float):
            number = graph.add_constant(name, kind, np.asarray(number, np.float32))
        if number is not None:
            found[name] = number
    return found


def _added_outputs(
    graph: Graph,
    names: Sequence[str],
    gradients: Mapping[Tensor, Tensor],
    anchored: Mapping[str, Tensor],
    known: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """The tensors that training has added and the user has anchored, by their ``names``."""
    found = {name: gradients[tensor] for name, tensor in anchored.items() if tensor in gradients}
    found |= known
    for name in names:
        if name not in found and name in graph.tensors:
            found[name] = graph.tensors[name]
    missing = [name for name in names if name not in found]
    if missing:
        raise UsageError(
            f"anchors: training computes no tensor {', '.join(map(repr, missing))}",
            subject=missing[0],
            hint="Gradient___x, UpdatedVar___w and the optimizer's state can be anchored, "
            "for tensors that influence the loss",
        )
    return found
