"""The fastest algorithm of a convolution by its shape: `tools/conv_costs.py`."""

from __future__ import annotations

from popc_runtime.ground.hints import Final

__all__ = ["LEAST_PIXELS", "MOST_PIXELS"]

# From where on Winograd's algorithm beats the sum of products: pixels of a result of whole tiles,
# by channels of the input or of the result, whichever are fewer: those of the last row that is not
# above.
LEAST_PIXELS: Final = (
    (16, 64),
    (24, 64),
    (32, 64),
    (64, 64),
    (128, 64),
    (256, 64),
    (512, 64),
)

# Up to where images with their channels first are best turned and read pixel by pixel: pixels of a
# result, by numbers of a window: those of the last row that is not above.
MOST_PIXELS: Final = (
    (48, 1),
    (192, 9),
    (1536, 49),
)
