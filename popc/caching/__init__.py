"""Programs that are compiled once: the cache, seen from the compiler.

What the cache is made of is the runtime's (`popc_runtime.cache`), which loads from it too.  Here is
what programs are found by.
"""

from __future__ import annotations

from popc.caching.models import compile_model, load_model

__all__ = ["compile_model", "load_model"]
