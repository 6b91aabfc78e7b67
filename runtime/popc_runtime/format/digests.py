"""SHA-256 of few bytes without OpenSSL, which takes longer to load than a small model.

The hashes of many bytes are OpenSSL's: it is several times as fast as what Python itself has.  So
are all where somebody has loaded it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module

from popc_runtime.ground.hints import Any, Final

__all__ = ["FEW_BYTES", "sha256"]

# They take Python's own function 0.2 ms; importing hashlib, which is six times as fast, takes 4 ms.
FEW_BYTES: Final = 1 << 16


def sha256(data: bytes | memoryview = b"", *, size: int = 0) -> Any:
    """An object of hashlib's kind, for ``size`` bytes or those of ``data``."""
    if max(size, len(data)) <= FEW_BYTES and "hashlib" not in sys.modules:
        return _small()(data)
    import hashlib

    return hashlib.sha256(data)


@cache
def _small() -> Callable[[bytes | memoryview], Any]:
    """Python's own function."""
    try:
        module = import_module("_sha2" if sys.version_info >= (3, 12) else "_sha256")
    except ImportError:  # another Python
        import hashlib as module
    found: Callable[[bytes | memoryview], Any] = module.sha256
    return found
