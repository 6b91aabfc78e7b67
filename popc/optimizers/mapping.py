"""Gradients that functions of the model change before weights are updated with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from popc.ir import Graph, Op, Tensor
from popc.optimizers.scalars import Scalar
from popc.optimizers.update import WeightUpdate
from popc_runtime.errors import ModelError, OptionError

__all__ = ["FunctionCall", "map_gradient", "without_scale"]

# Calls a function of the model by name; its result, and the ops that compute it.
FunctionCall: TypeAlias = "Callable[[str, Graph, Sequence[Tensor]], tuple[Tensor, list[Op]]]"

_MAPPED: Final = "MappedGradient___"


def map_gradient(update: WeightUpdate, functions: Sequence[str], call: FunctionCall) -> None:
    """Change the gradient of a whole weight, that of all micro-batches and replicas.

    The functions get it without loss scale, and the weight in the type of the gradient.

    Raises:
        OptionError: there is no such function, or it gives something else than a gradient.
    """
    gradient = _scaled(update, update.gradient, update.whole, update.scale)
    weight = update.whole
    if weight.type.dtype is not gradient.type.dtype:
        weight = update.emit("Cast", [weight], attributes={"to": gradient.type.dtype.value})
    for name in functions:
        gradient = _called(update, name, gradient, weight, call)
    shape = {"shape": gradient.type.shape}
    gradient = update.emit("Reshape", [gradient], attributes={**shape}, prefix=_MAPPED)
    update.gradient = update.part(gradient)
    update.scale = 1.0


def without_scale(updates: Sequence[WeightUpdate]) -> None:
    """Multiply gradients by their scales, if these differ: then their norms can be compared."""
    if len({update.scale for update in updates}) == 1:
        return
    for update in updates:
        update.gradient = _scaled(update, update.gradient, update.weight, update.scale)
        update.scale = 1.0


def _scaled(update: WeightUpdate, gradient: Tensor, weight: Tensor, scale: Scalar) -> Tensor:
    if scale == 1:
        return gradient
    to = gradient.type.dtype.value
    return update.emit("ScaledGradient", [gradient, weight], [scale, 0.0], {"to": to})


def _called(
    update: WeightUpdate, name: str, gradient: Tensor, weight: Tensor, call: FunctionCall
) -> Tensor:
    try:
        result, ops = call(name, update.graph, [gradient, weight])
    except ModelError as error:
        raise OptionError(
            f"optimizer.gradient_map: {error.message}",
            subject="optimizer",
            hint=error.hint
            or "a function takes the gradient and the weight, and returns the "
            "gradient to update with",
            details=error.details,
        ) from error
    of = update.settings
    for op in ops:
        op.settings = replace(op.settings, origin=of.origin, virtual_graph=of.virtual_graph)
    if result.type != gradient.type:
        raise OptionError(
            f"optimizer.gradient_map: {name!r} makes {result.type} of the gradient of "
            f"{update.name!r}, but must make {gradient.type}",
            subject="optimizer",
        )
    return result
