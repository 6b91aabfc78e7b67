"""zstandard's functions in C, without the package around them.

What the package imports first takes longer than all that there is to decompress in a small archive.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from types import ModuleType

from popc_runtime.ground.hints import TYPE_CHECKING, Final
from popc_runtime.ground.inner import inner_module

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor, ZstdError, get_frame_parameters

__all__ = ["ZstdDecompressor", "ZstdError", "get_frame_parameters"]

_PACKAGE: Final = "zstandard"
_INNER: Final = "backend_c"


def _found() -> ModuleType:
    """The module in C, or the package if it is there already, or made without C."""
    if _PACKAGE not in sys.modules:
        with suppress(ImportError):
            module = inner_module(_PACKAGE, _INNER)
            sys.modules[f"{_PACKAGE}.{_INNER}"] = module  # a module in C is loaded once
            return module
    import zstandard

    return zstandard


if not TYPE_CHECKING:
    _module = _found()
    ZstdDecompressor = _module.ZstdDecompressor
    ZstdError = _module.ZstdError
    get_frame_parameters = _module.get_frame_parameters
