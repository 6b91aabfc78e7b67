"""The choice of the kernels that run a program."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from popc_runtime.device.binder import Binder
from popc_runtime.device.bound_program import BoundProgram
from popc_runtime.errors import SpokenHint, UsageError
from popc_runtime.format import FloatCheck
from popc_runtime.ground.hints import Final
from popc_runtime.native import find_library, why_missing

__all__ = ["ENGINES", "binder_type"]

# "auto" is native where that is possible.
ENGINES: Final = ("auto", "native", "numpy")


def binder_type(
    wanted: str, checks: Collection[FloatCheck] = ()
) -> Callable[[BoundProgram], Binder]:
    """The maker of binders for the engine ``wanted``.

    Floating-point checks look at the result of every call, which numpy's kernels make.

    Raises:
        UsageError: there is no such engine, or the native one is not available.
    """
    if wanted not in ENGINES:
        raise UsageError(f"there is no engine {wanted!r}", hint=f"choose from {', '.join(ENGINES)}")
    library = None if wanted == "numpy" or checks else find_library()
    if library is not None:
        from popc_runtime.device.native_binder import NativeBinder

        return partial(NativeBinder, library)
    if wanted == "native":
        reason = "floating-point checks need the numpy engine" if checks else why_missing()
        raise UsageError(
            f"the native engine is not available: {reason}",
            hint=SpokenHint('use engine="numpy"', "use --engine numpy"),
        )
    from popc_runtime.device.numpy_binder import NumpyBinder

    return NumpyBinder
