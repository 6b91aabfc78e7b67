"""The kinds of vertices that a convolution can be made of, and the groups of channels they take."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from popc.cost.formulas.numbers import BYTES, round_up
from popc.cost.planner.problem import ConvProblem
from popc.target import Conv
from popc_runtime.ground.frozen import frozen

__all__ = ["Method", "VertexKind", "methods_for", "slic_chains", "weights_per_unit"]

_UNIT_BYTES: Final = 32  # of weights


class VertexKind(StrEnum):
    """A kind of vertex."""

    AMP = "amp"
    SLIC = "slic"
    HMAC = "hmac"
    VMAC = "vmac"
    OUTER_PRODUCT = "outer_product"


@frozen
class Method:
    """A kind of vertex with what it takes at once.

    Attributes:
        in_group, out_group: Channels; counts are padded to multiples of them.
        conv_group: Conv groups, likewise.
        units: Of AMP, how many are in use.
        filter_height: Of AMP, kernel rows whose weights are loaded together.
    """

    kind: VertexKind
    in_group: int
    out_group: int
    conv_group: int = 1
    units: int = 0
    filter_height: int = 1

    def __str__(self) -> str:
        return f"{self.kind} {self.conv_group}x{self.in_group}x{self.out_group}"


def methods_for(problem: ConvProblem, conv: Conv) -> list[Method]:
    """The methods that are worth a try for ``problem``."""
    methods = [*_amp(problem, conv), *_slic(problem, conv), *_vmac(problem)]
    if problem.in_channels == 1 and problem.positions == 1:
        width = 2 if problem.inputs_type == "float" else 4
        methods.append(Method(VertexKind.OUTER_PRODUCT, 1, width))
    if not methods or problem.in_channels * problem.out_channels <= 16:
        outs = 1 if problem.partials_type == "float" else 2
        methods.append(Method(VertexKind.HMAC, min(problem.in_channels, 16), outs))
    return methods


def weights_per_unit(inputs_type: str) -> int:
    """Input channels whose weights a unit of AMP holds: 32 bytes of them."""
    return _UNIT_BYTES // BYTES[inputs_type]


def _units(problem: ConvProblem, conv: Conv) -> int:
    if problem.inputs_type == "quarter":
        return conv.fp8_in_fp16_out_units
    if problem.inputs_type == "float":
        return conv.fp32_in_fp32_out_units
    if problem.partials_type == "float":
        return conv.fp16_in_fp32_out_units
    return conv.fp16_in_fp16_out_units


def _amp(problem: ConvProblem, conv: Conv) -> Iterator[Method]:
    units = _units(problem, conv)
    if units == 0:
        return
    weights = weights_per_unit(problem.inputs_type)
    for height in _heights(problem, weights):
        group = weights // height
        yield Method(VertexKind.AMP, group, units, units=units, filter_height=height)
        if units < 16 and problem.out_channels > units:
            yield Method(VertexKind.AMP, group, 16, units=units, filter_height=height)
    if units > 8 and problem.out_channels <= 8:
        yield Method(VertexKind.AMP, weights, 8, units=8)


def _heights(problem: ConvProblem, weights: int) -> list[int]:
    """Kernel rows that a vertex may take at once: so many fewer channels fill its units.

    More than one only where fewer channels have to be added then.
    """
    heights, least = [1], round_up(problem.in_channels, weights)
    for height in (2, 4) if problem.kernel[0] > 1 else ():
        padded = round_up(problem.in_channels, weights // height)
        if padded < least:
            heights.append(height)
            least = padded
    return heights


def _slic(problem: ConvProblem, conv: Conv) -> Iterator[Method]:
    """Windows of four along a row; as many input as output channels in a vertex.

    Inputs with zeros between them get these before.  More than four conv groups side by side need
    all units, and 16-bit partial results.
    """
    if problem.kernel[1] == 1 or problem.strides[1] > 2 or problem.dilations != (1, 1):
        return
    if problem.inputs_type == "quarter" and conv.fp8_in_fp16_out_units and problem.in_channels <= 8:
        yield Method(VertexKind.SLIC, 8, 8)
    if problem.inputs_type != "half" or problem.in_channels > 4:
        return
    channels = max(problem.in_channels, min(problem.out_channels, 4))
    if channels > 2 or problem.groups == 1:
        yield Method(VertexKind.SLIC, 4, 4)
        return
    yield Method(VertexKind.SLIC, channels, channels, conv_group=4 // channels)
    if channels == 1 and slic_chains(problem, conv) == 4:
        yield Method(VertexKind.SLIC, 1, 1, conv_group=8)
        yield Method(VertexKind.SLIC, 1, 1, conv_group=16)


def slic_chains(problem: ConvProblem, conv: Conv) -> int:
    """Chains of units that SLIC uses: all four for 16-bit partial results."""
    return 4 if problem.partials_type == "half" and conv.fp16_in_fp16_out_units == 16 else 2


def _vmac(problem: ConvProblem) -> Iterator[Method]:
    """Conv groups side by side; more than four of them with 16-bit partial results only."""
    few = problem.in_channels * problem.out_channels < _UNIT_BYTES
    if problem.inputs_type != "half" or problem.groups < 4 or not few:
        return
    for lanes in (4,) if problem.partials_type == "float" else (4, 8, 16):
        yield Method(VertexKind.VMAC, 1, 1, conv_group=lanes)
