"""Where Winograd's algorithm takes less time than the sum of products: `tools/conv_costs.py`."""

from __future__ import annotations

from typing import Final

__all__ = ["LEAST_PIXELS"]

# Of a result of whole tiles, by channels of the input or of the result, whichever are fewer: those
# of the last row that is not above.
LEAST_PIXELS: Final = (
    (24, 3136),
    (32, 784),
    (64, 400),
    (128, 144),
    (256, 144),
    (512, 144),
)
