"""Options about how sums are rounded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from popc.options.kinds import Choice, Truth
from popc.options.schema import option

__all__ = ["ArithmeticOptions", "Partials"]


class Partials(StrEnum):
    """In which type sums of products of float16 add up."""

    FLOAT = "float"
    HALF = "half"


@dataclass(frozen=True)
class ArithmeticOptions:
    """The rounding of sums."""

    enable_stochastic_rounding: bool = option(
        Truth(),
        False,
        "Round float16 and bfloat16 results at random to one of their two neighbours. The "
        "nearer one is more likely, so that the mean is exact, and small updates of weights "
        "are not lost. The seed of the run decides; what is computed when the archive is "
        "loaded is rounded to nearest.",
        popart="enableStochasticRounding",
    )
    partials_type: Partials = option(
        Choice(*Partials),
        Partials.FLOAT,
        "Type in which convolutions of float16 add up. Like partials_type_matmuls, for Conv, "
        "ConvTranspose and the gradients of their weights.",
        popart="convolutionOptions.partialsType",
    )
    partials_type_matmuls: Partials = option(
        Choice(*Partials, synonyms={"": Partials.FLOAT}),  # PopART's default
        Partials.FLOAT,
        "Type in which products of float16 matrices add up. With half, the sum is rounded to "
        "float16 after every 16 products of an element, which is slow here; with float, once "
        "at the end. The attribute __partials_type of a node has precedence, and is understood "
        "by convolutions too: they add up 16 channels at all places of the window, and the "
        "gradient of their weights one sample at a time.",
        popart="partialsTypeMatMuls",
    )
    winograd: bool = option(
        Truth(),
        True,
        "Let native kernels compute 3 x 3 convolutions by Winograd's algorithm. They do where "
        "that is faster. Results then differ from sums of products by up to about five "
        "millionths of the largest one, and an infinite or undefined element makes all results "
        "of its tiles of 4 x 4 undefined.",
    )
