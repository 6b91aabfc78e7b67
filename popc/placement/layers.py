"""Divide a model among chips by its layers, which names of nodes tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Final

from popc.ir import Graph, Op
from popc.placement.splitting import varying_ops
from popc_runtime.errors import OptionError

__all__ = ["split_by_layers"]

_REST: Final = -1  # in place of a number of layers: an even part of those left

# A name of what there are several of, and a number: /encoder/layer.3/output, h.0.attn, block_2/add.
_LAYER: Final = re.compile(
    r"(?P<stack>(?:^|.*?[./])(?:(?:[rx]_)?layers?|blocks?|h|resblocks))[._/](?P<number>[0-9]{1,6})(?=[./_]|$)"
)


def split_by_layers(graph: Graph, layers: Sequence[int]) -> int:
    """Put ``layers[k]`` layers of ``graph`` on chip k; -1 stands for an even part of the rest.

    Returns: how many ops.

    What stands in front of the first layer goes to the first chip, what follows the last layer to
    the last chip, anything else where the ops in front of it are.  Several stacks (an encoder and a
    decoder) count as one, in the order of the model.

    Raises:
        OptionError: names tell no layers, or another number of them.
    """
    order = varying_ops(graph)
    numbers = _numbered(order)
    count = max(numbers, default=-1) + 1
    if not count:
        raise OptionError(
            "layers_per_ipu counts layers, but no name of a node tells one",
            subject="layers_per_ipu",
            hint="layers are numbered, as in layer.3, blocks/3 or h.3; virtual_graph_mode = auto "
            "without layers_per_ipu divides a model by bytes",
        )
    ends = [*accumulate(_without_rest(layers, count))]
    cuts = [0, *(_start_of(numbers, first, count) for first in ends[:-1]), len(order)]
    for chip, (start, end) in enumerate(pairwise(cuts)):
        for op in order[start:end]:
            op.settings = replace(op.settings, virtual_graph=chip)
    return len(order)


def _without_rest(layers: Sequence[int], count: int) -> list[int]:
    """Numbers of layers; what is left of an even division goes to the last of those."""
    wild = [chip for chip, number in enumerate(layers) if number == _REST]
    fixed = sum(number for number in layers if number != _REST)
    if fixed > count or (not wild and fixed != count):
        raise OptionError(
            f"layers_per_ipu is {', '.join(map(str, layers))}, which are {fixed} layers, but the "
            f"model has {count}",
            subject="layers_per_ipu",
            hint="-1 stands for an even part of the layers that are left",
        )
    found = [number if number != _REST else (count - fixed) // len(wild) for number in layers]
    if wild:
        found[wild[-1]] += (count - fixed) % len(wild)
    return found


def _numbered(order: Sequence[Op]) -> list[int]:
    """The number of the layer of each op, counted through all stacks; -1 where there is none."""
    named = [_named(op) for op in order]
    known = sorted({layer for layer in named if layer}, key=lambda layer: layer[1])
    stacks = list(dict.fromkeys(stack for layer in named if layer for stack in layer[:1]))
    ordered = [layer for stack in stacks for layer in known if layer[0] == stack]
    places = {layer: place for place, layer in enumerate(ordered)}
    return [places[layer] if layer else -1 for layer in named]


def _named(op: Op) -> tuple[str, int] | None:
    """Stack and number of the layer that the name of an op tells."""
    found = _LAYER.match(op.settings.origin.partition(", ")[0])
    return (found["stack"], int(found["number"])) if found else None


def _start_of(numbers: Sequence[int], first: int, count: int) -> int:
    """The place of the first op of layer ``first``, or behind the last layer."""
    if first < count:
        return next(place for place, number in enumerate(numbers) if number >= first)
    return max(place for place, number in enumerate(numbers) if number >= 0) + 1
