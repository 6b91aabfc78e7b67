"""The native library: whether there is one, and what it can do here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache

from popc_runtime.errors import UsageError
from popc_runtime.ground.frozen import frozen
from popc_runtime.ground.hints import Any, Final

__all__ = ["Library", "fast_sha256", "find_library", "variants", "wanted_variant", "why_missing"]

_VARIABLE: Final = "POPC_NATIVE"
_NONE: Final = "none"


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
    """The library for ``variant``, by default what ``POPC_NATIVE`` says, or the best one here.

    ``None`` if the package was built without it, if there are no kernels for this processor, or if
    ``POPC_NATIVE`` is "none".

    Raises:
        UsageError: ``POPC_NATIVE`` names kernels that do not run here.
    """
    known = variants()
    chosen = variant or wanted_variant() or (known[0] if known else _NONE)
    if chosen not in known:
        return None
    from popc_runtime.native import _native

    return Library(chosen, _native.kernels(chosen), _native)


def wanted_variant() -> str:
    """The kind of processors that ``POPC_NATIVE`` names; "none" for numpy, empty if it is not set.

    Raises:
        UsageError: there are no such kernels, or they do not run here.
    """
    wanted = os.environ.get(_VARIABLE, "")
    known = [*variants(), _NONE]
    if wanted and wanted not in known:
        raise UsageError(
            f"{_VARIABLE} is {wanted!r}: this processor has no such native kernels",
            hint=f"choose from {', '.join(known)}",
        )
    return wanted


def fast_sha256() -> Callable[[memoryview], bytes] | None:
    """SHA-256 by instructions of the processor, if it has them: OpenSSL need not be loaded."""
    library = find_library()
    return library.module.sha256 if library and library.module.sha256(b"") else None


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
        from importlib.util import find_spec

        if find_spec("popc_runtime.native._native") is None:
            return "the package was built without native kernels"
        return f"the native kernels cannot be loaded: {error}"
    if not _native.variants():
        return "there are no native kernels for this processor"
    return f"{_VARIABLE} is {_NONE!r}" if wanted_variant() == _NONE else ""
