"""Random models: what they begin with, how they grow, what they return."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np

from tools.campaigns.random_models.builder import MOST_ELEMENTS, Builder
from tools.campaigns.random_models.evaluation import RefusedError
from tools.campaigns.random_models.layers import GENERAL, IMAGES, NETWORKS, SEQUENCES, Layer
from tools.campaigns.random_models.recipe import Recipe
from tools.campaigns.random_models.value import Value

__all__ = ["random_recipe"]

_OPSETS: Final = (11, 13, 17, 18, 19, 21, 22, 23, 23, 24, 25, 26)
_LAYERS: Final = (2, 14)  # fewest and most
_FEW_LAYERS: Final = (1, 3)
_MANY_ELEMENTS: Final = 1 << 13  # of an input
_FEW_ELEMENTS: Final = 1 << 8
_ATTEMPTS: Final = 4  # for each layer that is wanted


def random_recipe(seed: int, *, is_small: bool = False) -> tuple[Recipe, dict[str, Value]]:
    """The model of that seed, always the same, and the values of its tensors."""
    random = np.random.default_rng([seed, 0])
    dtype = np.float16 if random.random() < 0.2 else np.float32
    builder = Builder(random, _OPSETS[int(random.integers(len(_OPSETS)))], dtype)
    builder.least = int(not builder.chance(0.05))
    theme = _begin(builder, _FEW_ELEMENTS if is_small else _MANY_ELEMENTS)
    wanted = builder.number(*(_FEW_LAYERS if is_small else _LAYERS))
    if theme is IMAGES and builder.chance(0.6):
        _try(builder, builder.choice(NETWORKS))
        wanted += len(builder.nodes) // 2
    for _ in range(_ATTEMPTS * wanted):
        if len(builder.nodes) >= wanted:
            break
        layer = builder.choice(theme if builder.chance(0.75) else GENERAL)
        _repeat(builder, layer, builder.choice([*[1] * 9, 3]))
    recipe = builder.recipe(_outputs(builder))
    return recipe, builder.values


def _try(builder: Builder, layer: Layer) -> None:
    """Add a layer, or, where that cannot be, nothing to what later layers read."""
    known = len(builder.pool)
    try:
        layer(builder)
    except RefusedError:
        del builder.pool[known:]


def _repeat(builder: Builder, layer: Layer, times: int) -> None:
    """The same layer with the same weights, which is likely to read what it has made."""
    drawn = builder.random.bit_generator.state
    for _ in range(times):
        builder.random.bit_generator.state = drawn
        _try(builder, layer)


def _begin(builder: Builder, most: int) -> tuple[Layer, ...]:
    """Add the inputs, images of at most that many elements; what layers there will be most."""
    batch = builder.choice([1, 1, 2, 2, 3, 4, 8])
    kind = builder.choice([*["image"] * 5, "row", "volume", "sequence", "sequence", "any"])
    if kind == "any" or not builder.least:
        sizes = [1, 2, 3, 7, 8, 9, 16, *[0] * (1 - builder.least)]
        for _ in range(builder.number(1, 3)):
            shape = [builder.choice(sizes) for _ in range(builder.number(1, 4))]
            while prod(shape) > MOST_ELEMENTS:  # nothing could be made of it
                shape[shape.index(max(shape))] //= 2
            builder.keep(builder.add_input(builder.normal(*shape)))
        return GENERAL
    if kind == "sequence":
        shape = [batch, builder.choice([1, 3, 7, 8, 9, 16]), builder.channels()]
        for _ in range(builder.number(1, 2)):
            builder.keep(builder.add_input(builder.normal(*shape)))
        return SEQUENCES
    axes = {"row": 1, "image": 2, "volume": 3}[kind]
    extents = [builder.extent() for _ in range(axes)]
    if axes == 3:
        extents = [min(extent, 8) for extent in extents]
    if builder.chance(0.7):
        extents = [extents[0]] * axes
    shape = [min(batch, 3), min(builder.channels(), 17), *extents]
    while prod(shape) > most and max(shape[2:]) > 1:
        shape = [*shape[:2], *(max(extent // 2, 1) for extent in shape[2:])]
    for _ in range(builder.number(1, 2)):
        builder.keep(builder.add_input(builder.normal(*shape)))
    return IMAGES


def _outputs(builder: Builder) -> list[str]:
    """The values that nothing reads, and some of the rest."""
    read = {name for node in builder.nodes for name in node.input}
    made = [name for name in dict.fromkeys(builder.pool) if name not in builder.inputs]
    if not made:
        return [builder.do("Identity", [builder.pool[0]])]
    ends = [name for name in made if name not in read]
    between = [name for name in made if name in read]
    count = builder.choice([0, 0, 0, 1, 1, 2])
    extra = [builder.choice(between) for _ in range(count if between else 0)]
    if builder.chance(0.03):  # what a model is given, it may return
        extra.append(builder.choice([*builder.inputs]))
    return list(dict.fromkeys([*ends, *extra])) or made[-1:]
