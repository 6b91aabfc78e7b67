"""Options about how sums are rounded."""

from __future__ import annotations

from enum import StrEnum

from popc.options.kinds import Choice, Truth
from popc.options.schema import option
from popc_runtime.ground.frozen import inheritable

__all__ = ["ArithmeticOptions", "Partials", "Precision"]


class Partials(StrEnum):
    """In which type sums of products of float16 add up."""

    FLOAT = "float"
    HALF = "half"


class Precision(StrEnum):
    """The type in which a float32 model computes."""

    MODEL = "model"
    FLOAT16 = "float16"
    MIXED = "mixed"


@inheritable
class ArithmeticOptions:
    """The rounding of results."""

    enable_stochastic_rounding: bool = option(
        Truth(),
        False,
        "Round float16 and bfloat16 results at random to one of their two neighbours. The "
        "nearer one is more likely, so that the mean is exact, and small updates of weights "
        "are not lost. The seed of the run decides; what is computed when the archive is "
        "loaded is rounded to nearest.",
        popart="enableStochasticRounding",
    )
    nan_on_overflow: bool = option(
        Truth(),
        False,
        "Let finite results that are too large for float16 or bfloat16 become NaN rather than "
        "infinite.",
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
    precision: Precision = option(
        Choice(*Precision),
        Precision.MODEL,
        "Type in which a float32 model computes. Model leaves it as it is; float16 computes in "
        "float16, forward and backward, and keeps weights in it; mixed does so too, but keeps "
        "weights that are variables, and their updates, in float32. Inputs and outputs stay "
        "float32, and so does the loss that a training file adds. Constants that are too large "
        "become the largest finite float16. See docs/numerics.md.",
    )
    winograd: bool = option(
        Truth(),
        True,
        "Let native kernels compute 3 x 3 convolutions, and those along one axis, by Winograd's "
        "algorithm. They do where that is faster, for gradients of 3 x 3 weights too. Results then "
        "differ from sums of products by up to about five millionths of the largest one, and an "
        "infinite or undefined element makes all results of its tiles of 4 x 4, 4 or 6 undefined.",
    )
