"""Which engine runs a program."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from popc_runtime.device.engine import Engine
from popc_runtime.errors import UsageError
from popc_runtime.format import FloatCheck
from popc_runtime.ground.hints import Final
from popc_runtime.native import find_library, why_missing

__all__ = ["ENGINES", "engine_type"]

# "auto" is native where that is possible.
ENGINES: Final = ("auto", "native", "numpy")


def engine_type(wanted: str, checks: Collection[FloatCheck]) -> Callable[..., Engine]:
    """What makes the engine ``wanted``.

    Floating-point checks look at the result of every call, which the numpy engine makes.

    Raises:
        UsageError: there is no such engine, or the native one cannot be had.
    """
    if wanted not in ENGINES:
        raise UsageError(f"there is no engine {wanted!r}", hint=f"choose from {', '.join(ENGINES)}")
    library = None if wanted == "numpy" or checks else find_library()
    if library is not None:
        from popc_runtime.device.native_engine import NativeEngine

        return partial(NativeEngine, library)
    if wanted == "native":
        reason = "floating-point checks need the numpy engine" if checks else why_missing()
        raise UsageError(
            f"the native engine cannot be had: {reason}",
            hint='engine="numpy", or --engine numpy on the command line',
        )
    return Engine
