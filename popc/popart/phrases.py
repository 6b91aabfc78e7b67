"""The words by which PopART's errors begin, of mistakes that popc words otherwise."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["leading_phrase"]

# A pattern of popc's text, and the words that programs for PopART look for.
_PHRASES: Final = {
    r"\[(?=.*-1.*-1).*\] is not a shape": (
        "shape input to ReshapeOp can only use -1 to specify one unknown dimension"
    ),
    r"some ops have no __ipu_number": (
        "Either all Ops must have their virtual graph ids set, or none must."
    ),
    r"no op has an __ipu_number": (
        "SessionOptions flag virtualGraphMode is VirtualGraphMode::Manual, but no Op has its "
        "virtual graph id set."
    ),
    r"(accumulation_factor is \d+, but a pipeline|enable_pipelining trains)": (
        "For pipelining, depth (gradient accumulation factor) must equal at least the number of "
        "pipeline stages."
    ),
}


def leading_phrase(text: str) -> str:
    """PopART's words for the mistake that ``text`` is about; "" if they are not known."""
    return next((words for pattern, words in _PHRASES.items() if re.search(pattern, text)), "")
