"""zstandard's functions in C, without the package around them.

What the package imports first takes longer than all that there is to decompress in a small archive.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.machinery import PathFinder
from types import ModuleType

from popc_runtime.ground.hints import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor, ZstdError, get_frame_parameters

__all__ = ["ZstdDecompressor", "ZstdError", "get_frame_parameters"]

_PACKAGE: Final = "zstandard"
_INNER: Final = "zstandard.backend_c"


def _found() -> ModuleType:
    """The module in C, or the package if it is there already, or made without C."""
    if _PACKAGE not in sys.modules:
        with suppress(ImportError):
            return _inner()
    import zstandard

    return zstandard


def _inner() -> ModuleType:
    """The module in C, as the package would import it.

    Not by `importlib.util`, which imports threads from Python 3.12 on.
    """
    package = PathFinder.find_spec(_PACKAGE)
    places = package.submodule_search_locations if package else None
    spec = PathFinder.find_spec(_INNER, places)
    module = spec.loader.create_module(spec) if spec and spec.loader else None
    if spec is None or spec.loader is None or module is None:
        raise ImportError(_INNER)
    module.__spec__ = spec
    spec.loader.exec_module(module)
    sys.modules[_INNER] = module
    return module


if not TYPE_CHECKING:
    _module = _found()
    ZstdDecompressor = _module.ZstdDecompressor
    ZstdError = _module.ZstdError
    get_frame_parameters = _module.get_frame_parameters
