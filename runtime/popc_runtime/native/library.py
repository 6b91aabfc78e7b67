"""The native library: whether there is one, and what it can do here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any

from popc_runtime.frozen import frozen

__all__ = ["Library", "find_library", "variants", "why_missing"]


@frozen
class Library:
    """Kernels for one kind of processor.

    Attributes:
        variant: Which kind: "x86-64-v3", "x86-64-v4" or "aarch64".
        numbers: The number of each kernel by its name.
        module: The extension module.
    """

    variant: str
    numbers: Mapping[str, int]
    module: Any


@cache
def find_library(variant: str = "") -> Library | None:
    """The library for ``variant``, by default the best that this processor runs.

    ``None`` if the package was built without it, or if there are no kernels for this processor.
    """
    known = variants()
    if not known or (variant and variant not in known):
        return None
    from popc_runtime.native import _native

    chosen = variant or known[0]
    return Library(chosen, _native.kernels(chosen), _native)


def variants() -> list[str]:
    """The kinds of processors whose kernels run here, the best first."""
    try:
        from popc_runtime.native import _native
    except ImportError:
        return []
    found: list[str] = _native.variants()
    return found


def why_missing() -> str:
    """Why programs run without native kernels, as a clause; empty if they do not."""
    try:
        from popc_runtime.native import _native
    except ImportError as error:
        if find_spec("popc_runtime.native._native") is None:
            return "the package was built without them"
        return f"they do not load: {error}"
    return "" if _native.variants() else "there are none for this processor"
